//! The lab as a shell script, in a mount and network namespace of its own that
//! stands for a host: a shell in there runs the script when told to, as a user
//! at a prompt would.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use svclab_model::plan::{Backend, Plan};
use tempfile::TempDir;

/// The script, from the project's directory.
const SCRIPT: &str = "tests/bench/six-namespaces.sh";

/// Waits until the kernel takes away a namespace: an interface whose other end
/// was in there goes with it.
const SETTLE: &str = "ip netns add gone && ip link add gone0 type veth peer name gone1 netns gone \
    && ip netns del gone && while ip link show gone0 >/dev/null 2>&1; do :; done";

/// The place in which the script runs. When it is dropped, all is gone.
pub struct Place {
    shell: Child,
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
    rules: TempDir,
}

impl Place {
    /// Opens it. Needs root.
    pub fn open() -> Self {
        let mut shell = Command::new("unshare")
            .args(["--mount", "--net", "--fork", "--kill-child", "sh"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare can be started");
        let tell = shell.stdin.take().expect("standard input is a pipe");
        let hear = BufReader::new(shell.stdout.take().expect("standard output is a pipe"));
        let rules = tempfile::tempdir().expect("a temporary directory");
        let mut place = Self {
            shell,
            tell,
            hear,
            rules,
        };
        // Names of namespaces and the lock of iptables-legacy are the place's own.
        place.run("mount -t tmpfs tmpfs /run && mkdir /run/netns && ip link set lo up");
        place
    }

    /// Builds the lab by the script, with the rules of `plan`. Returns the time
    /// from telling the shell to the script's verdict.
    pub fn stand(&mut self, backend: Backend, plan: &Plan) -> Duration {
        let rules = self.rules.path().to_owned();
        write_rules(plan, &rules);
        self.script(&format!("up {} {}", backend.word(), rules.display()))
    }

    /// Takes the standing lab away.
    pub fn down(&mut self) -> Duration {
        self.script("down")
    }

    /// Has the script do something. Returns how long it took.
    pub fn script(&mut self, arguments: &str) -> Duration {
        let told = Instant::now();
        self.run(&format!("sh {SCRIPT} {arguments}"));
        told.elapsed()
    }

    /// Waits until the kernel has taken away what was let go of. It takes away
    /// together what it finds, so the first of these may go with that, and the
    /// second only when all of that is done.
    pub fn settle(&mut self) {
        self.run(SETTLE);
        self.run(SETTLE);
    }

    fn run(&mut self, command: &str) {
        writeln!(self.tell, "{command}; echo $?").expect("the shell listens");
        let mut status = String::new();
        self.hear
            .read_line(&mut status)
            .expect("the shell can be heard");
        assert_eq!(status, "0\n", "this failed: {command}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What is in there ends with the process that holds it.
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
            std::fs::write(directory.join(&namespace.name), &rules.v4)
                .expect("the rules can be written");
        }
    }
}
