//! Classifies paths of files in bundles.

use svclab_ruleset::tool::Format;

/// Directories whose files are copies of files on a node's disk, or of pseudo files. They can look
/// like output: `/etc/sysconfig/iptables`, `/usr/lib/sysctl.d/50-default.conf`.
const DISK_DIRECTORIES: [&str; 9] = [
    "boot", "etc", "lib", "lib64", "proc", "run", "sys", "usr", "var_log",
];

/// Directories below `var` with such copies.
const VAR_DIRECTORIES: [&str; 3] = ["lib", "log", "run"];

/// Files of `scripts/collect-node` without state that affects packets.
const INFORMATIONAL_FILES: [&str; 5] = [
    "versions.txt",
    "missing.txt",
    "conntrack-S",
    "netstat",
    "snmp",
];

/// Returns the last component of a path. A colon separates an archive from a path inside it.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit(['/', ':']).next().unwrap_or_default()
}

/// Returns the format that the name of a file states. The file may be compressed.
pub(crate) fn named_format(path: &str) -> Option<Format> {
    let name = file_name(path);
    let packed = [".gz", ".xz", ".zst"]
        .iter()
        .find_map(|end| name.strip_suffix(end));
    Format::from_file_name(packed.unwrap_or(name))
}

/// Whether a file is a copy of a file on the node's disk. Such a file does not show the state of the
/// kernel.
pub(super) fn is_disk_copy(path: &str) -> bool {
    let mut directories: Vec<&str> = path.split(['/', ':']).collect();
    directories.pop();
    let is_copied = |name: &&str| DISK_DIRECTORIES.contains(name);
    directories.iter().any(is_copied)
        || directories
            .windows(2)
            .any(|pair| pair[0] == "var" && VAR_DIRECTORIES.contains(&pair[1]))
}

/// Whether a file is output of `ip netns exec`, as `sos` names it (sos 4.8,
/// `sos/report/plugins/networking.py`).
pub(super) fn is_other_namespace(path: &str) -> bool {
    path.contains("ip_netns_exec_")
}

pub(super) fn is_informational(name: &str) -> bool {
    INFORMATIONAL_FILES.contains(&name)
}
