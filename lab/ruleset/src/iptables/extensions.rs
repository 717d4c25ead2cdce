//! Lists the matches and targets of iptables 1.8.9, and suggests names for unknown ones.

use svclab_diagnostic::suggest::suggest;

/// Targets that are verdicts of the tables themselves.
const VERDICTS: [&str; 4] = ["ACCEPT", "DROP", "RETURN", "QUEUE"];

const TARGETS: [&str; 43] = [
    "AUDIT",
    "CHECKSUM",
    "CLASSIFY",
    "CLUSTERIP",
    "CONNMARK",
    "CONNSECMARK",
    "CT",
    "DNAT",
    "DNPT",
    "DSCP",
    "ECN",
    "HL",
    "HMARK",
    "IDLETIMER",
    "LED",
    "LOG",
    "MARK",
    "MASQUERADE",
    "NETMAP",
    "NFLOG",
    "NFQUEUE",
    "NOTRACK",
    "RATEEST",
    "REDIRECT",
    "REJECT",
    "SAME",
    "SECMARK",
    "SET",
    "SNAT",
    "SNPT",
    "SYNPROXY",
    "TCPMSS",
    "TCPOPTSTRIP",
    "TEE",
    "TOS",
    "TPROXY",
    "TRACE",
    "TTL",
    "ULOG",
    "MIRROR",
    "FULLCONENAT",
    "ACCOUNT",
    "RAWDNAT",
];

const MATCHES: [&str; 68] = [
    "addrtype",
    "ah",
    "bpf",
    "cgroup",
    "cluster",
    "comment",
    "connbytes",
    "connlabel",
    "connlimit",
    "connmark",
    "conntrack",
    "cpu",
    "dccp",
    "devgroup",
    "dscp",
    "dst",
    "ecn",
    "esp",
    "eui64",
    "frag",
    "hashlimit",
    "hbh",
    "helper",
    "hl",
    "icmp",
    "icmp6",
    "icmpv6",
    "ipcomp",
    "iprange",
    "ipv6-icmp",
    "ipv6header",
    "ipvs",
    "length",
    "limit",
    "mac",
    "mark",
    "mh",
    "multiport",
    "nfacct",
    "osf",
    "owner",
    "physdev",
    "pkttype",
    "policy",
    "quota",
    "rateest",
    "realm",
    "recent",
    "rpfilter",
    "rt",
    "sctp",
    "set",
    "socket",
    "srh",
    "standard",
    "state",
    "statistic",
    "string",
    "tcp",
    "tcpmss",
    "time",
    "tos",
    "ttl",
    "u32",
    "udp",
    "udplite",
    "unclean",
    "geoip",
];

/// Whether `name` is a built-in target rather than a chain.
pub(super) fn is_target(name: &str) -> bool {
    VERDICTS.contains(&name) || TARGETS.contains(&name)
}

/// Whether `name` is a match of iptables.
pub(super) fn is_match(name: &str) -> bool {
    MATCHES.contains(&name)
}

/// Suggests a target or one of the chains for an unknown name. `None` if no name is similar.
pub(super) fn suggest_target<'n>(
    name: &str,
    chains: impl Iterator<Item = &'n str>,
) -> Option<String> {
    let known = VERDICTS.iter().chain(&TARGETS).copied();
    suggest(name, known.chain(chains)).map(str::to_owned)
}

/// Suggests a match for an unknown name. `None` if no name is similar.
pub(super) fn suggest_match(name: &str) -> Option<String> {
    suggest(name, MATCHES).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggest_misspelt_name_returns_similar_name() {
        assert_eq!(suggest_match("addtype").as_deref(), Some("addrtype"));
        assert_eq!(
            suggest_target("KUBE-MARK-MASK", ["KUBE-MARK-MASQ"].into_iter()).as_deref(),
            Some("KUBE-MARK-MASQ")
        );
    }
}
