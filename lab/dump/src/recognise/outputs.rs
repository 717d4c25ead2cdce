//! Recognises output of programs that svclab does not read, so that messages name the program and
//! what the output may affect.

use super::listing;
use crate::archive::Skipped;
use svclab_ruleset::tool::Format;

/// Output of a program that svclab does not read.
#[derive(Debug, PartialEq, Eq)]
pub struct UnreadOutput {
    /// Command that prints the output.
    pub command: &'static str,
    /// Possible effect of its content on packets.
    pub affects: &'static str,
    /// Formats whose output has the same state.
    pub same_as: &'static [Format],
}

impl UnreadOutput {
    /// Returns the reason for not reading the output.
    #[must_use]
    pub(super) fn reason(&self) -> String {
        format!("svclab does not read output of `{}`", self.command)
    }

    /// Returns why a file with the output is skipped.
    pub(super) fn skipped(&self) -> Skipped {
        Skipped {
            affects: self.affects.to_owned(),
            same_as: self.same_as,
            ..Skipped::uncompared(self.reason())
        }
    }
}

/// Rules of bridges and of ARP, which look like rules of iptables.
pub(super) const BRIDGE_RULES: UnreadOutput = UnreadOutput {
    command: "ebtables-save` or `arptables-save",
    affects: "packets pass as if the node had none of these rules",
    same_as: &[],
};
pub(super) const XFRM: UnreadOutput = UnreadOutput {
    command: "ip xfrm",
    affects: "packets are neither encrypted nor refused",
    same_as: &[Format::IpsecPolicies],
};
pub(super) const IFCONFIG: UnreadOutput = UnreadOutput {
    command: "ifconfig",
    affects: "interfaces and addresses need the output of `ip addr`",
    same_as: &[Format::Links],
};
pub(super) const LISTING: UnreadOutput = UnreadOutput {
    command: "iptables -L",
    affects: "rules need the output of `iptables-save`",
    same_as: &[],
};
pub(super) const SERVER_COUNTERS: UnreadOutput = UnreadOutput {
    command: "ipvsadm -Ln --stats",
    affects: "",
    same_as: &[Format::VirtualServers],
};
pub(super) const NAMED_SERVERS: UnreadOutput = UnreadOutput {
    command: "ipvsadm -S` without the option `-n",
    affects: "virtual servers need the output of `ipvsadm -Sn`",
    same_as: &[Format::VirtualServers],
};
pub(super) const LINKS: UnreadOutput = UnreadOutput {
    command: "ip link",
    affects: "interfaces need the output of `ip addr`",
    same_as: &[Format::Links],
};
pub(super) const JSON: UnreadOutput = UnreadOutput {
    command: "ip -json` or `tc -json",
    affects: "the state needs the output without the option `-json`",
    same_as: &[],
};

pub(super) const TCP_METRICS: UnreadOutput = UnreadOutput {
    command: "ip -json tcp_metrics",
    affects: "",
    same_as: &[],
};

/// Returns the output that a line belongs to. `None` if no such program prints the line.
pub(super) fn detect_line(line: &str) -> Option<&'static UnreadOutput> {
    let mut words = line.split_ascii_whitespace();
    let first = words.next()?;
    let second = words.next().unwrap_or_default();
    let has = |word: &str| line.split_ascii_whitespace().any(|own| own == word);
    match first {
        // The states of `IPsec`. With `-o`, a state is one line.
        "proto" if has("spi") => Some(&XFRM),
        "src" if has("spi") && !has("dir") && !has("socket") => Some(&XFRM),
        _ if listing::is_first_line(line) => Some(&LISTING),
        "Prot" if second == "LocalAddress:Port" && !has("Scheduler") => Some(&SERVER_COUNTERS),
        _ if second.starts_with("flags=") && line.contains(" mtu ") => Some(&IFCONFIG),
        _ => None,
    }
}

/// Whether a listing of counters has no virtual server.
pub(super) fn has_no_servers(text: &str) -> bool {
    let mut words = text
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().next());
    !words.any(|first| matches!(first, "TCP" | "UDP" | "SCTP" | "FWM"))
}

/// Returns the output of `ip -json` whose format is not supported.
pub(super) fn json_without_format(text: &str) -> &'static UnreadOutput {
    let first = text.split('}').next().unwrap_or_default();
    // Only metrics of TCP have an age (iproute2 6.1, `ip/tcp_metrics.c`, `process_msg`).
    if first.contains("\"age\"") {
        &TCP_METRICS
    } else {
        &JSON
    }
}

/// Whether a text is JSON that `ip`, `bridge` or `nft` print.
pub(super) fn is_json(text: &str) -> bool {
    let begin: String = text
        .chars()
        .filter(|c| !c.is_ascii_whitespace())
        .take(16)
        .collect();
    let keys = [
        "{\"nftables\"",
        "[{}",
        "[{\"kind\"",
        "[{\"ifindex\"",
        "[{\"mac\"",
        "[{\"dst\"",
        "[{\"type\"",
        "[{\"priority\"",
    ];
    keys.iter().any(|key| begin.starts_with(key))
}

/// Programs of the rules of bridges and of ARP.
const BRIDGE_PROGRAMS: [&str; 2] = ["ebtables", "arptables"];

/// Whether a text is output of `ebtables-save` or `arptables-save`, according to its first comment
/// (iptables 1.8.9, `iptables/xtables-save.c`; ebtables 2.0.11, `ebtables-save`).
pub(super) fn is_bridge_rules(text: &str) -> bool {
    let mut comments = text.lines().take_while(|line| !line.starts_with('*'));
    comments.any(|line| {
        let is_named = BRIDGE_PROGRAMS.iter().any(|program| line.contains(program));
        line.starts_with("# Generated by") && is_named
    })
}
