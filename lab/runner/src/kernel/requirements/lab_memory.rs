//! Determines the memory that a kernel has for labs.

use std::fs;

use svclab_agent::memory;

/// Default memory of a guest, in MiB. The kernel and the agent need 96 MiB; the rest is for labs.
pub(crate) const DEFAULT_MEMORY_MIB: u32 = 256;

/// Memory in KiB that a guest needs for its kernel, its programs and the agent, and for the
/// programs that load rules.
const GUEST_OVERHEAD_KIB: u64 = 112 << 10;

/// Name of a guest in messages.
pub(crate) const GUEST_NAME: &str = "a guest";

/// Error of a plan that needs more memory than a kernel has for labs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lab needs about {} MiB of memory, but {} has {} MiB for labs",
    needed_kib >> 10, kernel, available_kib >> 10
)]
pub struct NotEnoughMemory {
    /// Kernel without enough memory: "this machine" or "a guest".
    pub kernel: &'static str,
    /// Memory that the plan needs, in KiB.
    pub needed_kib: u64,
    /// Memory for labs, in KiB.
    pub available_kib: u64,
}

impl NotEnoughMemory {
    /// Returns the help text for the error.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        if self.kernel == GUEST_NAME {
            "reduce the nodes and pods of the lab, or use --kernel host if the host can run it"
        } else {
            "add memory to this machine, or reduce the nodes and pods of the lab"
        }
    }
}

/// Returns the memory that this host has for labs, in KiB: 3/4 of the available memory. `u64::MAX`
/// if the host does not report its memory.
pub(crate) fn host_memory() -> u64 {
    let machine = memory::available_kib();
    let available_kib = machine.into_iter().chain(cgroup_memory()).min();
    available_kib.map_or(u64::MAX, |available| available / 4 * 3)
}

/// Returns the memory that a guest has for labs, in KiB. `additional_mib` is the
/// additional memory of the guest, in MiB.
pub(crate) fn guest_memory(additional_mib: u32) -> u64 {
    u64::from(DEFAULT_MEMORY_MIB + additional_mib) * 1024 - GUEST_OVERHEAD_KIB
}

/// Returns the memory that the cgroup of this process and its ancestors may still use, in KiB
/// (Linux v6.12, `Documentation/admin-guide/cgroup-v2.rst`). `None` if no cgroup has a limit.
fn cgroup_memory() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own_group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut group = std::path::Path::new("/sys/fs/cgroup").join(own_group.trim_start_matches('/'));
    let mut lowest = None;
    loop {
        let number = |name: &str| -> Option<u64> {
            let text = fs::read_to_string(group.join(name)).ok()?;
            text.trim().parse().ok()
        };
        if let (Some(max), Some(used)) = (number("memory.max"), number("memory.current")) {
            let left = max.saturating_sub(used) / 1024;
            lowest = Some(lowest.map_or(left, |least: u64| least.min(left)));
        }
        if !group.pop() || !group.starts_with("/sys/fs/cgroup") {
            return lowest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_enough_memory_message_has_both_sizes() {
        let error = NotEnoughMemory {
            kernel: "a guest",
            needed_kib: 700 << 10,
            available_kib: guest_memory(0),
        };
        insta::assert_snapshot!(error, @"the lab needs about 700 MiB of memory, but a guest has 144 MiB for labs");
    }
}
