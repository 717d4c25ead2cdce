//! Tests a failed case that keeps running: the printed command enters it, and Ctrl-C removes it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{LAB, svclab, write_lab};

#[test]
fn run_keep_on_failure_lab_runs_until_ctrl_c() {
    let wrong = LAB.replacen("endpoints: [web]", "endpoints: []", 1);
    let (_directory, path) = write_lab(wrong);
    let mut front = svclab()
        .args(["run", "--keep-on-failure"])
        .arg(&path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let stderr = front.stderr.take().expect("standard error is a pipe");
    let printed: Vec<String> = BufReader::new(stderr)
        .lines()
        .map_while(Result::ok)
        .take_while(|line| !line.starts_with("Ctrl-C"))
        .collect();
    let entry = printed
        .iter()
        .find_map(|line| line.trim().strip_prefix("pod/default/web"))
        .expect("the pod's namespace can be entered");
    let entry = entry.trim().replace("COMMAND", "cat /proc/net/fib_trie");
    let inside = Command::new("sh")
        .args(["-c", &entry])
        .output()
        .expect("a shell starts");
    let addresses = String::from_utf8_lossy(&inside.stdout).into_owned();
    assert!(addresses.contains("10.244.1.10"), "{entry}: {inside:?}");
    let id = i32::try_from(front.id()).expect("the PID fits");
    kill(Pid::from_raw(id), Signal::SIGINT).expect("the signal can be sent");
    // The run was already over, so removing the kept case is no interruption.
    let status = front.wait().expect("the command ends");
    assert_eq!(status.code(), Some(1), "{printed:?}");
}
