//! Detects whether the kernel killed processes because memory ran out.

use std::fs;

/// Returns the number of processes that the kernel has killed because the machine or a cgroup ran
/// out of memory (Linux v6.12, `mm/oom_kill.c`, `__oom_kill_process`). `None` if the kernel does
/// not report the number.
pub(crate) fn oom_kill_count() -> Option<u64> {
    parse_oom_kills(&fs::read_to_string("/proc/vmstat").ok()?)
}

fn parse_oom_kills(vmstat: &str) -> Option<u64> {
    let mut counts = vmstat.lines().filter_map(|line| line.split_once(' '));
    let (_, count) = counts.find(|(name, _)| *name == "oom_kill")?;
    count.trim().parse().ok()
}

/// Message of Rust's standard library before it aborts a program whose memory allocation failed
/// (`library/std/src/alloc.rs`, `default_alloc_error_hook`, 1.95).
const ALLOCATION_FAILED: &str = "memory allocation of ";

/// Text in the description of an agent's end if the kernel killed the agent because memory ran out.
pub(crate) const SIGKILL: &str = "signal 9";

/// Whether a process was lost because memory ran out. Either its last message reported this, or it
/// was killed and the kernel has killed processes for lack of memory since `before`.
pub(crate) fn is_out_of_memory(before: Option<u64>, cause: &str, stderr: &str) -> bool {
    stderr.contains(ALLOCATION_FAILED) || (cause.contains(SIGKILL) && oom_kill_count() > before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oom_kill_count_is_read_from_vmstat() {
        assert_eq!(
            parse_oom_kills("pgfault 7\noom_kill 3\ndrop_pagecache 0\n"),
            Some(3)
        );
        assert_eq!(parse_oom_kills("pgfault 7\n"), None);
        assert!(oom_kill_count().is_some());
    }

    #[test]
    fn is_out_of_memory_other_end_is_false() {
        let now = oom_kill_count();
        let (aborted, killed) = ("killed by signal 6", "killed by signal 9");
        let message = "memory allocation of 64 bytes failed";
        assert!(is_out_of_memory(now, aborted, message));
        assert!(!is_out_of_memory(
            now,
            aborted,
            "svclab agent: invalid request"
        ));
        // Killed for another reason.
        assert!(!is_out_of_memory(Some(u64::MAX), killed, ""));
        assert!(is_out_of_memory(None, killed, ""));
        assert!(!is_out_of_memory(None, aborted, ""));
    }
}
