//! Lists child processes.

use std::fs;

/// Returns the children of all threads of a process.
pub(crate) fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let threads = threads.into_iter().flatten().flatten();
    threads
        .filter_map(|thread| thread.file_name().to_str()?.parse().ok())
        .flat_map(|thread| children_of_thread(process, thread))
        .collect()
}

/// Returns the children that a thread of a process has started.
pub(super) fn children_of_thread(process: u32, thread: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{thread}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace()
        .filter_map(|child| child.parse().ok())
        .collect()
}
