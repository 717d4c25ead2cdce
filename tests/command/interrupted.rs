//! Ctrl-C, and an agent that dies: everything is gone, and the user is told.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use super::support::svclab;

/// How soon everything must be gone.
const SOON: Duration = Duration::from_secs(1);

/// A run that waits for packets that do not come, and the processes it is made of.
struct Waiting {
    front: Child,
    processes: BTreeSet<i32>,
    agent: i32,
}

/// Starts a run and waits until its only case is under way.
fn waiting() -> Waiting {
    let mut front = svclab()
        .args([
            "run",
            "canal-stale-rule/stale=present,rpFilter=1,underlay=passes",
            "--patience",
            "60s",
            "--format",
            "json",
        ])
        .env("SVCLAB_LOG", "debug")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let errors = front.stderr.take().expect("standard error is a pipe");
    let mut lines = BufReader::new(errors).lines();
    let begun = lines
        .by_ref()
        .map_while(Result::ok)
        .any(|line| line.contains("run its probes"));
    assert!(begun, "the probes never began");
    let front_id = i32::try_from(front.id()).expect("a process has a small number");
    let mut processes = BTreeSet::new();
    below(front_id, &mut processes);
    let agent = *processes
        .iter()
        .find(|process| is_agent(**process))
        .expect("there is an agent");
    std::thread::spawn(move || lines.for_each(drop));
    Waiting {
        front,
        processes,
        agent,
    }
}

fn below(process: i32, found: &mut BTreeSet<i32>) {
    let children =
        fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    for child in children
        .split_whitespace()
        .filter_map(|child| child.parse().ok())
    {
        found.insert(child);
        below(child, found);
    }
}

fn is_agent(process: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let pids = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .unwrap_or_default()
        .to_owned();
    let pids: Vec<&str> = pids.split_whitespace().collect();
    pids.len() > 1 && pids.last() == Some(&"1")
}

/// A descriptor that becomes readable when a process ends.
fn watch(process: i32) -> Option<OwnedFd> {
    // SAFETY: the call takes two integers and returns a new descriptor or -1.
    let fd = unsafe { nix::libc::syscall(nix::libc::SYS_pidfd_open, process, 0) };
    // SAFETY: the descriptor is new, and nobody else has it.
    i32::try_from(fd)
        .ok()
        .filter(|fd| *fd >= 0)
        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits for the end of all these processes, until `deadline`.
fn all_gone(processes: &BTreeSet<i32>, deadline: Instant) -> bool {
    processes
        .iter()
        .filter_map(|process| watch(*process))
        .all(|watched| {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut on = [PollFd::new(watched.as_fd(), PollFlags::POLLIN)];
            poll(&mut on, left).is_ok_and(|ended| ended == 1)
        })
}

#[test]
fn ctrl_c_ends_everything() {
    let mut waiting = waiting();
    let asked = Instant::now();
    kill(
        Pid::from_raw(i32::try_from(waiting.front.id()).unwrap()),
        Signal::SIGINT,
    )
    .unwrap();
    let status = waiting.front.wait().unwrap();
    assert!(
        all_gone(&waiting.processes, asked + SOON),
        "something was left: {:?}",
        waiting.processes
    );
    assert!(asked.elapsed() < SOON, "it took {:?}", asked.elapsed());
    assert_eq!(status.code(), Some(130));
}

#[test]
fn the_end_of_the_front_end_is_the_end_of_all() {
    let mut waiting = waiting();
    let killed = Instant::now();
    waiting.front.kill().unwrap();
    waiting.front.wait().unwrap();
    assert!(
        all_gone(&waiting.processes, killed + SOON),
        "something was left: {:?}",
        waiting.processes
    );
}

#[test]
fn a_lost_agent_is_no_pass_and_no_hang() {
    let mut waiting = waiting();
    kill(Pid::from_raw(waiting.agent), Signal::SIGKILL).unwrap();
    let mut results = String::new();
    waiting
        .front
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut results)
        .unwrap();
    assert_eq!(waiting.front.wait().unwrap().code(), Some(5), "{results}");
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    let error = &results["cases"][0]["error"];
    assert_eq!(error["trouble"], "lost");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("signal 9") && message.contains("run its probes"),
        "{message}"
    );
}
