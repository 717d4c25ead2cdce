//! Tests machines without the requirements of a guest, and faulty QEMU programs. Each problem is
//! reported in a line with a remedy and its exit code, and leaves nothing behind.

use std::fs;
use std::path::Path;

use serde_json::Value;
use svclab_runner::kernel::{Host, State};

use super::SVCLAB;
use super::caches::own_cache;
use super::command::{self, Ended, QEMU, assert_said, installed, programs, run};
use super::support::{QUICK, own_kernel};

/// A case that needs IPVS.
const IPVS: &str =
    "clb-hairpin/policy=Local,ingress=both,balancer=internal,rpFilter=0,byHand=nothing";

/// Runs a case in a guest with this `PATH`, and asserts the exit code.
fn ends(cache: &Path, path: &Path, code: i32) -> Ended {
    ends_with("6.12", cache, path, code)
}

/// Runs a case with another kernel, and asserts the exit code.
fn ends_with(kernel: &str, cache: &Path, path: &Path, code: i32) -> Ended {
    let ended = run(cache, path, &["run", QUICK, "--kernel", kernel]);
    assert_eq!(ended.code, Some(code), "{}", ended.said);
    ended
}

#[test]
fn no_qemu() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = directory.path().join("cache");
    assert_said!(ends(&cache, programs(&[], &[]).path(), 3), &cache);
    assert!(!cache.exists(), "nothing is begun");
}

#[test]
fn a_qemu_that_is_too_old() {
    let (_directory, cache) = own_cache("6.12");
    let old = programs(&[], &[(QEMU, "echo 'QEMU emulator version 5.2.0'")]);
    assert_said!(ends(cache.directory(), old.path(), 3), cache.directory());
}

#[test]
fn a_qemu_that_is_none() {
    let (_directory, cache) = own_cache("6.12");
    let odd = programs(&[], &[(QEMU, "echo who are you >&2; exit 1")]);
    assert_said!(ends(cache.directory(), odd.path(), 3), cache.directory());
}

#[test]
fn a_qemu_that_cannot_be_started() {
    let (_directory, cache) = own_cache("6.12");
    let path = programs(&[], &[]);
    fs::write(path.path().join(QEMU), "no program").expect("a file");
    assert_said!(ends(cache.directory(), path.path(), 3), cache.directory());
}

#[test]
fn a_qemu_that_ends_at_once_is_a_loss() {
    let (_directory, cache) = own_cache("6.12");
    let script = "case \"$*\" in *-version*) echo 'QEMU emulator version 9.0.0';; *) echo 'qemu: no such machine' >&2; exit 1;; esac";
    let path = programs(&[], &[(QEMU, script)]);
    assert_said!(ends(cache.directory(), path.path(), 5), cache.directory());
}

#[test]
fn a_kernel_that_panics_at_boot_is_a_loss() {
    let (_directory, cache) = own_cache("6.12");
    // Replaces the kernel's first program by a missing one.
    let script = format!(
        "for word do shift; case $word in *rdinit=*) word=\"${{word%%rdinit=*}}rdinit=/none\";; esac; set -- \"$@\" \"$word\"; done; exec {} \"$@\"",
        installed(QEMU).display()
    );
    let path = programs(&[], &[(QEMU, &script)]);
    assert_said!(ends(cache.directory(), path.path(), 5), cache.directory());
}

#[test]
fn a_guest_that_hangs_at_boot_is_a_loss() {
    let (_directory, cache) = own_cache("6.12");
    // Starts QEMU with a stopped processor.
    let script = format!("exec {} \"$@\" -S", installed(QEMU).display());
    let path = programs(&[], &[(QEMU, &script)]);
    assert_said!(ends(cache.directory(), path.path(), 5), cache.directory());
}

#[test]
fn a_kernel_of_one_s_own_that_gives_the_agent_no_port_is_a_loss() {
    let (_kernel, image, _) = own_kernel("6.1", |module| !module.contains("virtio_console"));
    let (_directory, cache) = own_cache("6.12");
    let path = programs(&[QEMU], &[]);
    let image = image.to_string_lossy();
    let ended = ends_with(&image, cache.directory(), path.path(), 5);
    assert!(ended.said.contains("find the port"), "{}", ended.said);
    assert_said!(ended, cache.directory());
}

#[test]
fn no_apt() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = directory.path().join("cache");
    assert_said!(ends(&cache, programs(&[QEMU], &[]).path(), 3), &cache);
}

#[test]
fn an_apt_whose_lists_were_never_fetched() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = directory.path().join("cache");
    let path = programs(&[QEMU], &[("apt-cache", "exit 0")]);
    assert_said!(ends(&cache, path.path(), 3), &cache);
}

#[test]
fn no_network() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = directory.path().join("cache");
    let list = "case $1 in pkgnames) echo linux-image-6.12.9+deb12-cloud-amd64; echo linux-image-6.12.9-9-generic;; *) echo 'Version: 6.12.9-1';; esac";
    let offline = "echo 'E: Failed to fetch: Temporary failure resolving' >&2; exit 100";
    let path = programs(&[QEMU], &[("apt-cache", list), ("apt-get", offline)]);
    assert_said!(ends(&cache, path.path(), 3), &cache);
}

#[test]
fn a_series_that_apt_has_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = directory.path().join("cache");
    let list =
        "echo linux-image-5.10.1-cloud-amd64; echo linux-image-5.10.1-9-generic; echo Version: 1";
    let path = programs(&[QEMU], &[("apt-cache", list)]);
    assert_said!(ends(&cache, path.path(), 3), &cache);
}

#[test]
fn a_kernel_without_what_a_plan_needs() {
    let (_kernel, image, _) = own_kernel("6.12", |module| module != "xt_comment");
    let (_directory, cache) = own_cache("6.12");
    let path = programs(&[QEMU], &[]);
    let image = image.to_string_lossy();
    let ended = ends_with(&image, cache.directory(), path.path(), 3);
    assert_said!(ended, cache.directory());
    assert_eq!(cache.keys("snapshots"), [""; 0], "nothing was booted");
}

#[test]
fn lab_whose_modules_the_host_lacks_runs_in_a_guest() {
    let (_directory, cache) = own_cache("6.12");
    let output = command::svclab(
        cache.directory(),
        Path::new("/usr/sbin:/usr/bin:/sbin:/bin"),
    )
    .args(["run", IPVS, "--format", "json"])
    .output()
    .expect("the command starts");
    let results: Value = serde_json::from_slice(&output.stdout).expect("results");
    let case = &results["cases"][0];
    assert_eq!(case["result"], "pass", "{case:#}");
    let has_ipvs = Host::new().modules().state("ip_vs") == State::Present;
    let is_guest_s = case["kernel"]
        .as_str()
        .is_some_and(|kernel| kernel.starts_with("6.12."));
    assert_eq!(is_guest_s, !has_ipvs, "{case:#}");
}

#[test]
fn what_is_no_kernel() {
    let (_directory, cache) = own_cache("6.12");
    let path = programs(&[QEMU], &[]);
    let said = |kernel: &str| ends_with(kernel, cache.directory(), path.path(), 3);
    assert_said!(said("/etc/passwd"), cache.directory());
    assert_said!(said("/no/such/vmlinuz"), cache.directory());
    let (_kernel, image, _) = own_kernel("6.12", |_| false);
    assert_said!(said(&image.to_string_lossy()), cache.directory());
}

#[test]
fn a_cache_that_cannot_be_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "").expect("a file");
    assert_said!(ends(&file, programs(&[QEMU], &[]).path(), 3), &file);
}

#[test]
fn a_cache_that_is_full() {
    let (_directory, cache) = own_cache("6.12");
    let place = tempfile::tempdir().expect("a directory");
    // The file system has space for a kernel, but not for its snapshot.
    let script = format!(
        "mount -t tmpfs -o size=40m,mode=755 tmpfs {place} && cp -r {kept}/kernels {kept}/notes {place}/ && exec \"$@\"",
        place = place.path().display(),
        kept = cache.directory().display(),
    );
    let path = programs(&[QEMU, "mount", "cp", "sh"], &[]);
    let unshare = installed("unshare");
    let child = command::on_machine(&unshare.to_string_lossy(), place.path(), path.path())
        .args([
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            &script,
            "sh",
            SVCLAB,
        ])
        .args(["run", QUICK, "--kernel", "6.12"])
        .spawn()
        .expect("unshare starts");
    let ended = command::ended(child, place.path());
    assert_eq!(ended.code, Some(3), "{}", ended.said);
    assert_said!(ended, place.path());
}
