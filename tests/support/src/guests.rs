//! Guests for tests. All tests share the fetched kernels. Tests that damage nothing also share the
//! snapshots; others have private caches.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use svclab_runner::kernel::guest::{Cache, Guest, KERNELS, KernelRequest};

use crate::block_on;
use crate::programs::{agent, target_tmpdir};

/// Opens the cache that all tests share, also across processes.
pub fn shared_cache() -> Cache {
    Cache::open(target_tmpdir().join("guests")).expect("a cache")
}

/// Creates a guest of a kernel series from the shared cache.
pub async fn new_guest(series: &str) -> Guest {
    let kernel = KernelRequest::Series(series.to_owned());
    let guest = Guest::with_agent(shared_cache(), &kernel, agent());
    guest.await.expect("a kernel")
}
/// Creates a cache for one test, with the kernel of a series and no snapshot.
pub fn new_cache(series: &str) -> (tempfile::TempDir, Cache) {
    let kernel = block_on(new_guest(series)).kernel().directory.clone();
    let directory = tempfile::tempdir_in(target_tmpdir()).expect("a directory");
    let cache = Cache::open(directory.path().join("cache")).expect("a cache");
    let key = kernel.file_name().and_then(OsStr::to_str);
    let place = cache.entry_directory(KERNELS, key.expect("a kernel's name is text"));
    fs::create_dir_all(&place).expect("a directory");
    for file in fs::read_dir(&kernel).expect("a kernel's files") {
        let file = file.expect("a kernel's files");
        fs::copy(file.path(), place.join(file.file_name())).expect("the file can be copied");
    }
    // Copies the result of the KVM check, which otherwise runs again.
    let notes = shared_cache().directory().join("notes");
    let own_notes = cache.directory().join("notes");
    fs::create_dir_all(&own_notes).expect("a directory");
    for note in ["accel.json", "qemu.json"] {
        // Neither file exists before the first boot.
        let _ = fs::copy(notes.join(note), own_notes.join(note));
    }
    (directory, cache)
}

/// Asserts that no lock of the cache is held and no entry is incomplete.
pub fn assert_clean(directory: &Path) {
    if !directory.join("locks").is_dir() {
        return;
    }
    let cache = Cache::open(directory.to_owned()).expect("a cache");
    for lock in cache.keys("locks") {
        let (kind, key) = lock.split_once('-').expect("a kind and a key");
        let taken = cache.try_lock(kind, key).expect("a lock can be asked for");
        assert!(taken.is_some(), "{lock} is held");
    }
    assert_eq!(cache.keys("making"), [""; 0]);
}
