//! Identifies the program that printed a file, from the file name or from the content.

mod detect;

use std::fmt;

use crate::Family;

/// Format of a file in a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Output of `iptables-save` or `ip6tables-save`. If both backends are in use, the legacy rules
    /// are the output of `iptables-legacy-save`.
    Rules(Family, DumpedBackend),
    /// Output of `ipset save`.
    Sets,
    /// Output of `nft list ruleset`.
    Nft,
    /// Output of `ipvsadm -Sn`, or of programs that print the same virtual servers.
    VirtualServers,
    /// Output of `ip addr`.
    Links,
    /// Output of `ip -d link`.
    LinkDetails,
    /// Output of `bridge -d link`.
    BridgePorts,
    /// Output of `bridge fdb`.
    Forwarding,
    /// Output of `ip neigh`.
    Neighbours,
    /// Output of `ip route`, for one table or for all tables (`table all`).
    Routes(Family),
    /// Output of `ip rule`.
    RoutingRules(Family),
    /// Output of `tc -d qdisc`.
    Qdiscs,
    /// Output of `tc class show` for each interface with classes.
    TrafficClasses,
    /// Output of `tc filter show` for each interface with filters.
    TrafficFilters,
    /// Output of `ip xfrm policy`.
    IpsecPolicies,
    /// Output of `conntrack -L`.
    Connections,
    /// Output of `sysctl -a`.
    Sysctls,
    /// Command line of kube-proxy, one argument per line.
    ProxyFlags,
    /// Configuration file of kube-proxy.
    ProxyConfiguration,
}

/// Backend of an iptables dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DumpedBackend {
    /// Backend of `iptables-save` on the node, or the only backend.
    Default,
    /// `iptables-legacy`, in addition to another backend.
    Legacy,
}

/// File names of each format, without the part before the last dot. svclab writes the first name.
const FILE_NAMES: [(Format, &[&str]); 23] = [
    (
        Format::Rules(Family::V4, DumpedBackend::Default),
        &["iptables-save", "iptables-nft-save", "iptables"],
    ),
    (
        Format::Rules(Family::V6, DumpedBackend::Default),
        &["ip6tables-save", "ip6tables-nft-save", "ip6tables"],
    ),
    (
        Format::Rules(Family::V4, DumpedBackend::Legacy),
        &["iptables-legacy-save"],
    ),
    (
        Format::Rules(Family::V6, DumpedBackend::Legacy),
        &["ip6tables-legacy-save"],
    ),
    (Format::Sets, &["ipset-save", "ipset"]),
    (Format::Nft, &["nft", "nft-list-ruleset", "nftables"]),
    (
        Format::VirtualServers,
        &["ipvsadm-Sn", "ipvsadm-sn", "ipvsadm", "proc-ip_vs"],
    ),
    (Format::Links, &["ip-addr", "ip-address", "ip-a"]),
    (Format::LinkDetails, &["ip-link", "ip-d-link"]),
    (Format::BridgePorts, &["bridge-link", "bridge-d-link"]),
    (Format::Forwarding, &["bridge-fdb", "bridge-fdb-show"]),
    (
        Format::Neighbours,
        &["ip-neigh", "ip-neighbour", "ip-neigh-show"],
    ),
    (
        Format::Routes(Family::V4),
        &["ip-route", "ip-4-route", "ip-route-table-all"],
    ),
    (
        Format::Routes(Family::V6),
        &["ip-6-route", "ip-6-route-table-all"],
    ),
    (Format::RoutingRules(Family::V4), &["ip-rule", "ip-4-rule"]),
    (Format::RoutingRules(Family::V6), &["ip-6-rule"]),
    (Format::Qdiscs, &["tc-qdisc", "tc-qdisc-show", "tc-d-qdisc"]),
    (Format::TrafficClasses, &["tc-class"]),
    (Format::TrafficFilters, &["tc-filter"]),
    (
        Format::IpsecPolicies,
        &["ip-xfrm-policy", "ip-s-xfrm-policy"],
    ),
    (Format::Connections, &["conntrack-L"]),
    (Format::ProxyFlags, &["kube-proxy-cmdline"]),
    (Format::ProxyConfiguration, &["kube-proxy-config"]),
];

/// File names of sysctl output. svclab writes the first name.
const SYSCTL_FILE_NAMES: [&str; 3] = ["sysctl-a", "sysctl", "sysctls"];

impl Format {
    /// Returns the format for a file name: `iptables-save`, but also `node-1.iptables-save` and
    /// `iptables-save.txt`. `None` for other names.
    #[must_use]
    pub fn from_file_name(name: &str) -> Option<Self> {
        let name = name.strip_suffix(".txt").unwrap_or(name);
        let last = name.rsplit('.').next().unwrap_or(name);
        if SYSCTL_FILE_NAMES.contains(&last) {
            return Some(Self::Sysctls);
        }
        FILE_NAMES
            .iter()
            .find(|(_, names)| names.contains(&last))
            .map(|(format, _)| *format)
    }

    /// Returns the file name that svclab writes for this format.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Sysctls => SYSCTL_FILE_NAMES[0],
            _ => FILE_NAMES
                .iter()
                .find(|(format, _)| *format == self)
                .map_or("", |(_, names)| names[0]),
        }
    }

    /// Returns the command that prints this format.
    #[must_use]
    pub fn command(self) -> &'static str {
        match self {
            Self::Rules(Family::V4, DumpedBackend::Default) => "iptables-save",
            Self::Rules(Family::V6, DumpedBackend::Default) => "ip6tables-save",
            Self::Rules(Family::V4, DumpedBackend::Legacy) => "iptables-legacy-save",
            Self::Rules(Family::V6, DumpedBackend::Legacy) => "ip6tables-legacy-save",
            Self::Sets => "ipset save",
            Self::Nft => "nft list ruleset",
            Self::VirtualServers => "ipvsadm -Sn",
            Self::Links => "ip addr",
            Self::LinkDetails => "ip -d link",
            Self::BridgePorts => "bridge -d link",
            Self::Forwarding => "bridge fdb",
            Self::Neighbours => "ip neigh",
            Self::Routes(Family::V4) => "ip route",
            Self::Routes(Family::V6) => "ip -6 route",
            Self::RoutingRules(Family::V4) => "ip rule",
            Self::RoutingRules(Family::V6) => "ip -6 rule",
            Self::Qdiscs => "tc qdisc",
            Self::TrafficClasses => "tc class",
            Self::TrafficFilters => "tc filter",
            Self::IpsecPolicies => "ip xfrm policy",
            Self::Connections => "conntrack -L",
            Self::Sysctls => "sysctl -a",
            Self::ProxyFlags => "tr '\\0' '\\n' < /proc/PID/cmdline",
            Self::ProxyConfiguration => "cat kube-proxy.conf",
        }
    }

    /// Whether the program prints something on every node. Each node has the interface `lo`, three
    /// IPv4 routing rules (Linux, `net/ipv4/fib_rules.c`, `fib_default_rules_init`) and sysctls.
    /// IPv6 may be disabled.
    #[must_use]
    pub const fn is_never_empty(self) -> bool {
        matches!(
            self,
            Self::Links | Self::LinkDetails | Self::RoutingRules(Family::V4) | Self::Sysctls
        )
    }

    /// Returns the format of a text, from the first of its first 64 lines that only one program
    /// prints. `None` if there is no such line: an empty text may come from any program.
    #[must_use]
    pub fn detect(text: &str) -> Option<Self> {
        detect::detect(text)
    }

    /// Whether the JSON output of the program is supported, too.
    #[must_use]
    pub const fn has_json(self) -> bool {
        matches!(
            self,
            Self::BridgePorts
                | Self::Forwarding
                | Self::Neighbours
                | Self::Links
                | Self::LinkDetails
                | Self::Routes(_)
                | Self::RoutingRules(_)
                | Self::Nft
        )
    }

    /// Whether a text detected as `other` may have this format. Not every text shows the family of
    /// rules and routes, or the iptables backend.
    #[must_use]
    pub fn is_compatible_with(self, other: Self) -> bool {
        let is_same_kind = std::mem::discriminant(&self) == std::mem::discriminant(&other);
        is_same_kind || (self, other) == (Self::LinkDetails, Self::Links)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.command())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_from_file_name_known_names_are_recognised() {
        for (name, format) in [
            (
                "iptables-save",
                Format::Rules(Family::V4, DumpedBackend::Default),
            ),
            (
                "a.cidr.ip6tables-save",
                Format::Rules(Family::V6, DumpedBackend::Default),
            ),
            (
                "iptables-legacy-save",
                Format::Rules(Family::V4, DumpedBackend::Legacy),
            ),
            ("ipvsadm-Sn", Format::VirtualServers),
            ("ipset-save.txt", Format::Sets),
            ("a.cidr.nft", Format::Nft),
            ("ip-6-route", Format::Routes(Family::V6)),
            ("sysctl-a", Format::Sysctls),
        ] {
            assert_eq!(Format::from_file_name(name), Some(format), "{name}");
            assert_eq!(Format::from_file_name(format.file_name()), Some(format));
        }
        assert_eq!(Format::from_file_name("notes"), None);
    }
}
