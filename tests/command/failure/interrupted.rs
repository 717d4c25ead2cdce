//! Tests Ctrl-C and a lost agent: all processes end, and the run reports what happened.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use serial_test::file_serial;
use svclab_test_support::processes::{descendants, open_pidfd};
use svclab_test_support::running::waiting;

use crate::support::svclab;

/// Maximum time until all processes have ended.
const MAX_END_TIME: Duration = Duration::from_secs(1);

/// A run whose probe waits for packets that never arrive, and its processes.
struct WaitingRun {
    front: Child,
    processes: BTreeSet<i32>,
    agent: i32,
}

/// Starts a run with further arguments, and waits until its only case runs.
fn start_waiting_run(words: &[&str]) -> WaitingRun {
    let mut command = svclab();
    command.stdout(Stdio::piped());
    let front = waiting::start(command, &[&["--format", "json"], words].concat());
    let (_, agent) = waiting::find_agent(&front).expect("an agent runs");
    let top = i32::try_from(front.id()).expect("the PID fits");
    WaitingRun {
        front,
        processes: descendants(top).into_iter().collect(),
        agent,
    }
}

impl WaitingRun {
    fn interrupt(&self) {
        let front = i32::try_from(self.front.id()).expect("the PID fits");
        kill(Pid::from_raw(front), Signal::SIGINT).expect("the signal can be sent");
    }

    /// Waits until the run ends. Returns its results and its exit code.
    fn results(&mut self) -> (Value, Option<i32>) {
        let mut text = String::new();
        let stdout = self.front.stdout.as_mut().expect("a pipe");
        stdout.read_to_string(&mut text).expect("text");
        let code = self.front.wait().expect("the command ends").code();
        (serde_json::from_str(&text).expect("results"), code)
    }
}

/// Waits until all these processes have ended. Returns false if the deadline passes.
fn wait_for_all(processes: &BTreeSet<i32>, deadline: Instant) -> bool {
    processes
        .iter()
        .filter_map(|process| open_pidfd(*process))
        .all(|watched| {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut polled = [PollFd::new(watched.as_fd(), PollFlags::POLLIN)];
            poll(&mut polled, left).is_ok_and(|ended| ended == 1)
        })
}

#[test]
fn run_ctrl_c_ends_all_processes() {
    let mut waiting = start_waiting_run(&[]);
    let interrupted = Instant::now();
    waiting.interrupt();
    let (results, code) = waiting.results();
    assert!(
        wait_for_all(&waiting.processes, interrupted + MAX_END_TIME),
        "processes still run: {:?}",
        waiting.processes
    );
    assert!(
        interrupted.elapsed() < MAX_END_TIME,
        "the run ended after {:?}",
        interrupted.elapsed()
    );
    assert_eq!(code, Some(130), "{results:#}");
    assert_eq!(results["interrupted"], true);
    assert_eq!(results["cases"], json!([]));
}

#[test]
#[file_serial(machine)]
fn run_interrupted_has_certificate() {
    let mut waiting = start_waiting_run(&["--certify"]);
    waiting.interrupt();
    let (results, code) = waiting.results();
    let certificate = &results["certificate"];
    assert_eq!(certificate["unchanged"], true, "{certificate:#}");
    assert_eq!(certificate["before"], certificate["after"]);
    assert_eq!(certificate["compared"]["processes"], 0);
    assert_eq!(code, Some(130), "{results:#}");
    assert_eq!(results["interrupted"], true);
}

#[test]
fn run_interrupted_reports_finished_cases() {
    // The first case ends at once; the second waits.
    let mut front = svclab()
        .args(["run", "--max-wait=5m"])
        .args(["canal-stale-rule/stale=removed,rpFilter=1,underlay=passes"])
        .args(["canal-stale-rule/stale=present,rpFilter=1,underlay=passes"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut stdout = BufReader::new(front.stdout.take().expect("a pipe"));
    let mut first = String::new();
    stdout.read_line(&mut first).expect("a line");
    let front_id = i32::try_from(front.id()).expect("the PID fits");
    kill(Pid::from_raw(front_id), Signal::SIGINT).expect("the signal can be sent");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("text");
    let output = front.wait_with_output().expect("the command ends");
    assert_eq!(output.status.code(), Some(130));
    let stderr = String::from_utf8_lossy(&output.stderr);
    let text = format!("{first}{rest}{stderr}");
    insta::with_settings!({filters => vec![
        (r"\(\d+\.\d+ s\)", "(TIME)"),
        (r"in \d+\.\d+ s on Linux .*\)", "in TIME on KERNEL"),
    ]}, {
        insta::assert_snapshot!(text);
    });
}

#[test]
fn front_end_killed_ends_all_processes() {
    let mut waiting = start_waiting_run(&[]);
    let killed = Instant::now();
    waiting.front.kill().unwrap();
    waiting.front.wait().unwrap();
    assert!(
        wait_for_all(&waiting.processes, killed + MAX_END_TIME),
        "processes still run: {:?}",
        waiting.processes
    );
}

#[test]
fn run_agent_killed_reports_lost_case() {
    let mut waiting = start_waiting_run(&[]);
    kill(Pid::from_raw(waiting.agent), Signal::SIGKILL).unwrap();
    let (results, code) = waiting.results();
    assert_eq!(code, Some(5), "{results:#}");
    let error = &results["cases"][0]["error"];
    assert_eq!(error["kind"], "lost");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("signal 9") && message.contains("run its probes"),
        "{message}"
    );
}
