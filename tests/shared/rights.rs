//! Privileges of the user that runs the tests.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// Whether this process can receive the kernel's drop events. The process must be root of the
/// initial user namespace with all capabilities.
pub fn can_trace_drops() -> bool {
    let namespace = fs::metadata("/proc/self/ns/user").expect("a namespace");
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = u64::from_str_radix(held.expect("a line").trim(), 16).expect("a number");
    // CAP_PERFMON and CAP_BPF, in the initial user namespace.
    held >> 38 & 3 == 3 && namespace.ino() == 0xEFFF_FFFD
}
