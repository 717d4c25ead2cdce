//! Tests a running lab in a guest: commands behave as on this host.

use std::io::Write as _;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use svclab_test_support::block_on;
use svclab_test_support::guests::{new_guest, shared_cache};
use svclab_test_support::processes::{HeldProcess, session_processes, wait_for_session_end};
use svclab_test_support::running::Runtime;
use svclab_test_support::running::by_hand::{self, CONNECTS, UNFILTERED};

use super::SVCLAB;

fn svclab() -> Command {
    let mut command = Command::new(SVCLAB);
    command
        .current_dir(svclab_test_support::root())
        .env("NO_COLOR", "1")
        .env("SVCLAB_KERNEL", "6.12")
        .env("SVCLAB_CACHE", shared_cache().directory());
    command
}

fn start_lab() -> Runtime {
    start_lab_of(CONNECTS)
}

fn start_lab_of(case: &str) -> Runtime {
    // Fetches the kernel.
    block_on(new_guest("6.12"));
    let runtime = Runtime::new(svclab);
    runtime.up(case);
    runtime
}

#[test]
fn guest_lab_exec_probe_and_capture_work_as_on_host() {
    let runtime = start_lab();
    let info = runtime.lab_info();
    assert_eq!(info["guest"], true);
    assert!(
        info["kernel"]
            .as_str()
            .is_some_and(|kernel| kernel.starts_with("6.12."))
    );
    // Tests streams, exit code and large data.
    let large_input = vec![b'x'; 1_000_000];
    let mut child = runtime
        .svclab(&[
            "exec",
            "node-1",
            "--",
            "sh",
            "-c",
            "cat; echo wrong >&2; exit 7",
        ])
        .stdin(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = large_input.clone();
    let feeding = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("the command ends");
    feeding
        .join()
        .expect("the thread ends")
        .expect("the program reads its input");
    assert_eq!(output.status.code(), Some(7), "{:?}", output.stderr);
    assert!(output.stdout == large_input && output.stderr == b"wrong\n");
    // The guest's kernel runs, and diagnostic programs are available.
    for program in ["ip", "ss", "sysctl", "iptables-nft-save", "tcpdump"] {
        let asks = [
            "exec",
            "node-1",
            "--",
            "sh",
            "-c",
            "command -v \"$0\"",
            program,
        ];
        assert_eq!(runtime.run(&asks).status.code(), Some(0), "{program}");
    }
    let absent = runtime.run(&["exec", "node-1", "--", "no-such-program"]);
    assert_eq!(
        absent.status.code(),
        Some(127),
        "{}",
        runtime.render_output(&absent)
    );

    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("guest.pcapng");
    let capture = runtime
        .svclab(&["capture"])
        .stdout(std::fs::File::create(&file).expect("a file"))
        .spawn()
        .expect("the command starts");
    while std::fs::metadata(&file).expect("a file").len() == 0 {
        std::thread::yield_now();
    }
    let call = runtime.run(&[
        "probe",
        "node-1",
        "service/default/app:80",
        "--connections=3",
    ]);
    assert_eq!(call.status.code(), Some(0), "{call:?}");
    assert!(
        String::from_utf8_lossy(&call.stdout).contains("connected 3, "),
        "{call:?}"
    );
    let front = i32::try_from(capture.id()).expect("the PID fits");
    kill(Pid::from_raw(front), Signal::SIGINT).expect("the process runs");
    let output = capture.wait_with_output().expect("the command ends");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let read = Command::new("tcpdump")
        .args(["-n", "-r"])
        .arg(&file)
        .output()
        .expect("tcpdump is installed");
    assert!(read.status.success(), "{read:?}");
    // tcpdump prints the inner packet of a tunnel on its own line, without a time.
    let packets = String::from_utf8_lossy(&read.stdout)
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()))
        .count();
    let stderr_text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(stderr_text, format!("{packets} packets\n"));
    assert!(packets > 20, "{packets}");

    let holder = HeldProcess::new(runtime.daemon_pid());
    assert_eq!(runtime.run(&["down"]).status.code(), Some(0));
    holder.wait_for_end();
    assert_eq!(runtime.files(), ["lock"]);
}

/// Compares text with a snapshot, without suffixes that a compiler adds to names of kernel
/// functions.
macro_rules! assert_text_snapshot {
    ($said:expr) => {
        insta::with_settings!({filters => vec![
            (r"\.(constprop|isra|part|cold)[.\d]*", ""),
        ]}, {
            insta::assert_snapshot!($said);
        })
    };
}

#[test]
fn explain_manual_changes_in_guest_names_drop_reasons() {
    let runtime = start_lab();
    assert_text_snapshot!(by_hand::rules(&runtime));
    assert_text_snapshot!(by_hand::routes(&runtime));
    // Counters of a host do not show these drops.
    assert_text_snapshot!(by_hand::uncounted(&runtime));
    // The lab's own probe, in the current state.
    let output = runtime.run(&["explain", "--running", "--format=json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let case = &document["cases"][0];
    assert!(
        case["kernel"]
            .as_str()
            .is_some_and(|kernel| kernel.starts_with("6.12."))
    );
    assert_eq!(case["stages"][0]["connections"][0]["verdict"], "connected");
}

#[test]
fn explain_manual_sysctls_in_guest_names_drop_reasons() {
    assert_text_snapshot!(by_hand::settings(&start_lab_of(UNFILTERED)));
}

#[test]
fn daemon_killed_ends_guest() {
    let runtime = start_lab();
    let holder = runtime.daemon_pid();
    let running = session_processes(holder);
    assert!(
        running.values().any(|name| name.contains("qemu")),
        "{running:?}"
    );
    let exec = runtime.start(&["exec", "node-1", "--", "sleep", "600"]);
    let held = HeldProcess::new(holder);
    kill(Pid::from_raw(holder), Signal::SIGKILL).expect("the process runs");
    held.wait_for_end();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let left = wait_for_session_end(holder, deadline);
    assert!(left.is_empty(), "{left:?}");
    let ended = exec.wait_with_output().expect("the command ends");
    assert_eq!(
        ended.status.code(),
        Some(125),
        "{}",
        runtime.render_output(&ended)
    );
    let output = runtime.run(&["down"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
}
