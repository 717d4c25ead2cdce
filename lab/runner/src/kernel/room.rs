//! Determines the memory that a kernel has for labs.

use std::fs;

use super::guest::MEMORY;

/// Memory in KiB that a guest needs for its kernel, its programs and the agent, and for the
/// programs that load rules.
const GUESTS_OWN: u64 = 112 << 10;

/// Name of a guest in messages.
pub const GUEST: &str = "a guest";

/// Error of a plan that needs more memory than a kernel has for labs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the lab takes some {} MiB of memory, and {} has {} MiB for labs", needs >> 10, place, has >> 10)]
pub struct NoRoom {
    /// Kernel without enough memory: "this machine" or "a guest".
    pub place: &'static str,
    /// Memory that the plan needs, in KiB.
    pub needs: u64,
    /// Memory for labs, in KiB.
    pub has: u64,
}

impl NoRoom {
    /// Returns the help text for the error.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        if self.place == GUEST {
            "give the lab fewer nodes and pods, or run it with --kernel host where the host can"
        } else {
            "give this machine more memory, or the lab fewer nodes and pods"
        }
    }
}

/// Returns the memory that this host has for labs, in KiB: 3/4 of the available memory. `u64::MAX`
/// if the host does not report its memory.
pub fn of_host() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = available(&machine);
    let group = of_group();
    let least = machine.into_iter().chain(group).min();
    least.map_or(u64::MAX, |available| available / 4 * 3)
}

/// Returns the memory that a guest has for labs, in KiB. `more` is the additional memory of the
/// guest, in MiB.
pub fn of_guest(more: u32) -> u64 {
    u64::from(MEMORY + more) * 1024 - GUESTS_OWN
}

/// Parses `MemAvailable` of `/proc/meminfo`, in KiB.
fn available(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the memory that the cgroup of this process and its ancestors may still use, in KiB
/// (Linux v6.12, `Documentation/admin-guide/cgroup-v2.rst`). `None` if no cgroup has a limit.
fn of_group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut group = std::path::Path::new("/sys/fs/cgroup").join(own.trim_start_matches('/'));
    let mut least = None;
    loop {
        let number = |name: &str| -> Option<u64> {
            let text = fs::read_to_string(group.join(name)).ok()?;
            text.trim().parse().ok()
        };
        if let (Some(max), Some(taken)) = (number("memory.max"), number("memory.current")) {
            let left = max.saturating_sub(taken) / 1024;
            least = Some(least.map_or(left, |least: u64| least.min(left)));
        }
        if !group.pop() || !group.starts_with("/sys/fs/cgroup") {
            return least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_had_is_read() {
        let meminfo =
            "MemTotal:       24689152 kB\nMemFree:         100 kB\nMemAvailable:   20480000 kB\n";
        assert_eq!(available(meminfo), Some(20_480_000));
        assert_eq!(available("nothing"), None);
    }

    #[test]
    fn what_there_is_too_little_of_is_said() {
        let error = NoRoom {
            place: "a guest",
            needs: 700 << 10,
            has: of_guest(0),
        };
        insta::assert_snapshot!(error, @"the lab takes some 700 MiB of memory, and a guest has 144 MiB for labs");
    }
}
