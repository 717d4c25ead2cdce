//! Detects whether the kernel killed processes because memory ran out.

use std::fs;

/// Returns the number of processes that the kernel has killed because the machine or a cgroup ran
/// out of memory (Linux v6.12, `mm/oom_kill.c`, `__oom_kill_process`). `None` if the kernel does
/// not report the number.
pub fn ended_for_want() -> Option<u64> {
    count(&fs::read_to_string("/proc/vmstat").ok()?)
}

fn count(vmstat: &str) -> Option<u64> {
    let mut counts = vmstat.lines().filter_map(|line| line.split_once(' '));
    let (_, count) = counts.find(|(name, _)| *name == "oom_kill")?;
    count.trim().parse().ok()
}

/// Message of Rust's standard library before it aborts a program whose memory allocation failed
/// (`library/std/src/alloc.rs`, `default_alloc_error_hook`, 1.95).
const REFUSED: &str = "memory allocation of ";

/// Text in the description of an agent's end if the kernel killed the agent because memory ran out.
pub const KILLED: &str = "signal 9";

/// Whether a process was lost because memory ran out. Either its last message reported this, or it
/// was killed and the kernel has killed processes for lack of memory since `before`.
pub fn was_short(before: Option<u64>, how: &str, said: &str) -> bool {
    said.contains(REFUSED) || (how.contains(KILLED) && ended_for_want() > before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_count_is_read() {
        assert_eq!(count("pgfault 7\noom_kill 3\ndrop_pagecache 0\n"), Some(3));
        assert_eq!(count("pgfault 7\n"), None);
        assert!(ended_for_want().is_some());
    }

    #[test]
    fn only_what_ran_out_is_a_shortage() {
        let now = ended_for_want();
        let (aborted, killed) = ("it was ended by signal 6", "it was ended by signal 9");
        let said = "memory allocation of 64 bytes failed";
        assert!(was_short(now, aborted, said));
        assert!(!was_short(
            now,
            aborted,
            "svclab agent: it was told nonsense"
        ));
        // Killed for another reason.
        assert!(!was_short(Some(u64::MAX), killed, ""));
        assert!(was_short(None, killed, ""));
        assert!(!was_short(None, aborted, ""));
    }
}
