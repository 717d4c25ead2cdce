//! Tests `svclab capture`, which records packets of a running lab.

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Labs, assert_told};

/// Starts a capture into a file and waits until the capture has begun.
fn capturing(labs: &Labs, of: &[&str], file: &Path) -> Child {
    let child = labs
        .runtime
        .svclab(&[&["capture"], of].concat())
        .stdout(File::create(file).expect("a file"))
        .spawn()
        .expect("the command starts");
    // The first bytes are written once the capture is active.
    while fs::metadata(file).expect("a file").len() == 0 {
        std::thread::yield_now();
    }
    child
}

fn interrupted(child: Child) -> Output {
    let process = Pid::from_raw(i32::try_from(child.id()).expect("a small number"));
    kill(process, Signal::SIGINT).expect("the signal can be sent");
    child.wait_with_output().expect("an end")
}

fn call(labs: &Labs) {
    let call = ["probe", "pod/default/client", "service/default/web:80"];
    let output = labs.runtime.run(&call);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Returns the output of another program that reads a capture. Asserts that the program reports no
/// error.
fn read(program: &str, arguments: &[&str], file: &Path) -> Vec<String> {
    let output = Command::new(program)
        .args(arguments)
        .arg("-r")
        .arg(file)
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    // tshark warns when it runs as root, and tcpdump prints the name of the file.
    let wrong: Vec<&str> = said
        .lines()
        .filter(|line| !line.contains("Running as user") && !line.contains("reading from file"))
        .collect();
    assert!(
        output.status.success() && wrong.is_empty(),
        "{program}: {said}"
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

fn fields(file: &Path, fields: &[&str]) -> Vec<String> {
    let mut arguments = vec!["-n", "-T", "fields"];
    arguments.extend(fields.iter().flat_map(|field| ["-e", field]));
    read("tshark", &arguments, file)
}

#[test]
fn others_read_what_was_captured() {
    let labs = Labs::one();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("all.pcapng");
    let capture = capturing(&labs, &[], &file);
    call(&labs);
    let output = interrupted(capture);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let packets = read("tcpdump", &["-n"], &file);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, format!("{} packets\n", packets.len()));
    // The first packet of the connection at each interface, in order.
    let syn = "frame.interface_name ip.dst tcp.dstport frame.packet_flags_direction tcp.flags";
    let syn: Vec<&str> = syn.split(' ').collect();
    let told = fields(&file, &syn);
    let first: Vec<&str> = told
        .iter()
        .filter_map(|line| line.strip_suffix("\t0x0002"))
        .collect();
    let client = "pod/default/client/eth0\t10.96.0.10\t80\t0x00000002";
    let bridge = "node-1/cbr0\t10.244.1.10\t8080\t0x00000002";
    let web = "pod/default/web/eth0\t10.244.1.10\t8080\t0x00000001";
    let at = |of: &str| first.iter().position(|line| *line == of);
    assert_eq!(at(client), Some(0), "{first:?}");
    // Packet order is certain only within the stack of one namespace.
    assert!(at(bridge).is_some() && at(bridge) < at(web), "{first:?}");
    // Times have nanoseconds, are of today, and ascend.
    let times: Vec<f64> = fields(&file, &["frame.time_epoch"])
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
fn what_is_asked_for_is_captured_and_nothing_else() {
    let labs = Labs::one();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("some.pcapng");
    let of = ["node-1/cbr0", "pod/default/web"];
    let capture = capturing(&labs, &of, &file);
    call(&labs);
    assert_eq!(interrupted(capture).status.code(), Some(0));
    let mut names = fields(&file, &["frame.interface_name"]);
    names.sort();
    names.dedup();
    assert_eq!(names, ["node-1/cbr0", "pod/default/web/eth0"]);
    // A capture without packets is a valid file.
    let none = directory.path().join("none.pcapng");
    let output = interrupted(capturing(&labs, &["laptop"], &none));
    assert_told!(labs, output);
    assert_eq!(read("tcpdump", &["-n"], &none), [""; 0]);
    assert_eq!(read("tshark", &["-n"], &none), [""; 0]);
}

#[test]
fn what_is_not_there_is_told() {
    let labs = Labs::one();
    let run = |of: &[&str]| labs.runtime.run(&[&["capture"], of].concat());
    assert_told!(labs, run(&["node-9"]));
    assert_told!(labs, run(&["node-1/eth9"]));
    assert_told!(labs, run(&["node-1", "pod/default/web/eht0"]));
    assert_told!(labs, run(&["nod-1/eth0"]));
}

#[test]
fn a_reader_that_goes_ends_it() {
    let labs = Labs::one();
    // No packet arrives meanwhile.
    let mut child = labs.runtime.start(&["capture"]);
    let mut head = [0; 4];
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_exact(&mut head).expect("it begins");
    assert_eq!(head, [0x0a, 0x0d, 0x0d, 0x0a]);
    drop(stdout);
    assert_told!(labs, child.wait_with_output().expect("an end"));
}

#[test]
fn a_lab_that_goes_ends_it() {
    let labs = Labs::one();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("gone.pcapng");
    let capture = capturing(&labs, &["pod/default/web/eth0"], &file);
    call(&labs);
    assert_eq!(labs.runtime.run(&["down"]).status.code(), Some(0));
    let output = capture.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let packets = read("tcpdump", &["-n"], &file).len();
    assert!(packets > 0);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        said,
        format!("{packets} packets; lab/policy=Local was taken away\n")
    );

    // Kills the daemon, so that the lab is lost.
    labs.runtime.up(&labs.case("Local"));
    let capture = capturing(&labs, &[], &file);
    let holder = Pid::from_raw(labs.runtime.holder());
    kill(holder, Signal::SIGKILL).expect("it runs");
    assert_told!(labs, capture.wait_with_output().expect("an end"));
    read("tcpdump", &["-n"], &file);
}

#[test]
fn a_full_disk_ends_it() {
    let labs = Labs::one();
    let full = OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("it is there");
    let mut capture = labs.runtime.svclab(&["capture"]);
    let output = capture.stdout(full).output().expect("the command starts");
    assert_told!(labs, output);
}

#[test]
fn a_disk_that_becomes_full_holds_whole_packets() {
    let labs = Labs::one();
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
        call(&labs);
    }
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let packets = read("tcpdump", &["-n"], &kept).len();
    assert_eq!(read("tshark", &["-n"], &kept).len(), packets);
    assert!(packets > 10, "{packets}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains(&format!(
            "what was written so far is whole: {packets} packets"
        )),
        "{said}"
    );
}
