//! Whether the kernel ends processes for want of memory.

use std::fs;

/// How many processes the kernel has ended so far because memory ran out, the
/// machine's or a cgroup's (Linux v6.12, `mm/oom_kill.c`, `__oom_kill_process`);
/// none where it does not say.
pub fn ended_for_want() -> Option<u64> {
    count(&fs::read_to_string("/proc/vmstat").ok()?)
}

fn count(vmstat: &str) -> Option<u64> {
    let mut counts = vmstat.lines().filter_map(|line| line.split_once(' '));
    let (_, count) = counts.find(|(name, _)| *name == "oom_kill")?;
    count.trim().parse().ok()
}

/// What Rust's own library says before it ends a program that is given no memory
/// (`library/std/src/alloc.rs`, `default_alloc_error_hook`, 1.95).
const REFUSED: &str = "memory allocation of ";

/// How the kernel ends a process for want of memory, in the words for an agent's
/// end.
pub const KILLED: &str = "signal 9";

/// Whether a process was lost because there was no memory: it said so last, or was
/// killed while the kernel ended processes for want of it, since `before`.
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
        // Somebody killed it.
        assert!(!was_short(Some(u64::MAX), killed, ""));
        assert!(was_short(None, killed, ""));
        assert!(!was_short(None, aborted, ""));
    }
}
