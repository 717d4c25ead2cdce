//! Tests a running lab in a guest: commands behave as on this host.

use std::io::Write as _;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::SVCLAB;
use super::by_hand::{self, CONNECTS, UNFILTERED};
use super::guests::{block_on, guest, shared};
use super::processes::{Held, of_session};
use super::standing_labs::Runtime;

fn svclab() -> Command {
    let mut command = Command::new(SVCLAB);
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("NO_COLOR", "1")
        .env("SVCLAB_KERNEL", "6.12")
        .env("SVCLAB_CACHE", shared().directory());
    command
}

fn standing() -> Runtime {
    standing_as(CONNECTS)
}

fn standing_as(case: &str) -> Runtime {
    // Fetches the kernel.
    block_on(guest("6.12"));
    let runtime = Runtime::of(svclab);
    runtime.up(case);
    runtime
}

#[test]
fn programs_probes_and_captures_work_as_on_this_host() {
    let runtime = standing();
    let about = runtime.about();
    assert_eq!(about["guest"], true);
    assert!(
        about["kernel"]
            .as_str()
            .is_some_and(|kernel| kernel.starts_with("6.12."))
    );
    // Tests streams, exit code and large data.
    let much = vec![b'x'; 1_000_000];
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
    let input = much.clone();
    let feeding = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("an end");
    feeding.join().expect("it ends").expect("it is read");
    assert_eq!(output.status.code(), Some(7), "{:?}", output.stderr);
    assert!(output.stdout == much && output.stderr == b"wrong\n");
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
    assert_eq!(absent.status.code(), Some(127), "{}", runtime.told(&absent));

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
    let front = i32::try_from(capture.id()).expect("a small number");
    kill(Pid::from_raw(front), Signal::SIGINT).expect("it runs");
    let output = capture.wait_with_output().expect("an end");
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
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, format!("{packets} packets\n"));
    assert!(packets > 20, "{packets}");

    let holder = Held::new(runtime.holder());
    assert_eq!(runtime.run(&["down"]).status.code(), Some(0));
    holder.is_gone();
    assert_eq!(runtime.files(), ["lock"]);
}

/// Compares text with a snapshot, without suffixes that a compiler adds to names of kernel
/// functions.
macro_rules! assert_said {
    ($said:expr) => {
        insta::with_settings!({filters => vec![
            (r"\.(constprop|isra|part|cold)[.\d]*", ""),
        ]}, {
            insta::assert_snapshot!($said);
        })
    };
}

#[test]
fn what_somebody_did_is_named_with_the_kernel_s_reasons() {
    let runtime = standing();
    assert_said!(by_hand::rules(&runtime));
    assert_said!(by_hand::routes(&runtime));
    // Counters of a host do not show these drops.
    assert_said!(by_hand::uncounted(&runtime));
    // The lab's own probe, in the current state.
    let output = runtime.run(&["explain", "--standing", "--format=json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let case = &told["cases"][0];
    assert!(
        case["kernel"]
            .as_str()
            .is_some_and(|kernel| kernel.starts_with("6.12."))
    );
    assert_eq!(case["connections"][0]["verdict"], "connected");
}

#[test]
fn settings_are_named_with_the_kernel_s_reasons() {
    assert_said!(by_hand::settings(&standing_as(UNFILTERED)));
}

#[test]
fn a_holder_that_is_killed_takes_its_guest_with_it() {
    let runtime = standing();
    let holder = runtime.holder();
    let running = of_session(holder);
    assert!(
        running.iter().any(|name| name.contains("qemu")),
        "{running:?}"
    );
    let exec = runtime.start(&["exec", "node-1", "--", "sleep", "600"]);
    let held = Held::new(holder);
    kill(Pid::from_raw(holder), Signal::SIGKILL).expect("it runs");
    held.is_gone();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !of_session(holder).is_empty() {
        assert!(
            std::time::Instant::now() < deadline,
            "{:?}",
            of_session(holder)
        );
        std::thread::yield_now();
    }
    let ended = exec.wait_with_output().expect("an end");
    assert_eq!(ended.status.code(), Some(125), "{}", runtime.told(&ended));
    let output = runtime.run(&["down"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
}
