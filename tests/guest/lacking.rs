//! Machines that lack what a guest needs: each is told in a line, with what to
//! do, and exit code 3.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::guests::SVCLAB;
use super::support::{QUICK, ended, own_cache, programs, svclab};

/// Runs a case in a guest where `PATH` is only this, and returns what was said.
fn refused(cache: &Path, path: &Path) -> String {
    let output = svclab(cache, path)
        .args(["run", QUICK, "--kernel", "6.12"])
        .output()
        .expect("it is as the test made it");
    let (code, said) = ended(&output);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("what to do: "), "{said}");
    said
}

const QEMU: &str = "qemu-system-x86_64";

#[test]
fn no_qemu() {
    let directory = tempfile::tempdir().expect("it is as the test made it");
    let said = refused(&directory.path().join("cache"), programs(&[], &[]).path());
    assert!(said.contains("which is not installed"), "{said}");
    assert!(said.contains("apt-get install"), "{said}");
}

#[test]
fn a_qemu_that_is_too_old_or_is_none() {
    let (_directory, cache) = own_cache("6.12");
    let old = programs(&[], &[(QEMU, "echo 'QEMU emulator version 5.2.0'")]);
    let said = refused(cache.directory(), old.path());
    assert!(
        said.contains("is QEMU 5.2.0; guests need 7.2 or newer"),
        "{said}"
    );
    let odd = programs(&[], &[(QEMU, "echo who are you >&2; exit 1")]);
    let said = refused(cache.directory(), odd.path());
    assert!(said.contains("does not say which QEMU it is"), "{said}");
}

#[test]
fn a_qemu_that_ends_at_once_is_a_loss() {
    let (_directory, cache) = own_cache("6.12");
    let script = "case \"$*\" in *-version*) echo 'QEMU emulator version 9.0.0';; *) echo 'qemu: no such machine' >&2; exit 1;; esac";
    let output = svclab(cache.directory(), programs(&[], &[(QEMU, script)]).path())
        .args(["run", QUICK, "--kernel", "6.12"])
        .output()
        .expect("it is as the test made it");
    let (code, said) = ended(&output);
    assert_eq!(code, Some(5), "{said}");
    assert!(
        said.contains("did not come up: QEMU ended with status 1")
            && said.contains("no such machine"),
        "{said}"
    );
}

#[test]
fn no_package_to_be_had() {
    let directory = tempfile::tempdir().expect("it is as the test made it");
    let cache = directory.path().join("cache");
    // No apt at all.
    let said = refused(&cache, programs(&[QEMU], &[]).path());
    assert!(said.contains("has no apt to get one with"), "{said}");
    // Lists that were never fetched.
    let said = refused(&cache, programs(&[QEMU], &[("apt-cache", "exit 0")]).path());
    assert!(said.contains("its lists may be empty"), "{said}");
    // No network.
    let list = "case $1 in pkgnames) echo linux-image-6.12.9+deb12-cloud-amd64;; *) echo 'Version: 6.12.9-1';; esac";
    let offline = "echo 'E: Failed to fetch: Temporary failure resolving' >&2; exit 100";
    let path = programs(&[QEMU], &[("apt-cache", list), ("apt-get", offline)]);
    let said = refused(&cache, path.path());
    assert!(said.contains("apt-get said: E: Failed to fetch"), "{said}");
    // A series that this distribution has not.
    let path = programs(
        &[QEMU],
        &[(
            "apt-cache",
            "echo linux-image-5.10.1-cloud-amd64; echo Version: 1",
        )],
    );
    let said = refused(&cache, path.path());
    assert!(
        said.contains("there is no guest kernel 6.12: apt has 5.10"),
        "{said}"
    );
    assert!(
        fs::read_dir(cache.join("making"))
            .expect("it is as the test made it")
            .next()
            .is_none()
    );
}

#[test]
fn a_cache_that_cannot_be_written() {
    let file = tempfile::NamedTempFile::new().expect("it is as the test made it");
    let said = refused(file.path(), programs(&[QEMU], &[]).path());
    assert!(said.contains("in the cache"), "{said}");
    assert!(said.contains("SVCLAB_CACHE"), "{said}");
}

#[test]
fn a_cache_that_is_full() {
    let (_directory, cache) = own_cache("6.12");
    let place = tempfile::tempdir().expect("it is as the test made it");
    // A kernel fits, its snapshot does not.
    let script = format!(
        "mount -t tmpfs -o size=40m tmpfs {place} && cp -r {kernels} {place}/kernels && exec {SVCLAB} run {QUICK} --kernel 6.12",
        place = place.path().display(),
        kernels = cache.directory().join("kernels").display(),
    );
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", &script])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("SVCLAB_CACHE", place.path())
        .env("NO_COLOR", "1")
        .output()
        .expect("it is as the test made it");
    let (code, said) = ended(&output);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert!(said.contains("make room"), "{said}");
}
