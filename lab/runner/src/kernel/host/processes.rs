//! Lists child processes.

use std::fs;

/// Returns the children of all threads of a process.
pub(crate) fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let ids = |list: String| -> Vec<u32> {
        let ids = list.split_whitespace();
        ids.filter_map(|child| child.parse().ok()).collect()
    };
    lists.flat_map(ids).collect()
}
