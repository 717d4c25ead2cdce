//! Tests that the certificate of `svclab run --certify` lists everything left behind, and nothing
//! else.
//!
//! The tests run in namespaces that simulate a machine. No other process changes anything there,
//! and a test can leave objects behind.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;
use svclab_test_support::programs::copy_programs;
use svclab_test_support::running::waiting;

use crate::support::{LAB, project, write_lab};

/// Returns a command that runs a shell in new network, mount and PID namespaces with a private
/// `/run`.
fn machine_command(script: &str, lab: &Path, fifo: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ]);
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["sh", "-euc"])
        .arg(format!(
            "mount -t tmpfs machine /run\nip link set lo up\n{script}"
        ))
        .arg("sh")
        .arg(crate::SVCLAB)
        .args([lab, fifo])
        .current_dir(project())
        .env("NO_COLOR", "1")
        .env_remove("SVCLAB_KERNEL")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// For each part of the machine: command that leaves an object behind, and the text of its
/// certificate entry.
const PLANTED: [(&str, &str, &str); 11] = [
    ("links", "ip link add planted type bridge", "planted"),
    ("addresses", "ip addr add 192.0.2.1/32 dev lo", "192.0.2.1"),
    (
        "routes",
        "ip route add blackhole 198.51.100.0/24",
        "198.51.100.0/24",
    ),
    ("rules", "ip rule add from 192.0.2.7 lookup 77", "192.0.2.7"),
    (
        "neighbours",
        "ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev planted nud permanent",
        "02:00:00:00:00:09",
    ),
    ("nftables", "nft add table inet planted", "planted"),
    (
        "iptables-nft",
        "iptables-nft -A INPUT -s 192.0.2.5 -j DROP",
        "-s 192.0.2.5/32",
    ),
    ("ipset", "ipset create planted hash:ip", "create planted"),
    (
        "sysctls",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "net/ipv4/ip_forward = 1",
    ),
    ("mounts", "mount -t tmpfs planted /mnt", "/mnt"),
    ("run", "touch /run/planted", "/run/planted"),
];

/// Command and text for iptables-legacy, on kernels that support it.
const PLANTED_LEGACY: (&str, &str, &str) = (
    "iptables-legacy",
    "iptables-legacy -A INPUT -s 192.0.2.6 -j DROP",
    "-s 192.0.2.6/32",
);

/// Adds a neighbour entry that the kernel deletes itself.
const PLANT_TEMPORARY: &str =
    "ip neigh add 192.0.2.10 lladdr 02:00:00:00:00:0a dev planted nud reachable";

#[test]
fn certificate_objects_left_behind_are_listed() {
    // The probe fails, so the run keeps the lab until it is interrupted. Meanwhile the test leaves
    // objects behind.
    let wrong = LAB.replacen("endpoints: [web]", "endpoints: []", 1);
    let (directory, path) = write_lab(wrong);
    let fifo = directory.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Starts a process that outlives its parent, during the run.
    let script = "(read -r go < \"$3\"; sleep 1000 > /dev/null 2>&1 & echo > \"$3\") > /dev/null 2>&1 &\n\
                  exec \"$1\" run --certify --keep-on-failure --format json \"$2\"";
    let mut run = machine_command(script, &path, &fifo).spawn().unwrap();
    let errors = run.stderr.take().unwrap();
    let mut lines = BufReader::new(errors).lines().map_while(Result::ok);
    let printed: Vec<String> = lines
        .by_ref()
        .take_while(|line| !line.starts_with("Ctrl-C"))
        .collect();
    let front = child_of(&run).unwrap_or_else(|| panic!("{printed:?}"));
    fs::write(&fifo, "go\n").unwrap();
    assert_eq!(fs::read_to_string(&fifo).unwrap(), "\n", "{printed:?}");
    for (_, command, _) in PLANTED.iter().chain([&PLANTED_LEGACY]) {
        run_in_machine(front, command);
    }
    run_in_machine(front, PLANT_TEMPORARY);
    kill(Pid::from_raw(front), Signal::SIGINT).unwrap();
    let mut text = String::new();
    run.stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    let status = run.wait().unwrap();
    assert_eq!(
        status.code(),
        Some(1),
        "{text}{:?}",
        lines.collect::<Vec<_>>()
    );
    let results: Value = serde_json::from_str(&text).unwrap();
    let certificate = &results["certificate"];
    assert_eq!(certificate["unchanged"], false);
    assert_ne!(certificate["before"], certificate["after"]);
    for (part, _, mark) in PLANTED
        .iter()
        .chain([&PLANTED_LEGACY, &("processes", "", "sleep (process ")])
    {
        let come = &certificate["changes"][part]["added"];
        let lines = come.as_array().into_iter().flatten();
        assert!(
            lines
                .into_iter()
                .any(|line| line.as_str().unwrap().contains(mark)),
            "{part}: {certificate:#}"
        );
    }
    let text = certificate.to_string();
    assert!(!text.contains("192.0.2.10"), "{certificate:#}");
}

#[test]
fn certificate_of_interrupted_run_lists_left_objects() {
    let nowhere = Path::new("");
    let script = "svclab=$1; shift 3; exec \"$svclab\" \"$@\"";
    let command = machine_command(script, nowhere, nowhere);
    let run = waiting::start(command, &["--certify", "--format=json"]);
    let front = child_of(&run).expect("a run");
    let (_, command, mark) = PLANTED[0];
    run_in_machine(front, command);
    kill(Pid::from_raw(front), Signal::SIGINT).unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results["interrupted"], true);
    let added = &results["certificate"]["changes"]["links"]["added"];
    assert!(added.to_string().contains(mark), "{results:#}");
}

#[test]
fn certificate_of_clean_run_is_unchanged_for_each_user() {
    let users: &[&str] = if geteuid().is_root() {
        &["", "setpriv --reuid=1000 --regid=1000 --clear-groups "]
    } else {
        &[""]
    };
    for user in users {
        let (directory, path) = write_lab(LAB);
        make_readable(directory.path());
        let program = copy_programs(directory.path());
        let script = format!("cd /; exec {user}\"$3\" run --certify --format json \"$2\"");
        let output = machine_command(&script, &path, &program).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{user}: {output:?}");
        let results: Value = serde_json::from_slice(&output.stdout).unwrap();
        let certificate = &results["certificate"];
        assert_eq!(certificate["unchanged"], true, "{certificate:#}");
        assert_eq!(certificate["before"], certificate["after"]);
        assert_eq!(certificate["changes"], serde_json::json!({}));
        for part in [
            "links",
            "addresses",
            "routes",
            "rules",
            "neighbours",
            "sysctls",
            "mounts",
        ] {
            assert!(
                certificate["compared"][part].is_u64(),
                "{part}: {certificate:#}"
            );
        }
        // Root reads everything. For other users, the certificate lists what was not read, and why.
        let unread = certificate["unread"].as_object().unwrap();
        let names = Path::new("/proc/net/ip_tables_names");
        if user.is_empty() && geteuid().is_root() {
            assert!(unread.is_empty(), "{unread:?}");
        } else if geteuid().is_root() && names.exists() {
            let why = "only root may read /proc/net/ip_tables_names";
            assert_eq!(unread["iptables-legacy"], why);
        }
    }
}

#[test]
fn run_second_interrupt_skips_certificate() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (block, fifo) = (file("block"), file("fifo"));
    nix::unistd::mkfifo(fifo.as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    // A replacement for `ip`. Once the file `block` exists, it reports that it runs, and never
    // ends.
    let ip = file("ip");
    let text = format!(
        "#!/bin/sh\n[ ! -e {block} ] || {{ echo > {fifo}; exec sleep 1000; }}\nexec /run/ip \"$@\"\n"
    );
    fs::write(&ip, text).unwrap();
    make_readable(Path::new(&ip));
    let script = format!(
        "real=$(readlink -f \"$(command -v ip)\"); cp \"$real\" /run/ip; mount --bind {ip} \"$real\"\n\
         svclab=$1; shift 3; exec \"$svclab\" \"$@\""
    );
    let nowhere = Path::new("");
    let command = machine_command(&script, nowhere, nowhere);
    let run = waiting::start(command, &["--certify", "--format=json"]);
    let front = Pid::from_raw(child_of(&run).expect("a run"));
    fs::write(&block, "").unwrap();
    kill(front, Signal::SIGINT).unwrap();
    assert_eq!(fs::read_to_string(&fifo).unwrap(), "\n");
    kill(front, Signal::SIGINT).unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let results: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert!(results["certificate"].is_null(), "{results:#}");
}

fn make_readable(directory: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("permissions");
}

/// Runs a command in the namespaces of a process.
fn run_in_machine(process: i32, command: &str) {
    let mut nsenter = Command::new("nsenter");
    nsenter.args(["--target", &process.to_string(), "--net", "--mount"]);
    if !geteuid().is_root() {
        nsenter.args(["--user", "--preserve-credentials"]);
    }
    let output = nsenter
        .args(["sh", "-c", command])
        .output()
        .expect("nsenter starts");
    assert!(output.status.success(), "{command}: {output:?}");
}

/// Returns the only child of `unshare`.
fn child_of(unshare: &Child) -> Option<i32> {
    let id = unshare.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}
