//! Tests `svclab capture`, which records packets of a running lab.

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Labs, assert_output_snapshot};

/// Starts a capture into a file and waits until the capture has begun.
fn start_capture(labs: &Labs, targets: &[&str], file: &Path) -> Child {
    let child = labs
        .runtime
        .svclab(&[&["capture"], targets].concat())
        .stdout(File::create(file).expect("a file"))
        .spawn()
        .expect("the command starts");
    // The first bytes are written once the capture is active.
    while fs::metadata(file).expect("a file").len() == 0 {
        std::thread::yield_now();
    }
    child
}

fn interrupt(child: Child) -> Output {
    let process = Pid::from_raw(i32::try_from(child.id()).expect("the PID fits"));
    kill(process, Signal::SIGINT).expect("the signal can be sent");
    child.wait_with_output().expect("the command ends")
}

fn probe_once(labs: &Labs) {
    let call = ["probe", "pod/default/client", "service/default/web:80"];
    let output = labs.runtime.run(&call);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Returns the output of another program that reads a capture. Asserts that the program reports no
/// error.
fn read_capture(program: &str, arguments: &[&str], file: &Path) -> Vec<String> {
    let output = Command::new(program)
        .args(arguments)
        .arg("-r")
        .arg(file)
        .output()
        .expect("the program starts");
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    // tshark warns when it runs as root, and tcpdump prints the name of the file.
    let wrong: Vec<&str> = stderr_text
        .lines()
        .filter(|line| !line.contains("Running as user") && !line.contains("reading from file"))
        .collect();
    assert!(
        output.status.success() && wrong.is_empty(),
        "{program}: {stderr_text}"
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

fn read_fields(file: &Path, fields: &[&str]) -> Vec<String> {
    let mut arguments = vec!["-n", "-T", "fields"];
    arguments.extend(fields.iter().flat_map(|field| ["-e", field]));
    read_capture("tshark", &arguments, file)
}

#[test]
fn capture_all_is_readable_by_tcpdump_and_tshark() {
    let labs = Labs::with_running_case();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("all.pcapng");
    let capture = start_capture(&labs, &[], &file);
    probe_once(&labs);
    let output = interrupt(capture);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let packets = read_capture("tcpdump", &["-n"], &file);
    let stderr_text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(stderr_text, format!("{} packets\n", packets.len()));
    // The first packet of the connection at each interface, in order.
    let syn = "frame.interface_name ip.dst tcp.dstport frame.packet_flags_direction tcp.flags";
    let syn: Vec<&str> = syn.split(' ').collect();
    let lines = read_fields(&file, &syn);
    let first: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_suffix("\t0x0002"))
        .collect();
    let client = "pod/default/client/eth0\t10.96.0.10\t80\t0x00000002";
    let bridge = "node-1/cbr0\t10.244.1.10\t8080\t0x00000002";
    let web = "pod/default/web/eth0\t10.244.1.10\t8080\t0x00000001";
    let position_of = |of: &str| first.iter().position(|line| *line == of);
    assert_eq!(position_of(client), Some(0), "{first:?}");
    // Packet order is certain only within the stack of one namespace.
    assert!(
        position_of(bridge).is_some() && position_of(bridge) < position_of(web),
        "{first:?}"
    );
    // Times have nanoseconds, are of today, and ascend.
    let times: Vec<f64> = read_fields(&file, &["frame.time_epoch"])
        .iter()
        .map(|time| time.parse().expect("a number"))
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    let now = fs::metadata(&file)
        .expect("a file")
        .modified()
        .expect("a time");
    let now = now
        .duration_since(std::time::UNIX_EPOCH)
        .expect("a time")
        .as_secs_f64();
    assert!((times[0] - now).abs() < 600.0, "{} is not {now}", times[0]);
}

#[test]
fn capture_selected_interfaces_has_no_others() {
    let labs = Labs::with_running_case();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("some.pcapng");
    let of = ["node-1/cbr0", "pod/default/web"];
    let capture = start_capture(&labs, &of, &file);
    probe_once(&labs);
    assert_eq!(interrupt(capture).status.code(), Some(0));
    let mut names = read_fields(&file, &["frame.interface_name"]);
    names.sort();
    names.dedup();
    assert_eq!(names, ["node-1/cbr0", "pod/default/web/eth0"]);
    // A capture without packets is a valid file.
    let none = directory.path().join("none.pcapng");
    let output = interrupt(start_capture(&labs, &["laptop"], &none));
    assert_output_snapshot!(labs, output);
    assert_eq!(read_capture("tcpdump", &["-n"], &none), [""; 0]);
    assert_eq!(read_capture("tshark", &["-n"], &none), [""; 0]);
}

#[test]
fn capture_unknown_target_is_refused() {
    let labs = Labs::with_running_case();
    let run = |of: &[&str]| labs.runtime.run(&[&["capture"], of].concat());
    assert_output_snapshot!(labs, run(&["node-9"]));
    assert_output_snapshot!(labs, run(&["node-1/eth9"]));
    assert_output_snapshot!(labs, run(&["node-1", "pod/default/web/eht0"]));
    assert_output_snapshot!(labs, run(&["nod-1/eth0"]));
}

#[test]
fn capture_reader_closed_ends() {
    let labs = Labs::with_running_case();
    // No packet arrives meanwhile.
    let mut child = labs.runtime.start(&["capture"]);
    let mut head = [0; 4];
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout
        .read_exact(&mut head)
        .expect("the capture has a header");
    assert_eq!(head, [0x0a, 0x0d, 0x0d, 0x0a]);
    drop(stdout);
    assert_output_snapshot!(labs, child.wait_with_output().expect("the command ends"));
}

#[test]
fn capture_lab_stopped_or_lost_ends() {
    let labs = Labs::with_running_case();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("gone.pcapng");
    let capture = start_capture(&labs, &["pod/default/web/eth0"], &file);
    probe_once(&labs);
    assert_eq!(labs.runtime.run(&["down"]).status.code(), Some(0));
    let output = capture.wait_with_output().expect("the command ends");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let packets = read_capture("tcpdump", &["-n"], &file).len();
    assert!(packets > 0);
    let stderr_text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        stderr_text,
        format!("{packets} packets; lab/policy=Local was stopped\n")
    );

    // Kills the daemon, so that the lab is lost.
    labs.runtime.up(&labs.case("Local"));
    let capture = start_capture(&labs, &[], &file);
    let holder = Pid::from_raw(labs.runtime.daemon_pid());
    kill(holder, Signal::SIGKILL).expect("the process runs");
    assert_output_snapshot!(labs, capture.wait_with_output().expect("the command ends"));
    read_capture("tcpdump", &["-n"], &file);
}

#[test]
fn capture_full_disk_ends_with_error() {
    let labs = Labs::with_running_case();
    let full = OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full exists");
    let mut capture = labs.runtime.svclab(&["capture"]);
    let output = capture.stdout(full).output().expect("the command starts");
    assert_output_snapshot!(labs, output);
}

#[test]
fn capture_disk_fills_up_keeps_whole_packets() {
    let labs = Labs::with_running_case();
    let directory = tempfile::tempdir().expect("a directory");
    let kept = directory.path().join("kept.pcapng");
    // A disk of a few pages; no packet fills a page exactly.
    let script = "mount -t tmpfs -o size=16k full /mnt
        \"$0\" capture pod/default/web/eth0 > /mnt/full.pcapng || code=$?
        cp /mnt/full.pcapng \"$1\"; exit \"${code:-0}\"";
    let mut stage = Command::new("unshare");
    stage.arg("--mount");
    if !nix::unistd::geteuid().is_root() {
        stage.args(["--user", "--map-root-user"]);
    }
    let runtime = labs.runtime.sockets();
    let mut child = stage
        .args(["sh", "-uc", script, crate::SVCLAB])
        .arg(&kept)
        .env("XDG_RUNTIME_DIR", runtime.parent().expect("a directory"))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a stage");
    while child.try_wait().expect("a child").is_none() {
        probe_once(&labs);
    }
    let output = child.wait_with_output().expect("the command ends");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let packets = read_capture("tcpdump", &["-n"], &kept).len();
    assert_eq!(read_capture("tshark", &["-n"], &kept).len(), packets);
    assert!(packets > 10, "{packets}");
    let stderr_text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        stderr_text.contains(&format!(
            "the capture is valid up to the error: {packets} packets"
        )),
        "{stderr_text}"
    );
}
