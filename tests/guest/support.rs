//! Caches and machines for tests of guests, and the command run on them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use svclab::kernel::guest::{Cache, Deadlines, Guest, KERNELS, Wanted};

use super::guests::{SVCLAB, block_on, guest};

/// The series of kernels that tests boot.
pub const SERIES: [&str; 2] = ["6.1", "6.12"];

/// A cache of a test's own that has the kernel of a series and no snapshot.
pub fn own_cache(series: &str) -> (tempfile::TempDir, Cache) {
    let kernel = block_on(guest(series)).kernel().directory.clone();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let cache = Cache::open(directory.path().join("cache")).expect("a cache");
    let place = cache.place(
        KERNELS,
        kernel
            .file_name()
            .and_then(OsStr::to_str)
            .expect("it is as the test made it"),
    );
    fs::create_dir_all(&place).expect("it is as the test made it");
    for file in fs::read_dir(&kernel).expect("it is as the test made it") {
        let file = file.expect("it is as the test made it");
        fs::copy(file.path(), place.join(file.file_name())).expect("it is as the test made it");
    }
    (directory, cache)
}

/// A guest of that series from another cache.
pub async fn guest_in(cache: &Cache, series: &str) -> Guest {
    Guest::with_agent(
        cache.clone(),
        &Wanted::Series(series.to_owned()),
        PathBuf::from(SVCLAB),
    )
    .await
    .expect("a kernel")
}

/// Deadlines for guests that are not to come up.
pub fn impatient() -> Deadlines {
    Deadlines {
        boot: Duration::from_secs(20),
        silence: Duration::from_secs(2),
        ..Deadlines::default()
    }
}

/// A case that takes a second: nothing in it times out.
pub const QUICK: &str = "canal-stale-rule/stale=removed,rpFilter=1,underlay=passes";

/// The command, with a cache and with the programs of `path`.
pub fn svclab(cache: &Path, path: &Path) -> Command {
    let mut command = Command::new(SVCLAB);
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_clear()
        .env("NO_COLOR", "1")
        .env("SVCLAB_CACHE", cache)
        .env("PATH", path);
    command
}

/// What the command ended with and said.
pub fn ended(output: &Output) -> (Option<i32>, String) {
    let said = [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat();
    (output.status.code(), said)
}

/// A directory of programs: links to real ones, and scripts.
pub fn programs(real: &[&str], scripts: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("it is as the test made it");
    for name in real {
        let found =
            std::env::split_paths(&std::env::var_os("PATH").expect("it is as the test made it"))
                .map(|directory| directory.join(name))
                .find(|path| path.is_file())
                .unwrap_or_else(|| panic!("{name} is not installed"));
        symlink(found, directory.path().join(name)).expect("it is as the test made it");
    }
    for (name, text) in scripts {
        use std::os::unix::fs::PermissionsExt as _;
        let path = directory.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("it is as the test made it");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .expect("it is as the test made it");
    }
    directory
}

/// The processes below one.
pub fn below(process: u32) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            found.insert(child.parse().expect("it is as the test made it"));
            found.extend(below(child.parse().expect("it is as the test made it")));
        }
    }
    found
}

/// Whether a process is QEMU, on its way or running.
pub fn is_qemu(process: i32) -> bool {
    fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.starts_with("qemu"))
}

/// Waits until something is so, for a minute at most.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_mins(1), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
