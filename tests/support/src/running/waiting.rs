//! Starts a run whose probe waits for packets that never arrive.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::processes::children;

/// A case whose probe times out.
const CASE: &str = "canal-stale-rule/stale=present,rpFilter=1,underlay=passes";

/// Starts `svclab run` on the case, with further arguments. Returns when the lab is built and the
/// probe is running. The probe waits longer than any test runs.
pub fn start(mut svclab: Command, arguments: &[&str]) -> Child {
    let mut run = svclab
        .args(["run", CASE, "--max-wait=5m"])
        .args(arguments)
        .env("SVCLAB_LOG", "debug")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let stderr = run.stderr.take().expect("standard error is a pipe");
    let mut lines = BufReader::new(stderr).lines();
    let begun = lines
        .by_ref()
        .map_while(Result::ok)
        .any(|line| line.contains("run its probes"));
    assert!(begun, "the probes did not start");
    std::thread::spawn(move || lines.for_each(drop));
    run
}

/// Finds the agent below a process: the first process of a PID namespace. Returns its parent, which
/// waits for it, and the agent.
pub fn find_agent(top: &Child) -> Option<(i32, i32)> {
    let mut below = VecDeque::from([i32::try_from(top.id()).ok()?]);
    while let Some(process) = below.pop_front() {
        for child in children(process) {
            let status = fs::read_to_string(format!("/proc/{child}/status")).ok()?;
            let pids = status.lines().find(|line| line.starts_with("NSpid:"))?;
            if pids.split_whitespace().count() > 2 && pids.ends_with("\t1") {
                return Some((process, child));
            }
            below.push_back(child);
        }
    }
    None
}
