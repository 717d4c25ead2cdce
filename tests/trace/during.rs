//! What others see of it: nothing in what rules are read back with, and nothing at
//! all when probes are over.

use std::process::Command;
use std::time::{Duration, Instant};

use svclab::evidence::Verdict;
use svclab::evidence::met::At;
use svclab::kernel::enter;
use svclab::plan::{Backend, Plan};

use super::{traced, with_agent};

/// How long a probe waits at most: until everything has been looked at.
const PATIENCE: Duration = Duration::from_mins(1);

/// Everything that rules are read back with. Who asks for legacy tables makes them.
const NFT: [&str; 3] = [
    "iptables-nft-save",
    "ip6tables-nft-save",
    "iptables-nft -t nat -S",
];
const LEGACY: [&str; 3] = [
    "iptables-legacy-save -t nat",
    "iptables-legacy-save -t filter",
    "ip6tables-legacy-save -t filter",
];

/// What nobody reads rules back with, and what it says of a trace.
const TABLES: &str = "nft list tables";
const OWN: &str = "svclab-trace";

const LOGGERS: &str = "cat /proc/sys/net/netfilter/nf_log/2 /proc/sys/net/netfilter/nf_log/10";

/// The command that enters the router, and a lock for iptables to take there.
struct Inside {
    enter: String,
    lock: tempfile::TempDir,
}

impl Inside {
    /// What a command says there, on both its outputs, without counters and times.
    fn said(&self, command: &str) -> String {
        let words = self.enter.replace("COMMAND", command);
        let mut words = words.split(' ');
        let output = Command::new(words.next().expect("a program"))
            .args(words)
            .env("XTABLES_LOCKFILE", self.lock.path().join("lock"))
            .output()
            .expect("nsenter can be started");
        let all = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&all)
            .lines()
            .filter(|line| !line.starts_with("# Generated") && !line.starts_with("# Completed"))
            .map(|line| line.split(" [").next().unwrap_or(line).to_owned() + "\n")
            .collect()
    }

    fn all(&self, backend: Backend) -> Vec<String> {
        let legacy = LEGACY.iter().filter(|_| backend == Backend::Legacy);
        let all = legacy.chain(&NFT);
        all.map(|command| self.said(command)).collect()
    }

    /// Looks at everything once packets are traced, then lets the probe through.
    fn look(&self, backend: Backend) -> (Vec<String>, String) {
        let begun = Instant::now();
        while !self.said(TABLES).contains(OWN) {
            assert!(begun.elapsed() < PATIENCE, "it is never there");
        }
        let (all, loggers) = (self.all(backend), self.said(LOGGERS));
        // It has been there all the while.
        assert!(self.said(TABLES).contains(OWN));
        let word = backend.word();
        let said = self.said(&format!("iptables-{word} -D FORWARD 2"));
        assert_eq!(said, "");
        (all, loggers)
    }
}

/// A plan whose one probe waits until a rule is taken away.
fn plan(backend: Backend) -> Plan {
    let mut plan = traced::plan(backend);
    plan.probes.retain(|probe| probe.name == "blocked");
    plan.probes[0].patience = PATIENCE;
    plan
}

fn nobody_sees(backend: Backend) {
    let evidence = with_agent(async |agent| {
        let mut session = agent.build(plan(backend)).await.expect("a lab");
        let enter = enter::command(&session, "router").expect("the agent is a process here");
        let lock = tempfile::tempdir().expect("a directory");
        let inside = Inside { enter, lock };
        let before = (inside.all(backend), inside.said(LOGGERS));
        assert!(!inside.said(TABLES).contains(OWN));
        let looking = std::thread::spawn(move || (inside.look(backend), inside));
        let evidence = session.probe().await.expect("evidence");
        let (during, inside) = looking.join().expect("it looked");
        assert_eq!(during.0, before.0);
        assert!(!inside.said(TABLES).contains(OWN));
        assert_eq!(during.1, "nfnetlink_log\nnfnetlink_log\n");
        assert_eq!(inside.said(LOGGERS), before.1);
        evidence
    });
    assert_eq!(evidence.attempts[0].verdict, Verdict::Connected);
    // The rule that is gone is told by the line it had.
    let dropped = evidence.met.iter().filter(|met| {
        (met.table.as_str(), met.chain.as_str(), met.at) == ("filter", "FORWARD", At::Rule(2))
    });
    assert!(dropped.count() > 0, "{:#?}", evidence.met);
}

#[test]
fn nobody_sees_how_iptables_nft_is_traced() {
    nobody_sees(Backend::Nft);
}

#[test]
fn nobody_sees_how_iptables_legacy_is_traced() {
    nobody_sees(Backend::Legacy);
}
