//! Who a process is: that an intruder is what the agent is, and not less.

use std::fs;

/// What of a process's status says which rights it has.
const RIGHTS: [&str; 10] = [
    "Uid",
    "Gid",
    "Groups",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
];

/// The namespaces of a process, by the names in its `/proc/PID/ns`.
pub const NAMESPACES: [&str; 7] = ["mnt", "pid", "ipc", "uts", "cgroup", "user", "net"];

/// A process's rights and namespaces, a line each; `process` as in `/proc`.
pub fn of(process: &str) -> Vec<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let rights = RIGHTS.iter().map(|right| {
        let line = status
            .lines()
            .find(|line| line.split(':').next() == Some(right));
        line.unwrap_or(right)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    });
    let namespaces = NAMESPACES.iter().map(|name| {
        let leads_to = fs::read_link(format!("/proc/{process}/ns/{name}"));
        format!("{name} {:?}", leads_to.ok())
    });
    rights.chain(namespaces).collect()
}
