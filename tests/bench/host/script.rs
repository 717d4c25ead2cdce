//! Runs the lab as a shell script, in new mount and network namespaces that simulate a host. A
//! shell in these namespaces runs the script on request, like a user at a prompt.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use svclab_model::plan::{Backend, Plan};
use tempfile::TempDir;

/// Path of the script, from the project directory.
const SCRIPT: &str = "tests/bench/host/six-namespaces.sh";

/// Waits until the kernel has deleted a namespace: the peer of a veth interface in it disappears
/// with the namespace.
const SETTLE: &str = "ip netns add gone && ip link add gone0 type veth peer name gone1 netns gone \
    && ip netns del gone && while ip link show gone0 >/dev/null 2>&1; do :; done";

/// Namespaces in which the script runs. Dropping the value deletes them.
pub struct ScriptHost {
    shell: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    rules: TempDir,
}

impl ScriptHost {
    /// Creates the namespaces. Needs root.
    pub fn new() -> Self {
        let mut shell = Command::new("unshare")
            .args(["--mount", "--net", "--fork", "--kill-child", "sh"])
            .current_dir(svclab_test_support::root())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare can be started");
        let tell = shell.stdin.take().expect("standard input is a pipe");
        let hear = BufReader::new(shell.stdout.take().expect("standard output is a pipe"));
        let rules = tempfile::tempdir().expect("a temporary directory");
        let mut place = Self {
            shell,
            stdin: tell,
            stdout: hear,
            rules,
        };
        // Hides the host's network namespace names and the lock file of iptables-legacy.
        place.run("mount -t tmpfs tmpfs /run && mkdir /run/netns && ip link set lo up");
        place
    }

    /// Builds the lab by the script, with the rules of `plan`. Returns the time from the command to
    /// the script's verdict.
    pub fn up(&mut self, backend: Backend, plan: &Plan) -> Duration {
        let rules = self.rules.path().to_owned();
        write_rules(plan, &rules);
        self.run_script(&format!("up {} {}", backend.name(), rules.display()))
    }

    /// Removes the lab and returns the time.
    pub fn down(&mut self) -> Duration {
        self.run_script("down")
    }

    /// Runs the script with arguments. Returns the time.
    pub fn run_script(&mut self, arguments: &str) -> Duration {
        let start = Instant::now();
        self.run(&format!("sh {SCRIPT} {arguments}"));
        start.elapsed()
    }

    /// Waits until the kernel has deleted all removed namespaces. The kernel deletes pending
    /// namespaces in batches. The first namespace may belong to the current batch; the second is
    /// deleted only after that batch.
    pub fn settle(&mut self) {
        self.run(SETTLE);
        self.run(SETTLE);
    }

    fn run(&mut self, command: &str) {
        writeln!(self.stdin, "{command}; echo $?").expect("the shell listens");
        let mut status = String::new();
        self.stdout
            .read_line(&mut status)
            .expect("the shell writes its status");
        assert_eq!(status, "0\n", "the command failed: {command}");
    }
}

impl Drop for ScriptHost {
    fn drop(&mut self) {
        // The namespaces end with the process that holds them.
        drop(self.shell.kill());
        drop(self.shell.wait());
    }
}

fn write_rules(plan: &Plan, directory: &Path) {
    for namespace in &plan.namespaces {
        if let Some(rules) = &namespace.iptables {
            assert!(
                rules.v6.is_empty() && namespace.ipset.is_empty(),
                "the script loads IPv4 rules only, and no sets"
            );
            std::fs::write(directory.join(&namespace.name), rules.v4.text())
                .expect("the rules can be written");
        }
    }
}
