//! Recognises the selectors of rules, which decide on the type of the values that follow (nftables
//! v1.0.6, `src/parser_bison.y`).

use super::super::tokens::Token;
use super::symbols::ValueType;

/// First words of selectors of two words.
const PROTOCOLS: [&str; 19] = [
    "ip", "ip6", "tcp", "udp", "udplite", "sctp", "dccp", "th", "ether", "vlan", "arp", "icmp",
    "icmpv6", "igmp", "mh", "rt", "socket", "ct", "meta",
];

/// Selectors of one word, which `nft` prints without `meta`.
const META: [&str; 9] = [
    "iif", "oif", "iifname", "oifname", "iifgroup", "oifgroup", "mark", "skuid", "skgid",
];

/// Returns the number of words and the type of the values of the selector at the start of the
/// words. `None` if the words do not start with a selector.
pub(super) fn selector(words: &[Token<'_>]) -> Option<(usize, ValueType)> {
    let unquoted = |index: usize| {
        let word = words.get(index)?;
        (!word.is_quoted).then_some(word.text)
    };
    let first = unquoted(0)?;
    if META.contains(&first) {
        let is_group = first.ends_with("group");
        let value_type = if is_group {
            ValueType::LinkGroup
        } else {
            ValueType::Other
        };
        return Some((1, value_type));
    }
    let second = unquoted(1)?;
    let value_type = match (first, second) {
        ("fib", _) => return fib_selector(words),
        ("with", "icmpx") => ValueType::IcmpxCode,
        ("ct", "original" | "reply") => {
            return Some(match unquoted(2)? {
                "protocol" => (3, ValueType::Protocol),
                "l3proto" => (3, ValueType::Family),
                "proto-src" | "proto-dst" => (3, ValueType::Service),
                "ip" | "ip6" => (4.min(words.len()), ValueType::Other),
                _ => (3, ValueType::Other),
            });
        }
        ("ct", "state") => ValueType::CtState,
        ("ct", "status") => ValueType::CtStatus,
        ("ct", "direction") => ValueType::CtDirection,
        ("ct", "event") => ValueType::CtEvent,
        ("ct", "l3proto") | ("meta", "nfproto") => ValueType::Family,
        ("ct" | "ip", "protocol") | ("meta", "l4proto") | (_, "nexthdr") => ValueType::Protocol,
        ("meta", "protocol") | ("ether" | "vlan", "type") | ("arp", "ptype") => {
            ValueType::EtherType
        }
        ("meta", "pkttype") => ValueType::PacketType,
        ("meta", "iiftype" | "oiftype") => ValueType::LinkLayer,
        ("meta", "iifgroup" | "oifgroup") => ValueType::LinkGroup,
        ("meta", "day") => ValueType::Day,
        ("ip" | "ip6", "dscp") => ValueType::Dscp,
        ("ip" | "ip6", "ecn") => ValueType::Ecn,
        ("icmp", "type") => ValueType::IcmpType,
        ("with", "icmp") | ("icmp", "code") => ValueType::IcmpCode,
        ("icmpv6", "type") => ValueType::Icmpv6Type,
        ("with", "icmpv6") | ("icmpv6", "code") => ValueType::Icmpv6Code,
        ("igmp", "type") => ValueType::IgmpType,
        ("dccp", "type") => ValueType::DccpType,
        ("mh", "type") => ValueType::MobilityType,
        ("arp", "operation") => ValueType::ArpOperation,
        ("tcp", "flags") => ValueType::TcpFlags,
        (_, "sport" | "dport") => ValueType::Service,
        // The address family of a NAT statement.
        ("ip" | "ip6", "to" | "addr" | "prefix") => return None,
        _ if PROTOCOLS.contains(&first) => ValueType::Other,
        _ => return None,
    };
    Some((2, value_type))
}

/// Returns a selector such as `fib daddr . iif type`.
fn fib_selector(words: &[Token<'_>]) -> Option<(usize, ValueType)> {
    let results = ["type", "oif", "oifname", "check"];
    // `oif` is also a flag of a lookup, after a dot.
    let result = words.windows(2).skip(1).take(8).position(|pair| {
        let [before, word] = pair else { return false };
        !word.is_quoted && results.contains(&word.text) && !before.is_unquoted(".")
    })?;
    let value_type = match words[result + 2].text {
        "type" => ValueType::RouteType,
        _ => ValueType::Other,
    };
    Some((result + 3, value_type))
}
