//! User, capabilities and namespaces of a process, to check that the intruder has the same as the
//! agent.

use std::fs;

/// Fields of `/proc/PID/status` that describe the privileges of a process.
const PRIVILEGE_FIELDS: [&str; 10] = [
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

/// Namespaces of a process, as named in `/proc/PID/ns`.
pub const NAMESPACES: [&str; 7] = ["mnt", "pid", "ipc", "uts", "cgroup", "user", "net"];

/// Returns the privileges of a process, one a line; `process` as in `/proc`.
pub fn privileges(process: &str) -> Vec<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let rights = PRIVILEGE_FIELDS.iter();
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

/// Returns the namespaces of a process, one a line. The namespaces of the agent are not visible
/// from inside.
pub fn namespaces(process: &str) -> Vec<String> {
    let namespaces = NAMESPACES.iter().map(|name| {
        let leads_to = fs::read_link(format!("/proc/{process}/ns/{name}"));
        format!("{name} {:?}", leads_to.ok())
    });
    namespaces.collect()
}
