//! Tests `svclab exec` and `svclab shell`: streams and exit codes of programs in a running lab, and
//! their effects on the lab.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use svclab_test_support::processes::descendants;

use super::{Labs, assert_output_snapshot};

fn run_exec(labs: &Labs, command: &[&str], input: &[u8]) -> Output {
    let arguments = [&["exec", "node-1", "--"], command].concat();
    let mut child = labs
        .runtime
        .svclab(&arguments)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // A program that does not read all its input closes the pipe.
    let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("the command ends");
    feeding.join().expect("the thread ends");
    output
}

#[test]
fn exec_program_passes_streams_and_exit_code() {
    let labs = Labs::with_running_case();
    let output = run_exec(&labs, &["sh", "-c", "cat; echo wrong >&2; exit 7"], b"word");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(
        (&*output.stdout, &*output.stderr),
        (&b"word"[..], &b"wrong\n"[..])
    );
    let output = run_exec(&labs, &["sh", "-c", "kill -TERM $$"], b"");
    assert_eq!(output.status.code(), Some(128 + 15));
    // The program runs in the network namespace of the node.
    let output = run_exec(&labs, &["ip", "-br", "address", "show", "eth0"], b"");
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output_text.contains("192.168.50.11/"), "{output_text}");
}

#[test]
fn exec_large_streams_are_complete() {
    let labs = Labs::with_running_case();
    let input: Vec<u8> = (0..4_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    let output = run_exec(&labs, &["cat"], &input);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stdout == input,
        "{} bytes were printed",
        output.stdout.len()
    );
    // Output written right before the end is complete.
    for _ in 0..20 {
        let output = run_exec(&labs, &["sh", "-c", "echo out; echo err >&2"], b"");
        assert_eq!(
            (&*output.stdout, &*output.stderr),
            (&b"out\n"[..], &b"err\n"[..])
        );
    }
}

#[test]
fn exec_closed_stream_ends_program() {
    let labs = Labs::with_running_case();
    // The program stops reading.
    let output = run_exec(&labs, &["head", "-c", "3"], &vec![b'x'; 3_000_000]);
    assert_eq!(
        (output.status.code(), &*output.stdout),
        (Some(0), &b"xxx"[..])
    );
    // Without a reader of its output, the program ends as it would without svclab.
    let mut child = labs.runtime.start(&["exec", "node-1", "--", "yes"]);
    let mut some = [0; 4];
    child
        .stdout
        .take()
        .expect("a pipe")
        .read_exact(&mut some)
        .expect("the program writes");
    assert_eq!(&some, b"y\ny\n");
    assert_eq!(
        child.wait().expect("the command ends").code(),
        Some(128 + 13)
    );
}

#[test]
fn exec_program_with_child_returns_at_once() {
    let labs = Labs::with_running_case();
    let output = run_exec(&labs, &["sh", "-c", "sleep 600 & echo $!"], b"");
    assert_eq!(output.status.code(), Some(0));
    let left = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    // The child process runs until the lab ends.
    let output = run_exec(&labs, &["sh", "-c", &format!("kill -0 {left}")], b"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Starts a program in the lab that prints `runs` and waits for a signal.
fn start_waiting_program(labs: &Labs) -> (Child, BufReader<std::process::ChildStdout>) {
    let script = "trap 'echo asked; exit 3' INT; echo runs; while :; do sleep 600 & wait; done";
    let mut child = labs
        .runtime
        .start(&["exec", "node-1", "--", "sh", "-c", script]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    assert_eq!(line, "runs\n");
    (child, lines)
}

#[test]
fn exec_sigint_is_passed_to_program() {
    let labs = Labs::with_running_case();
    let (mut child, mut lines) = start_waiting_program(&labs);
    let front = Pid::from_raw(i32::try_from(child.id()).expect("the PID fits"));
    kill(front, Signal::SIGINT).expect("the signal can be sent");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "asked\n");
    assert_eq!(child.wait().expect("the command ends").code(), Some(3));
}

#[test]
fn exec_command_killed_ends_program() {
    let labs = Labs::with_running_case();
    let holder = labs.runtime.daemon_pid();
    let without = descendants(holder);
    let (mut child, _lines) = start_waiting_program(&labs);
    let with = descendants(holder);
    let started: Vec<i32> = with
        .into_iter()
        .filter(|candidate| !without.contains(candidate))
        .collect();
    assert!(!started.is_empty());
    child.kill().expect("the process runs");
    child.wait().expect("the command ends");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let is_there = |process: &i32| Path::new(&format!("/proc/{process}")).exists();
    while started.iter().any(is_there) {
        assert!(
            std::time::Instant::now() < deadline,
            "{started:?} still run"
        );
        std::thread::yield_now();
    }
}

#[test]
fn exec_lab_stopped_ends_program() {
    let labs = Labs::with_running_case();
    let (child, _lines) = start_waiting_program(&labs);
    let down = labs.runtime.run(&["down"]);
    assert_eq!(down.status.code(), Some(0), "{down:?}");
    assert_output_snapshot!(labs, child.wait_with_output().expect("the command ends"));
}

#[test]
fn exec_unknown_namespace_or_program_is_refused() {
    let labs = Labs::with_running_case();
    let run = |arguments: &[&str]| labs.runtime.run(arguments);
    assert_output_snapshot!(labs, run(&["exec", "node-9", "--", "true"]));
    assert_output_snapshot!(labs, run(&["exec", "pod/default/clinet", "--", "true"]));
    assert_output_snapshot!(labs, run(&["exec", "node-1", "--", "no-such-program"]));
    assert_output_snapshot!(labs, run(&["exec", "node-1", "--", "/etc/services"]));
    assert_output_snapshot!(labs, run(&["exec", "node-1"]));
    assert_output_snapshot!(labs, run(&["shell", "node-1"]));
    // Prefixes as in lab files are accepted, too.
    assert_eq!(
        run(&["exec", "node/node-1", "--", "true"]).status.code(),
        Some(0)
    );
    assert_eq!(
        run(&["exec", "host/laptop", "--", "true"]).status.code(),
        Some(0)
    );
}

#[test]
fn exec_program_from_up_argument_runs() {
    let labs = Labs::new();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let program = directory.path().join("mine");
    std::fs::copy("/bin/true", &program).expect("the file can be copied");
    let program = program.display().to_string();
    let up = ["up", "--detach", &labs.case("Local"), "--program", &program];
    let output = labs.runtime.run(&up);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(run_exec(&labs, &[&program], b"").status.code(), Some(0));
}

#[test]
fn probe_after_manual_rule_is_refused() {
    let labs = Labs::with_running_case();
    let call = [
        "probe",
        "pod/default/client",
        "service/default/web:80",
        "--connections=3",
    ];
    let run = |arguments: &[&str]| labs.runtime.run(arguments);
    assert_output_snapshot!(labs, run(&call));
    let rule = ["iptables-nft", "-I", "FORWARD", "-p", "tcp", "-j", "REJECT"];
    let output = run_exec(&labs, &rule, b"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_output_snapshot!(labs, run(&call));
    let output = run_exec(&labs, &["sysctl", "-w", "net.ipv4.ip_forward=0"], b"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_output_snapshot!(labs, run(&[&call[..], &["--max-wait=100ms"]].concat()));
    let ping = ["probe", "node-1", "pod/default/web", "--protocol=ping"];
    assert_output_snapshot!(labs, run(&ping));
    assert_output_snapshot!(
        labs,
        run(&[
            "probe",
            "pod/default/client",
            "10.244.1.10:8080",
            "--protocol=udp",
            "--max-wait=100ms"
        ])
    );
    assert_output_snapshot!(
        labs,
        run(&["probe", "pod/default/clint", "service/default/web:80"])
    );
    assert_output_snapshot!(
        labs,
        run(&["probe", "pod/default/client", "service/default/web"])
    );
    assert_output_snapshot!(
        labs,
        run(&["probe", "pod/default/client", "svc/default/web:80"])
    );
    assert_output_snapshot!(
        labs,
        run(&[
            "probe",
            "pod/default/client",
            "10.0.0.1:80",
            "--protocol=sctp"
        ])
    );
}
