//! Lists programs that print no state of a network, and programs that print state that svclab does
//! not read.

/// Programs without state of a network.
const SILENT_PROGRAMS: [&str; 78] = [
    "alias",
    "apk",
    "apt",
    "apt-get",
    "apt-cache",
    "arch",
    "cd",
    "chmod",
    "chown",
    "clear",
    "cp",
    "curl",
    "date",
    "df",
    "dig",
    "dmesg",
    "dnf",
    "dpkg",
    "du",
    "echo",
    "exit",
    "export",
    "free",
    "groups",
    "helm",
    "history",
    "hostname",
    "hostnamectl",
    "id",
    "iperf",
    "iperf3",
    "jobs",
    "journalctl",
    "kill",
    "last",
    "logout",
    "ls",
    "lsblk",
    "lsb_release",
    "lscpu",
    "lsmod",
    "lsns",
    "lspci",
    "man",
    "mkdir",
    "modinfo",
    "mount",
    "mtr",
    "mv",
    "nproc",
    "nslookup",
    "ping",
    "ping6",
    "pidof",
    "printf",
    "ps",
    "pstree",
    "pwd",
    "reset",
    "rm",
    "rpm",
    "script",
    "set",
    "sleep",
    "stty",
    "systemctl",
    "tcpdump",
    "telnet",
    "top",
    "touch",
    "traceroute",
    "true",
    "uname",
    "uptime",
    "vmstat",
    "wget",
    "which",
    "whoami",
];

/// Programs that print state of a network that svclab does not read.
const NETWORK_PROGRAMS: [&str; 27] = [
    "arp",
    "arptables",
    "arptables-save",
    "bpftool",
    "brctl",
    "bridge",
    "calicoctl",
    "cilium",
    "conntrack",
    "devlink",
    "ebtables",
    "ebtables-save",
    "ethtool",
    "ip",
    "ipset",
    "ipvsadm",
    "iw",
    "netstat",
    "networkctl",
    "nft",
    "nmcli",
    "ovs-dpctl",
    "ovs-ofctl",
    "ovs-vsctl",
    "route",
    "tc",
    "wg",
];

/// Directories with files that are not state of the kernel.
const DISK_DIRECTORIES: [&str; 5] = ["/boot/", "/etc/", "/home/", "/usr/", "/var/"];

/// Programs that show files.
const FILE_PROGRAMS: [&str; 5] = ["cat", "head", "less", "more", "tail"];

/// Verbs that change state and print nothing.
const CHANGES: [&str; 10] = [
    "add", "append", "change", "delete", "del", "exec", "flush", "replace", "set", "up",
];

/// Extensions of files that no program prints state of the kernel to.
const SILENT_EXTENSIONS: [&str; 19] = [
    "cfg", "conf", "conflist", "crt", "err", "htm", "html", "ini", "key", "log", "pcap", "pcapng",
    "pem", "png", "service", "sh", "toml", "yaml", "yml",
];

/// Names of files without state of a network, without extensions.
const SILENT_NAMES: [&str; 15] = [
    "core",
    "cpuinfo",
    "license",
    "manifest",
    "meminfo",
    "messages",
    "os-release",
    "packages",
    "pkglist",
    "readme",
    "resolv",
    "syslog",
    "uid",
    "version",
    "versions",
];

/// Whether a command prints no state of a network.
pub(super) fn is_silent(name: &str, arguments: &[&str]) -> bool {
    let mut files = arguments.iter().filter(|word| !word.starts_with('-'));
    if FILE_PROGRAMS.contains(&name) {
        let is_on_disk = |file: &&str| {
            DISK_DIRECTORIES
                .iter()
                .any(|directory| file.starts_with(directory))
        };
        return arguments.iter().any(|word| word.starts_with('/')) && files.all(is_on_disk);
    }
    SILENT_PROGRAMS.contains(&name)
        || (name == "conntrack" && arguments.iter().any(|word| is_count_option(word)))
        || (is_network_program(name) && files.next().is_some_and(|verb| is_change(verb)))
}

/// Whether an option of `conntrack` prints statistics, or deletes entries.
fn is_count_option(word: &str) -> bool {
    matches!(word, "-S" | "--stats" | "-C" | "--count" | "-D" | "-F")
}

/// Whether a verb changes state.
pub(super) fn is_change(verb: &str) -> bool {
    CHANGES.contains(&verb)
}

/// Whether a program prints state of a network.
pub(super) fn is_network_program(name: &str) -> bool {
    NETWORK_PROGRAMS.contains(&name)
}

/// Whether the name of a file shows that the file has no state of a network: a log, a
/// configuration file, or output of a program such as `ps`.
pub(super) fn is_silent_file(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let (stem, extension) = name.split_once('.').unwrap_or((&name, ""));
    let is_extension = |own: &str| SILENT_EXTENSIONS.contains(&own);
    let program = stem.split(['_', '-']).next().unwrap_or_default();
    extension.split('.').any(is_extension)
        || SILENT_NAMES.contains(&stem)
        || SILENT_PROGRAMS.contains(&program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_without_network_state_is_known_by_name() {
        for name in [
            "kubelet.log",
            "syslog.1",
            "README.md",
            "ps-auxfw.md",
            "versions.txt",
            "10-aws.conflist",
            "uname_-a",
        ] {
            assert!(is_silent_file(name), "{name}");
        }
        for name in [
            "ip-nexthop",
            "rules.txt",
            "ip-nexthop.md",
            "wg_show",
            "ss.txt",
        ] {
            assert!(!is_silent_file(name), "{name}");
        }
    }
}
