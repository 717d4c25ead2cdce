//! Snapshots in the cache.

use std::fs;
use std::time::SystemTime;

use super::{STATE_FILE, SnapshotInfo};
use crate::kernel::guest::cache::{Cache, CacheEntry};

/// Kind of the cache entries of snapshots.
pub const SNAPSHOTS: &str = "snapshots";

/// Maximum number of snapshots of one kernel that are kept. Each build of svclab creates one.
const MAX_SNAPSHOTS: usize = 3;

/// Removes all but the latest snapshots of a kernel. A snapshot in use stays usable, because its
/// files are open. The snapshot that was just created is kept regardless of the clock, which may
/// have been set back since others were created.
pub(crate) fn prune(cache: &Cache, kernel: &str, new_key: &str) {
    let mut older: Vec<(SystemTime, String)> = snapshots_of_kernel(cache, kernel)
        .into_iter()
        .filter(|(key, _)| key != new_key)
        .filter_map(|(key, entry)| {
            let made = fs::metadata(entry.directory.join(STATE_FILE)).ok()?;
            Some((made.modified().ok()?, key))
        })
        .collect();
    older.sort();
    let excess = (older.len() + 1).saturating_sub(MAX_SNAPSHOTS);
    for (_, key) in older.into_iter().take(excess) {
        // A snapshot that cannot be removed now is removed another time.
        let _ = cache.remove(SNAPSHOTS, &key);
    }
}

/// Returns the snapshots of a kernel with their keys. `kernel` is the key of the kernel.
pub(crate) fn snapshots_of_kernel(
    cache: &Cache,
    kernel: &str,
) -> Vec<(String, CacheEntry<SnapshotInfo>)> {
    cache
        .keys(SNAPSHOTS)
        .into_iter()
        .filter_map(|key| {
            let entry: CacheEntry<SnapshotInfo> = cache.peek(SNAPSHOTS, &key)?;
            (entry.metadata.kernel == kernel).then_some((key, entry))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Stores a snapshot that is `days` days older than the machine's clock.
    fn store_snapshot(cache: &Cache, key: &str, days: u64) {
        let made = cache.new_entry_directory(SNAPSHOTS, key).unwrap();
        let state = fs::File::create(made.path().join(STATE_FILE)).unwrap();
        let now = state.metadata().unwrap().modified().unwrap();
        let then = now - Duration::from_secs(days * 86_400);
        state.set_modified(then).unwrap();
        let about = SnapshotInfo {
            release: "6.12.1".to_owned(),
            kernel: "6.12.1".to_owned(),
        };
        cache.store(SNAPSHOTS, key, made, about).unwrap();
    }

    #[test]
    fn prune_removes_oldest_and_keeps_new_snapshot() {
        for (days, left) in [
            ([4, 3, 2, 1, 0], ["c", "d", "new"]),
            // The clock was set back by 10 days before the last snapshot was created.
            ([4, 3, 2, 1, 10], ["c", "d", "new"]),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let cache = Cache::open(directory.path().to_owned()).unwrap();
            for (key, days) in ["a", "b", "c", "d", "new"].iter().zip(days) {
                store_snapshot(&cache, key, days);
            }
            prune(&cache, "6.12.1", "new");
            assert_eq!(cache.keys(SNAPSHOTS), left);
        }
    }
}
