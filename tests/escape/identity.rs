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

/// A process's rights, a line each; `process` as in `/proc`.
pub fn rights(process: &str) -> Vec<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let rights = RIGHTS.iter();
    let rights = rights.map(|right| {
        let line = status
            .lines()
            .find(|line| line.split(':').next() == Some(right));
        line.unwrap_or(right)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    });
    rights.collect()
}

/// A process's namespaces, a line each. From inside nobody sees those of the agent.
pub fn namespaces(process: &str) -> Vec<String> {
    let namespaces = NAMESPACES.iter().map(|name| {
        let leads_to = fs::read_link(format!("/proc/{process}/ns/{name}"));
        format!("{name} {:?}", leads_to.ok())
    });
    namespaces.collect()
}
