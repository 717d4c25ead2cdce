//! Lists child processes, and finds the agent among them.

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
fn children_of_thread(process: u32, thread: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{thread}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace()
        .filter_map(|child| child.parse().ok())
        .collect()
}

/// Returns the process ID of the agent itself: PID 1 of the PID namespace that `process` or a
/// descendant of it created.
pub(crate) fn find_agent_process(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    if is_namespace_init(&status) {
        return Some(process);
    }
    // Without the children of other threads, which can be other programs.
    children_of_thread(process, process)
        .into_iter()
        .find_map(find_agent_process)
}

/// Whether a process is PID 1 of a PID namespace below that of the caller, by its `status` file.
fn is_namespace_init(status: &str) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .map(|pids| pids.split_whitespace().collect::<Vec<_>>())
        .is_some_and(|pids| pids.len() > 1 && pids.last() == Some(&"1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_namespace_init_agent_is_pid_1_below() {
        assert!(is_namespace_init("Name:\tsvclab\nNSpid:\t4711\t1\n"));
        assert!(!is_namespace_init("Name:\tsvclab\nNSpid:\t4711\n"));
        assert!(!is_namespace_init("Name:\tsvclab\nNSpid:\t1\n"));
        assert!(!is_namespace_init("Name:\tiptables\nNSpid:\t4712\t2\n"));
    }
}
