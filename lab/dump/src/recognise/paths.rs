//! Classifies paths of files in bundles.

use super::Content;
use super::commands::Command;
use svclab_ruleset::Family;
use svclab_ruleset::tool::{DumpedBackend, Format};

/// Directories whose files are copies of files on a node's disk, or of pseudo files. They can look
/// like output: `/etc/sysconfig/iptables`, `/usr/lib/sysctl.d/50-default.conf`.
const DISK_DIRECTORIES: [&str; 9] = [
    "boot", "etc", "lib", "lib64", "proc", "run", "sys", "usr", "var_log",
];

/// Directories below `var` with such copies.
const VAR_DIRECTORIES: [&str; 3] = ["lib", "log", "run"];

/// Files of `scripts/collect-node` without state that affects packets.
const INFORMATIONAL_FILES: [&str; 4] = ["versions.txt", "conntrack-S", "netstat", "snmp"];

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

/// Whether the name of a file states IPv6: `ip6route.txt`, `ipv6rule`, `ip_-6_rule_list`.
pub(super) fn is_ipv6(path: &str) -> bool {
    let name = file_name(path);
    ["ip6", "ipv6", "-6", "_6"]
        .iter()
        .any(|mark| name.contains(mark))
}

/// Names of files of collectors, without marks and extensions. Only an empty file needs its name.
const COLLECTOR_NAMES: [(&str, Format); 6] = [
    (
        "iptablessave",
        Format::Rules(Family::V4, DumpedBackend::Default),
    ),
    (
        "ip6tablessave",
        Format::Rules(Family::V6, DumpedBackend::Default),
    ),
    ("nftruleset", Format::Nft),
    ("iproute", Format::Routes(Family::V4)),
    ("ip6route", Format::Routes(Family::V6)),
    ("ip6rule", Format::RoutingRules(Family::V6)),
];

/// Files whose collector runs a command that the name does not state: the default host collectors
/// of troubleshoot v0.133.0 (`examples/collect/host/default.yaml`).
const KNOWN_COMMANDS: [(&str, &str); 1] = [("nftables-list.txt", "nft list table filter")];

/// Returns the command that the name of a file states, if svclab reads its output. `None` for other
/// names.
pub(super) fn command(path: &str) -> Option<(String, Command)> {
    typed_command(path).filter(|(_, command)| command.content.is_some())
}

/// Returns the command that the name of a file states. `sos` names files by the command:
/// `ip_-6_rule_list` (sos 4.12.0, `sos/report/plugins/__init__.py`, `_mangle_command`). `None` for
/// other names.
pub(super) fn typed_command(path: &str) -> Option<(String, Command)> {
    let name = file_name(path);
    let known = KNOWN_COMMANDS.iter().find(|(known, _)| *known == name);
    let typed = known.map_or_else(
        || name.strip_suffix(".txt").unwrap_or(name).replace('_', " "),
        |(_, typed)| (*typed).to_owned(),
    );
    let command = Command::parse(&typed);
    typed.contains(' ').then_some((typed, command))
}

/// Returns the format that an empty file of a collector has, if the program can print nothing.
pub(super) fn empty_format(path: &str) -> Option<Format> {
    let format = if let Some((_, command)) = command(path) {
        match command.content {
            Some(Content::State(format)) if command.reduced_by.is_none() => Some(format),
            _ => None,
        }
    } else {
        collector_format(file_name(path))
    };
    format.filter(|format| !format.is_never_empty())
}

/// Returns the format of a file that a collector names.
fn collector_format(name: &str) -> Option<Format> {
    let name = name.strip_suffix(".txt").unwrap_or(name);
    let name = name.replace("ipv6", "ip6");
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let mut names = COLLECTOR_NAMES.iter();
    let found = names.find(|(known, _)| *known == letters);
    found.map(|(_, format)| *format)
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

/// Whether a file is output of `ip netns exec`, as `sos` names it (sos 4.12.0,
/// `sos/report/plugins/networking.py`).
pub(super) fn is_other_namespace(path: &str) -> bool {
    path.contains("ip_netns_exec_")
}

pub(super) fn is_informational(name: &str) -> bool {
    INFORMATIONAL_FILES.contains(&name)
}
