//! A lab whose probe waits until a process inside deletes a rule, and that process.

use std::process::Command;
use std::time::{Duration, Instant};

use svclab_model::plan::{Backend, Plan};
use svclab_runner::kernel::{Session, enter};
use svclab_test_support::evidence::traced;

/// Maximum wait of the probe, until everything has been listed.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// Command that shows the trace's own table, which tools for rules do not list; name of that table.
const LIST_TABLES: &str = "nft list tables";
const TRACE_TABLE: &str = "svclab-trace";

pub fn plan(backend: Backend) -> Plan {
    let mut plan = traced::router_plan(backend);
    plan.stages[0]
        .probes
        .retain(|probe| probe.name == "blocked");
    plan.stages[0].probes[0].max_wait = MAX_WAIT;
    plan
}

/// Command that enters the router, and a lock file for iptables there.
pub struct Inside {
    enter: String,
    lock: tempfile::TempDir,
}

impl Inside {
    pub fn new(session: &Session) -> Self {
        Self {
            enter: enter::enter_command(session, "router")
                .expect("the agent is a process of this machine"),
            lock: tempfile::tempdir().expect("a directory"),
        }
    }

    /// Runs a command in the router. Returns both output streams, without counters and times.
    pub fn run(&self, command: &str) -> String {
        let words = self.enter.replace("COMMAND", command);
        let mut words = words.split(' ');
        let output = Command::new(words.next().expect("a program"))
            .args(words)
            .env("XTABLES_LOCKFILE", self.lock.path().join("lock"))
            .output()
            .expect("nsenter can be started");
        let output_bytes = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&output_bytes)
            .lines()
            .filter(|line| !line.starts_with("# Generated") && !line.starts_with("# Completed"))
            .map(|line| line.split(" [").next().unwrap_or(line).to_owned() + "\n")
            .collect()
    }

    /// Whether packets of the router are traced.
    pub fn is_traced(&self) -> bool {
        self.run(LIST_TABLES).contains(TRACE_TABLE)
    }

    pub fn await_trace(&self) {
        let begun = Instant::now();
        while !self.is_traced() {
            assert!(begun.elapsed() < MAX_WAIT, "the trace rules are missing");
        }
    }

    /// Deletes the dropping rule.
    pub fn let_through(&self, backend: Backend) {
        let word = backend.name();
        let output_text = self.run(&format!("iptables-{word} -D FORWARD 2"));
        assert_eq!(output_text, "");
    }
}
