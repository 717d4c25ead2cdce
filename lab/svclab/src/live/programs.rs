//! Additional programs for guests of running labs, for inspection by the user.

use std::path::PathBuf;

use svclab_agent::find_program;

/// Names of the programs. Programs that this machine does not have are omitted.
const PROGRAM_NAMES: [&str; 36] = [
    "sh",
    "bash",
    "cat",
    "ls",
    "grep",
    "head",
    "tail",
    "wc",
    "sleep",
    "seq",
    "tr",
    "cut",
    "sort",
    "sed",
    "env",
    "true",
    "false",
    "dd",
    "ip",
    "ss",
    "tc",
    "bridge",
    "sysctl",
    "ping",
    "nc",
    "curl",
    "tcpdump",
    "conntrack",
    "ipvsadm",
    "echo",
    "iptables",
    "iptables-nft",
    "iptables-legacy",
    "ip6tables",
    "ip6tables-nft",
    "ip6tables-legacy",
];

/// Returns the paths of the programs on this machine. Scripts are omitted, because a guest may not
/// have their interpreters.
pub(crate) fn guest_programs() -> Vec<PathBuf> {
    let is_binary = |path: &PathBuf| {
        use std::io::Read as _;
        let mut magic = [0; 4];
        let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
        read.is_ok() && magic == *b"\x7fELF"
    };
    PROGRAM_NAMES
        .into_iter()
        .filter_map(find_program)
        .filter(is_binary)
        .collect()
}
