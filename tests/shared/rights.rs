//! What whoever runs the tests may do.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// Whether this process may ask the kernel what it drops: the machine's own root, with all
/// rights.
pub fn may_ask() -> bool {
    let namespace = fs::metadata("/proc/self/ns/user").expect("a namespace");
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = u64::from_str_radix(held.expect("a line").trim(), 16).expect("a number");
    // CAP_PERFMON and CAP_BPF, and the first user namespace.
    held >> 38 & 3 == 3 && namespace.ino() == 0xEFFF_FFFD
}
