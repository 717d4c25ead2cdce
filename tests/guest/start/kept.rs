//! Tests the guest cache with concurrent, interrupted and killed runs.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use svclab_runner::kernel::guest::SNAPSHOTS;

use crate::command::{LoggedCommand, QEMU, assert_output_snapshot, program_directory, run};
use crate::support::{QUICK, guest_in, guest_with_program, unpack_kernel};
use svclab_runner::kernel::guest::{Cache, KernelRequest};
use svclab_test_support::block_on;
use svclab_test_support::guests::new_cache;
use svclab_test_support::programs::agent;

/// Arguments of a run whose probes wait for packets that never arrive.
const WAITING_RUN: [&str; 6] = [
    "run",
    "canal-stale-rule/stale=present,rpFilter=1,underlay=passes",
    "--kernel",
    "6.12",
    "--max-wait",
    "120s",
];

#[test]
fn run_killed_while_other_waits_lets_other_pass() {
    let (_directory, cache) = new_cache("6.12");
    let path = program_directory(&[QEMU], &[]);
    let start = || {
        LoggedCommand::start(
            cache.directory(),
            path.path(),
            &["run", QUICK, "--kernel", "6.12"],
        )
    };
    let mut first = start();
    let (_, qemu) = first.wait_for_qemu();
    let mut second = start();
    second.read_until("waiting for it");
    first.kill();
    qemu.wait_for_end();
    let ended = second.wait_for_end(cache.directory());
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    assert_eq!(cache.keys(SNAPSHOTS).len(), 1);
}

#[test]
fn run_ctrl_c_ends_guests() {
    let (_directory, cache) = new_cache("6.12");
    let path = program_directory(&[QEMU], &[]);
    let mut booting = LoggedCommand::start(cache.directory(), path.path(), &WAITING_RUN);
    let (_, qemu) = booting.wait_for_qemu();
    kill(Pid::from_raw(booting.id()), Signal::SIGINT).expect("the process runs");
    let ended = booting.wait_for_end(cache.directory());
    assert_eq!(ended.code, Some(130), "{}", ended.output);
    qemu.wait_for_end();
    // The same while the probes run.
    let mut probing = LoggedCommand::start(cache.directory(), path.path(), &WAITING_RUN);
    probing.read_until("run its probes");
    kill(Pid::from_raw(probing.id()), Signal::SIGINT).expect("the process runs");
    let ended = probing.wait_for_end(cache.directory());
    assert_eq!(ended.code, Some(130), "{}", ended.output);
}

#[test]
fn guest_killed_or_stopped_during_run_is_reported() {
    let (_directory, cache) = new_cache("6.12");
    block_on(async { drop(guest_in(&cache, "6.12").await.start().await) });
    let path = program_directory(&[QEMU], &[]);
    let lost_by = |signal| {
        let mut run = LoggedCommand::start(cache.directory(), path.path(), &WAITING_RUN);
        let (process, qemu) = run.wait_for_qemu();
        run.read_until("run its probes");
        kill(Pid::from_raw(process), signal).expect("the process runs");
        let ended = run.wait_for_end(cache.directory());
        qemu.wait_for_end();
        assert_eq!(ended.code, Some(5), "{}", ended.output);
        ended
    };
    assert_output_snapshot!(lost_by(Signal::SIGKILL), cache.directory());
    // A stopped guest sends nothing any more.
    assert_output_snapshot!(lost_by(Signal::SIGSTOP), cache.directory());
}

#[test]
fn kernel_list_and_rm_include_snapshots() {
    let (_directory, cache) = new_cache("6.12");
    let path = program_directory(&[QEMU], &[]);
    let kernel = |words: &[&str], code: i32| {
        let words: Vec<&str> = ["kernel"].iter().chain(words).copied().collect();
        let ended = run(cache.directory(), path.path(), &words);
        assert_eq!(ended.code, Some(code), "{}", ended.output);
        ended
    };
    let kernel_path = kernel(&["path", "6.12"], 0).output;
    assert!(Path::new(kernel_path.trim()).is_file(), "{kernel_path}");
    assert_output_snapshot!(kernel(&["path"], 0), cache.directory());
    let kept = kernel(&["list"], 0).output;
    assert!(
        kept.contains(" cached, ") && kept.contains(" linux-image-6.12."),
        "{kept}"
    );
    assert!(!kept.contains("snapshot"), "{kept}");
    block_on(async { drop(guest_in(&cache, "6.12").await.start().await) });
    let kept = kernel(&["list"], 0).output;
    assert!(kept.contains(", 1 snapshot "), "{kept}");
    assert_output_snapshot!(kernel(&["rm", "6.7"], 3), cache.directory());
    assert_output_snapshot!(kernel(&["rm", "6.12"], 0), cache.directory());
    assert_eq!(cache.keys("kernels"), [""; 0]);
    assert_eq!(cache.keys(SNAPSHOTS), [""; 0]);
    assert_output_snapshot!(kernel(&["path", "6.12"], 3), cache.directory());
    assert_output_snapshot!(kernel(&["rm", "6.12"], 3), cache.directory());
    // The cache has no kernel, and apt is missing.
    assert_output_snapshot!(kernel(&["list"], 3), cache.directory());
    assert_output_snapshot!(kernel(&["fetch", "6.12"], 3), cache.directory());
}

/// Creates an apt with one kernel, the 6.12 kernel of the distribution.
fn fake_apt() -> (tempfile::TempDir, tempfile::TempDir) {
    let (tree, _, release) = unpack_kernel("6.12", |_| true);
    let show = format!("echo Package: linux-image-{release}; echo Version: 1");
    let unpack = format!("cp -r {0}/boot {0}/lib \"$3\"", tree.path().display());
    let path = program_directory(
        &[QEMU, "cp", "touch"],
        &[
            ("apt-cache", &show),
            ("apt-get", "touch kernel.deb"),
            ("dpkg-deb", &unpack),
        ],
    );
    (tree, path)
}

#[test]
fn kernel_damaged_is_fetched_again() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let cache = Cache::open(directory.path().join("cache")).expect("a cache");
    let (_tree, path) = fake_apt();
    let kernel = |words: &[&str]| {
        let ended = run(cache.directory(), path.path(), words);
        assert_eq!(ended.code, Some(0), "{}", ended.output);
        ended.output
    };
    let listed = kernel(&["kernel", "list"]);
    assert!(listed.contains("can be fetched"), "{listed}");
    let fetched = kernel(&["kernel", "fetch"]);
    assert!(fetched.starts_with("6.12."), "{fetched}");
    let image = kernel(&["kernel", "path", "6.12"]);
    let image = Path::new(image.trim());
    let made = || {
        fs::metadata(image)
            .and_then(|found| found.modified())
            .expect("the kernel is cached")
    };
    let first = made();
    kernel(&["kernel", "fetch", "6.12"]);
    assert_eq!(made(), first, "a complete kernel was fetched again");
    let mut bytes = fs::read(image).expect("a kernel");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(image, bytes).expect("the file can be written");
    let damaged = made();
    kernel(&["kernel", "fetch", "6.12"]);
    assert!(made() > damaged);
}

#[test]
fn snapshot_per_build_is_created_and_old_ones_removed() {
    let (directory, cache) = new_cache("6.12");
    let wanted = KernelRequest::Series("6.12".to_owned());
    let mut snapshots = Vec::new();
    for build in 0..5 {
        // Each copy of the program has another byte, so it counts as another build.
        let program = directory.path().join(format!("svclab-{build}"));
        let mut bytes = fs::read(agent()).expect("the program");
        let greeting = b"svclab agent: ";
        let position = bytes
            .windows(greeting.len())
            .position(|window| window == greeting)
            .expect("the program contains its version");
        bytes[position] = b'0' + build;
        fs::write(&program, bytes).expect("the file can be written");
        block_on(async {
            let guest = guest_with_program(&cache, &wanted, &program).await;
            drop(guest.start().await.expect("a guest"));
        });
        let keys = cache.keys(SNAPSHOTS);
        assert!(keys.iter().any(|key| !snapshots.contains(key)), "{keys:?}");
        snapshots.extend(keys.iter().cloned());
        assert!(keys.len() <= 3, "{keys:?}");
    }
    assert_eq!(cache.keys(SNAPSHOTS).len(), 3);
}
