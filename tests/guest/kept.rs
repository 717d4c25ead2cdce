//! Tests the guest cache with concurrent, interrupted and killed runs.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use svclab_runner::kernel::guest::SNAPSHOTS;

use super::caches::own_cache;
use super::command::{QEMU, Telling, assert_said, programs, run};
use super::guests::{AGENT, block_on};
use super::support::{QUICK, guest_in, guest_of, own_kernel};
use svclab_runner::kernel::guest::{Cache, Wanted};

/// Arguments of a run whose probes wait for packets that never arrive.
const WAITING: [&str; 6] = [
    "run",
    "canal-stale-rule/stale=present,rpFilter=1,underlay=passes",
    "--kernel",
    "6.12",
    "--max-wait",
    "120s",
];

#[test]
fn a_killed_run_leaves_the_other_its_cache_and_nothing_running() {
    let (_directory, cache) = own_cache("6.12");
    let path = programs(&[QEMU], &[]);
    let start = || {
        Telling::start(
            cache.directory(),
            path.path(),
            &["run", QUICK, "--kernel", "6.12"],
        )
    };
    let mut first = start();
    let (_, qemu) = first.qemu();
    let mut second = start();
    second.until("waiting for it");
    first.kill();
    qemu.is_gone();
    let ended = second.ended(cache.directory());
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(cache.keys(SNAPSHOTS).len(), 1);
}

#[test]
fn ctrl_c_ends_guests_too() {
    let (_directory, cache) = own_cache("6.12");
    let path = programs(&[QEMU], &[]);
    let mut booting = Telling::start(cache.directory(), path.path(), &WAITING);
    let (_, qemu) = booting.qemu();
    kill(Pid::from_raw(booting.id()), Signal::SIGINT).expect("it runs");
    let ended = booting.ended(cache.directory());
    assert_eq!(ended.code, Some(130), "{}", ended.said);
    qemu.is_gone();
    // The same while the probes run.
    let mut probing = Telling::start(cache.directory(), path.path(), &WAITING);
    probing.until("run its probes");
    kill(Pid::from_raw(probing.id()), Signal::SIGINT).expect("it runs");
    let ended = probing.ended(cache.directory());
    assert_eq!(ended.code, Some(130), "{}", ended.said);
}

#[test]
fn a_guest_that_is_lost_under_way_is_told() {
    let (_directory, cache) = own_cache("6.12");
    block_on(async { drop(guest_in(&cache, "6.12").await.start().await) });
    let path = programs(&[QEMU], &[]);
    let lost_by = |signal| {
        let mut run = Telling::start(cache.directory(), path.path(), &WAITING);
        let (process, qemu) = run.qemu();
        run.until("run its probes");
        kill(Pid::from_raw(process), signal).expect("it runs");
        let ended = run.ended(cache.directory());
        qemu.is_gone();
        assert_eq!(ended.code, Some(5), "{}", ended.said);
        ended
    };
    assert_said!(lost_by(Signal::SIGKILL), cache.directory());
    // A stopped guest sends nothing any more.
    assert_said!(lost_by(Signal::SIGSTOP), cache.directory());
}

#[test]
fn kernels_are_listed_and_removed_with_their_snapshots() {
    let (_directory, cache) = own_cache("6.12");
    let path = programs(&[QEMU], &[]);
    let kernel = |words: &[&str], code: i32| {
        let words: Vec<&str> = ["kernel"].iter().chain(words).copied().collect();
        let ended = run(cache.directory(), path.path(), &words);
        assert_eq!(ended.code, Some(code), "{}", ended.said);
        ended
    };
    let said = kernel(&["path", "6.12"], 0).said;
    assert!(Path::new(said.trim()).is_file(), "{said}");
    assert_said!(kernel(&["path"], 0), cache.directory());
    let kept = kernel(&["list"], 0).said;
    assert!(
        kept.contains(" kept, ") && kept.contains(" linux-image-6.12."),
        "{kept}"
    );
    assert!(!kept.contains("snapshot"), "{kept}");
    block_on(async { drop(guest_in(&cache, "6.12").await.start().await) });
    let kept = kernel(&["list"], 0).said;
    assert!(kept.contains(", 1 snapshot "), "{kept}");
    assert_said!(kernel(&["rm", "6.7"], 3), cache.directory());
    assert_said!(kernel(&["rm", "6.12"], 0), cache.directory());
    assert_eq!(cache.keys("kernels"), [""; 0]);
    assert_eq!(cache.keys(SNAPSHOTS), [""; 0]);
    assert_said!(kernel(&["path", "6.12"], 3), cache.directory());
    assert_said!(kernel(&["rm", "6.12"], 3), cache.directory());
    // The cache has no kernel, and apt is missing.
    assert_said!(kernel(&["list"], 3), cache.directory());
    assert_said!(kernel(&["fetch", "6.12"], 3), cache.directory());
}

/// Creates an apt with one kernel, the 6.12 kernel of the distribution.
fn apt() -> (tempfile::TempDir, tempfile::TempDir) {
    let (tree, _, release) = own_kernel("6.12", |_| true);
    let show = format!(
        "case $1 in pkgnames) echo linux-image-{release};; *) case $* in *linux-image-{release}) echo Version: 1;; esac;; esac"
    );
    let unpack = format!("cp -r {0}/boot {0}/lib \"$3\"", tree.path().display());
    let path = programs(
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
fn kernels_are_fetched_once_and_again_when_they_are_damaged() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let cache = Cache::open(directory.path().join("cache")).expect("a cache");
    let (_tree, path) = apt();
    let kernel = |words: &[&str]| {
        let ended = run(cache.directory(), path.path(), words);
        assert_eq!(ended.code, Some(0), "{}", ended.said);
        ended.said
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
            .expect("it is kept")
    };
    let first = made();
    kernel(&["kernel", "fetch", "6.12"]);
    assert_eq!(made(), first, "what is whole is not fetched again");
    let mut bytes = fs::read(image).expect("a kernel");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(image, bytes).expect("it can be written");
    let damaged = made();
    kernel(&["kernel", "fetch", "6.12"]);
    assert!(made() > damaged);
}

#[test]
fn another_svclab_makes_a_snapshot_of_its_own_and_old_ones_are_removed() {
    let (directory, cache) = own_cache("6.12");
    let wanted = Wanted::Series("6.12".to_owned());
    let mut seen = Vec::new();
    for build in 0..5 {
        // Each copy of the program has another byte, so it counts as another build.
        let program = directory.path().join(format!("svclab-{build}"));
        let mut bytes = fs::read(AGENT).expect("the program");
        let greeting = b"svclab agent: ";
        let at = bytes
            .windows(greeting.len())
            .position(|window| window == greeting)
            .expect("it says who it is");
        bytes[at] = b'0' + build;
        fs::write(&program, bytes).expect("it can be written");
        block_on(async {
            let guest = guest_of(&cache, &wanted, &program).await;
            drop(guest.start().await.expect("a guest"));
        });
        let keys = cache.keys(SNAPSHOTS);
        assert!(keys.iter().any(|key| !seen.contains(key)), "{keys:?}");
        seen.extend(keys.iter().cloned());
        assert!(keys.len() <= 3, "{keys:?}");
    }
    assert_eq!(cache.keys(SNAPSHOTS).len(), 3);
}
