//! Tests commands whose standard output or standard error is closed: they end without a message and
//! with the same exit code.

use std::fs;
use std::io::pipe;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{LAB, svclab};

/// State of a standard stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Read,
    Closed,
}

/// Returns the write end of a pipe without a reader.
fn closed_pipe() -> Stdio {
    pipe().expect("a pipe").1.into()
}

/// Runs a command. Returns its exit code and the text of the streams that are read.
fn run_with_streams(command: &mut Command, out: Stream, err: Stream) -> (Option<i32>, String) {
    if out == Stream::Closed {
        command.stdout(closed_pipe());
    } else {
        command.stdout(Stdio::piped());
    }
    if err == Stream::Closed {
        command.stderr(closed_pipe());
    } else {
        command.stderr(Stdio::piped());
    }
    let output = command.spawn().expect("the command starts");
    let output = output.wait_with_output().expect("the command ends");
    let output_text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&output_text).into_owned(),
    )
}

fn write_files(directory: &Path) {
    let write = |name: &str, text: &str| {
        fs::write(directory.join(name), text).expect("a file");
    };
    write("lab.yaml", LAB);
    write("wrong.yaml", &LAB.replace("  axes:", "  axess:"));
    let failing = LAB.replace("{name: lab}", "{name: failing}");
    write(
        "failing.yaml",
        &failing.replace("connected: 1", "timeout: 1"),
    );
    let rules = |chain: &str| {
        format!(
            "*nat\n:PREROUTING ACCEPT [0:0]\n:{chain} - [0:0]\n-A PREROUTING -j {chain}\nCOMMIT\n"
        )
    };
    write("a.iptables-save", &rules("A"));
    write("b.iptables-save", &rules("B"));
    write(
        "c.iptables-save",
        "*nat\n-A PREROUTING -m nosuch --and so \"on\nCOMMIT\n",
    );
}

#[test]
fn command_closed_stream_keeps_exit_code() {
    let directory = tempfile::tempdir().expect("a directory");
    write_files(directory.path());
    let local = "lab.yaml/policy=Local";
    for arguments in [
        &["run", local][..],
        &["run", "--verbose", "--format", "json", local],
        &["run", "--format", "junit", "failing.yaml/policy=Local"],
        &["run", "failing.yaml/policy=Local"],
        &["run", "wrong.yaml"],
        &["run", "no-such-lab"],
        &["explain", local],
        &["why", "failing.yaml/policy=Local"],
        &["plan", local],
        &["diff", "a.iptables-save", "a.iptables-save"],
        &["diff", "a.iptables-save", "b.iptables-save"],
        &["diff", "a.iptables-save", "c.iptables-save"],
        &["diff", "a.iptables-save", "no-such-dump"],
        &["replay", "a.iptables-save"],
        &["ps"],
        &["down", "nothing"],
        &["exec", "node-1", "true"],
        &["schema"],
        &["completions", "bash"],
        &["--help"],
        &["no-such-command"],
    ] {
        let run = |out, err| {
            let mut command = svclab();
            command
                .current_dir(directory.path())
                .env("SVCLAB_LOG", "debug")
                .args(arguments);
            run_with_streams(&mut command, out, err)
        };
        let (expected, told) = run(Stream::Read, Stream::Read);
        assert!(
            !matches!(expected, None | Some(70 | 101)),
            "{arguments:?}: {told}"
        );
        for (out, err) in [
            (Stream::Closed, Stream::Read),
            (Stream::Closed, Stream::Closed),
        ] {
            let (code, told) = run(out, err);
            let case = format!("{arguments:?} with {out:?} and {err:?}: {told}");
            assert_eq!(code, expected, "{case}");
            assert!(!told.contains("panicked"), "{case}");
        }
    }
}

/// Results in a file are complete although standard output has no reader.
#[test]
fn run_write_with_closed_stdout_writes_complete_files() {
    let directory = tempfile::tempdir().expect("a directory");
    write_files(directory.path());
    let mut command = svclab();
    command.current_dir(directory.path()).args([
        "run",
        "failing.yaml",
        "--write",
        "json=results.json",
        "--write",
        "junit=junit.xml",
    ]);
    let (code, told) = run_with_streams(&mut command, Stream::Closed, Stream::Read);
    assert_eq!((code, told.as_str()), (Some(1), ""));
    let json = fs::read_to_string(directory.path().join("results.json")).expect("results");
    let results: svclab_report::results::Document =
        serde_json::from_str(&json).expect("whole results");
    assert_eq!(results.summary.failed, 2);
    let junit = fs::read_to_string(directory.path().join("junit.xml")).expect("JUnit");
    let report = quick_junit::Report::deserialize_from_str(&junit).expect("whole JUnit");
    assert_eq!(report.failures, 2);
}
