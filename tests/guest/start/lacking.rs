//! Tests machines without the requirements of a guest, and faulty QEMU programs. Each problem is
//! reported in a line with a remedy and its exit code, and leaves nothing behind.

use std::fs;
use std::path::Path;

use serde_json::Value;
use svclab_runner::kernel::{Host, ModuleState};
use svclab_test_support::guests::new_cache;

use crate::SVCLAB;
use crate::command::{
    self, CommandResult, QEMU, assert_output_snapshot, installed, program_directory, run,
};
use crate::support::{QUICK, unpack_kernel};

/// A case that needs IPVS.
const IPVS: &str =
    "clb-hairpin/policy=Local,ingress=both,balancer=internal,rpFilter=0,byHand=nothing";

/// Runs a case in a guest with this `PATH`, and asserts the exit code.
fn run_expecting(cache: &Path, path: &Path, code: i32) -> CommandResult {
    run_kernel_expecting("6.12", cache, path, code)
}

/// Runs a case with another kernel, and asserts the exit code.
fn run_kernel_expecting(kernel: &str, cache: &Path, path: &Path, code: i32) -> CommandResult {
    let ended = run(cache, path, &["run", QUICK, "--kernel", kernel]);
    assert_eq!(ended.code, Some(code), "{}", ended.output);
    ended
}

#[test]
fn run_guest_without_qemu_names_package() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = directory.path().join("cache");
    assert_output_snapshot!(
        run_expecting(&cache, program_directory(&[], &[]).path(), 3),
        &cache
    );
    assert!(!cache.exists(), "the cache was created");
}

#[test]
fn run_guest_qemu_too_old_is_refused() {
    let (_directory, cache) = new_cache("6.12");
    let old = program_directory(&[], &[(QEMU, "echo 'QEMU emulator version 5.2.0'")]);
    assert_output_snapshot!(
        run_expecting(cache.directory(), old.path(), 3),
        cache.directory()
    );
}

#[test]
fn run_guest_other_program_as_qemu_is_refused() {
    let (_directory, cache) = new_cache("6.12");
    let odd = program_directory(&[], &[(QEMU, "echo who are you >&2; exit 1")]);
    assert_output_snapshot!(
        run_expecting(cache.directory(), odd.path(), 3),
        cache.directory()
    );
}

#[test]
fn run_guest_qemu_not_executable_is_refused() {
    let (_directory, cache) = new_cache("6.12");
    let path = program_directory(&[], &[]);
    fs::write(path.path().join(QEMU), "no program").expect("a file");
    assert_output_snapshot!(
        run_expecting(cache.directory(), path.path(), 3),
        cache.directory()
    );
}

#[test]
fn run_guest_qemu_exits_at_start_is_lost() {
    let (_directory, cache) = new_cache("6.12");
    let script = "case \"$*\" in *-version*) echo 'QEMU emulator version 9.0.0';; *) echo 'qemu: no such machine' >&2; exit 1;; esac";
    let path = program_directory(&[], &[(QEMU, script)]);
    assert_output_snapshot!(
        run_expecting(cache.directory(), path.path(), 5),
        cache.directory()
    );
}

#[test]
fn run_guest_kernel_panic_at_boot_is_lost() {
    let (_directory, cache) = new_cache("6.12");
    // Replaces the kernel's first program by a missing one.
    let script = format!(
        "for word do shift; case $word in *rdinit=*) word=\"${{word%%rdinit=*}}rdinit=/none\";; esac; set -- \"$@\" \"$word\"; done; exec {} \"$@\"",
        installed(QEMU).display()
    );
    let path = program_directory(&[], &[(QEMU, &script)]);
    assert_output_snapshot!(
        run_expecting(cache.directory(), path.path(), 5),
        cache.directory()
    );
}

#[test]
fn run_guest_hang_at_boot_is_lost() {
    let (_directory, cache) = new_cache("6.12");
    // Starts QEMU with a stopped processor.
    let script = format!("exec {} \"$@\" -S", installed(QEMU).display());
    let path = program_directory(&[], &[(QEMU, &script)]);
    assert_output_snapshot!(
        run_expecting(cache.directory(), path.path(), 5),
        cache.directory()
    );
}

#[test]
fn run_guest_kernel_without_agent_port_is_lost() {
    let (_kernel, image, _) = unpack_kernel("6.1", |module| !module.contains("virtio_console"));
    let (_directory, cache) = new_cache("6.12");
    let path = program_directory(&[QEMU], &[]);
    let image = image.to_string_lossy();
    let ended = run_kernel_expecting(&image, cache.directory(), path.path(), 5);
    assert!(ended.output.contains("find the port"), "{}", ended.output);
    assert_output_snapshot!(ended, cache.directory());
}

#[test]
fn run_guest_without_apt_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = directory.path().join("cache");
    assert_output_snapshot!(
        run_expecting(&cache, program_directory(&[QEMU], &[]).path(), 3),
        &cache
    );
}

#[test]
fn run_guest_apt_without_lists_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = directory.path().join("cache");
    let path = program_directory(&[QEMU], &[("apt-cache", "exit 0")]);
    assert_output_snapshot!(run_expecting(&cache, path.path(), 3), &cache);
}

/// Returns a script that prints kernel packages of Debian and Ubuntu like `apt-cache show`.
fn show_kernels(releases: [&str; 2]) -> String {
    let shown = releases
        .map(|release| format!("echo Package: linux-image-{release}; echo Version: 1; echo;"));
    shown.concat()
}

#[test]
fn run_guest_without_network_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = directory.path().join("cache");
    let list = show_kernels(["6.12.9+deb12-cloud-amd64", "6.12.9-9-generic"]);
    let offline = "echo 'E: Failed to fetch: Temporary failure resolving' >&2; exit 100";
    let path = program_directory(&[QEMU], &[("apt-cache", &list), ("apt-get", offline)]);
    assert_output_snapshot!(run_expecting(&cache, path.path(), 3), &cache);
}

#[test]
fn run_guest_series_unknown_to_apt_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = directory.path().join("cache");
    let list = show_kernels(["5.10.1-cloud-amd64", "5.10.1-9-generic"]);
    let path = program_directory(&[QEMU], &[("apt-cache", &list)]);
    assert_output_snapshot!(run_expecting(&cache, path.path(), 3), &cache);
}

#[test]
fn run_guest_kernel_without_module_is_refused() {
    let (_kernel, image, _) = unpack_kernel("6.12", |module| module != "xt_comment");
    let (_directory, cache) = new_cache("6.12");
    let path = program_directory(&[QEMU], &[]);
    let image = image.to_string_lossy();
    let ended = run_kernel_expecting(&image, cache.directory(), path.path(), 3);
    assert_output_snapshot!(ended, cache.directory());
    assert_eq!(cache.keys("snapshots"), [""; 0], "a guest was booted");
}

#[test]
fn run_lab_with_modules_missing_on_host_uses_guest() {
    let (_directory, cache) = new_cache("6.12");
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
    let has_ipvs = Host::new().modules().state("ip_vs") == ModuleState::Present;
    let is_guest_s = case["kernel"]
        .as_str()
        .is_some_and(|kernel| kernel.starts_with("6.12."));
    assert_eq!(is_guest_s, !has_ipvs, "{case:#}");
}

#[test]
fn run_guest_invalid_kernel_file_is_refused() {
    let (_directory, cache) = new_cache("6.12");
    let path = program_directory(&[QEMU], &[]);
    let run_with_kernel =
        |kernel: &str| run_kernel_expecting(kernel, cache.directory(), path.path(), 3);
    assert_output_snapshot!(run_with_kernel("/etc/passwd"), cache.directory());
    assert_output_snapshot!(run_with_kernel("/no/such/vmlinuz"), cache.directory());
    let (_kernel, image, _) = unpack_kernel("6.12", |_| false);
    assert_output_snapshot!(run_with_kernel(&image.to_string_lossy()), cache.directory());
}

#[test]
fn run_guest_unwritable_cache_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "").expect("a file");
    assert_output_snapshot!(
        run_expecting(&file, program_directory(&[QEMU], &[]).path(), 3),
        &file
    );
}

#[test]
fn run_guest_full_cache_is_reported() {
    let (_directory, cache) = new_cache("6.12");
    let place = tempfile::tempdir().expect("a directory");
    // The file system has space for a kernel, but not for its snapshot.
    let script = format!(
        "mount -t tmpfs -o size=40m,mode=755 tmpfs {place} && cp -r {kept}/kernels {kept}/notes {place}/ && exec \"$@\"",
        place = place.path().display(),
        kept = cache.directory().display(),
    );
    let path = program_directory(&[QEMU, "mount", "cp", "sh"], &[]);
    let unshare = installed("unshare");
    let child = command::command_on_machine(&unshare.to_string_lossy(), place.path(), path.path())
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
    let ended = command::wait_for_end(child, place.path());
    assert_eq!(ended.code, Some(3), "{}", ended.output);
    assert_output_snapshot!(ended, place.path());
}
