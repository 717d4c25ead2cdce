//! Finds the entries of sets and maps by which a rule matched a packet.

use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;

use crate::packet::Payload;
use svclab_model::evidence::AddressPair;
use svclab_model::evidence::trace::RuleVerdict;
use svclab_ruleset::nft::{Element, Set, Table};
use svclab_ruleset::nft::{Token, tokenize};

/// A packet at the moment of a rule match.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub flow: AddressPair,
    pub payload: Payload,
}

impl Packet {
    /// Returns the value of a packet field as nft prints it; `None` for an unsupported field.
    fn field(&self, header: &str, field: &str) -> Option<String> {
        let AddressPair {
            source,
            destination,
        } = self.flow;
        let transport = || {
            Some(match self.payload {
                Payload::Tcp(_) => "tcp",
                Payload::Udp => "udp",
                _ => return None,
            })
        };
        Some(match (header, field) {
            ("ip" | "ip6", "saddr") => source.ip().to_string(),
            ("ip" | "ip6", "daddr") => destination.ip().to_string(),
            ("tcp" | "udp" | "sctp" | "th", "sport") => source.port().to_string(),
            ("tcp" | "udp" | "sctp" | "th", "dport") => destination.port().to_string(),
            ("meta", "l4proto") => transport()?.to_owned(),
            _ => return None,
        })
    }
}

/// Returns, for each set and map that a rule looks up, the entry that matches the packet.
pub(crate) fn matching_entries(
    table: &Table,
    rule: &str,
    packet: &Packet,
    verdict: Option<&RuleVerdict>,
) -> Vec<String> {
    let Ok(words) = tokenize(rule) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut rest = words.as_slice();
    while !rest.is_empty() {
        let Some((key, after)) = key(rest, packet) else {
            rest = &rest[1..];
            continue;
        };
        let set_name = match after {
            [map, name, ..] if map.is_unquoted("vmap") || map.is_unquoted("map") => Some(name),
            [name, ..] => Some(name),
            [] => None,
        };
        if let Some(name) = set_name.and_then(|word| word.text.strip_prefix('@')) {
            let entry = table.set(name).and_then(|set| find_entry(set, &key));
            found.push(entry.map_or_else(
                || format!("{name} {}", key.join(" . ")),
                |entry| format!("{name} {}", without_options(entry)),
            ));
        }
        rest = after;
    }
    found.extend(entry_by_verdict(&words, verdict));
    found
}

/// Returns the packet's values of a concatenation of fields at the start of `words`, and the words
/// after them. `None` if the words are no supported field.
fn key<'w, 't>(
    mut words: &'w [Token<'t>],
    packet: &Packet,
) -> Option<(Vec<String>, &'w [Token<'t>])> {
    let mut key = Vec::new();
    loop {
        let [of, field, after @ ..] = words else {
            return None;
        };
        key.push(packet.field(of.text, field.text)?);
        match after {
            [dot, more @ ..] if dot.is_unquoted(".") => words = more,
            _ => return Some((key, after)),
        }
    }
}

/// Returns an entry without its timeout, the rest of the timeout, and its counter.
fn without_options(entry: &Element) -> Element {
    Element {
        key: entry.bare_key().to_owned(),
        ..entry.clone()
    }
}

/// Returns the entry of a set that contains the key.
fn find_entry<'s>(set: &'s Set, key: &[String]) -> Option<&'s Element> {
    let whole = key.join(" . ");
    let same = set
        .elements
        .iter()
        .find(|element| element.bare_key() == whole);
    same.or_else(|| {
        set.elements.iter().find(|element| {
            let parts: Vec<&str> = element.bare_key().split(" . ").collect();
            parts.len() == key.len()
                && parts
                    .iter()
                    .zip(key)
                    .all(|(part, value)| is_within(part, value))
        })
    })
}

/// Whether a value equals one part of an entry, or lies in its range or network.
fn is_within(part: &str, value: &str) -> bool {
    if part == value {
        return true;
    }
    let Ok(value) = value.parse::<IpAddr>() else {
        return false;
    };
    if let Some((first, last)) = part.split_once('-') {
        let (first, last) = (first.parse::<IpAddr>(), last.parse::<IpAddr>());
        return matches!((first, last), (Ok(first), Ok(last)) if (first..=last).contains(&value));
    }
    part.parse::<IpNetwork>()
        .is_ok_and(|network| network.contains(value))
}

/// Returns the entries of a map inside a rule as pairs of key and value.
fn inline_map_entries<'t>(words: &[Token<'t>]) -> Vec<(&'t str, String)> {
    let is_word = |text: &'static str| move |word: &Token<'t>| word.is_unquoted(text);
    let maps = words.windows(2).position(|pair| {
        (pair[0].is_unquoted("vmap") || pair[0].is_unquoted("map")) && pair[1].is_unquoted("{")
    });
    let Some(begin) = maps.map(|index| index + 2) else {
        return Vec::new();
    };
    let end = words[begin..]
        .iter()
        .position(is_word("}"))
        .map_or(words.len(), |length| begin + length);
    words[begin..end]
        .split(is_word(","))
        .filter_map(|entry| {
            let (key, value) = entry.split_first()?;
            let (colon, value) = value.split_first()?;
            let value: Vec<&str> = value.iter().map(|word| word.text).collect();
            colon.is_unquoted(":").then(|| (key.text, value.join(" ")))
        })
        .collect()
}

/// Returns the entry of a map inside a rule that leads to the chain of the verdict.
fn entry_by_verdict(words: &[Token<'_>], verdict: Option<&RuleVerdict>) -> Option<String> {
    let destination = match verdict? {
        RuleVerdict::Goto(chain) => format!("goto {chain}"),
        RuleVerdict::Jump(chain) => format!("jump {chain}"),
        _ => return None,
    };
    let entries = inline_map_entries(words);
    let (key, value) = entries.iter().find(|(_, value)| *value == destination)?;
    Some(format!("{key} : {value}"))
}

/// Returns the entry of a map inside a rule whose value is the destination of the packet.
pub(crate) fn entry_by_destination(rule: &str, to: SocketAddr) -> Option<String> {
    let words = tokenize(rule).ok()?;
    let destination_text = format!("{} . {}", to.ip(), to.port());
    let entries = inline_map_entries(&words);
    let (key, value) = entries
        .iter()
        .find(|(_, value)| *value == destination_text)?;
    Some(format!("{key} : {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_ruleset::nft::Ruleset;

    const TABLE: &str = "\
table ip kube-proxy {
	set allowed {
		type ipv4_addr . inet_proto . inet_service . ipv4_addr
		flags interval
		elements = { 10.96.0.1 . tcp . 80 . 10.0.0.0/24,
			     10.96.0.1 . tcp . 80 . 10.0.2.0-10.0.2.5 }
	}

	map services {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.1 . tcp . 80 comment \"ns/web:p\" : drop,
			     10.96.0.1 . udp . 80 : goto x }
	}

	set ips {
		type ipv4_addr
		elements = { 10.96.0.1 timeout 3h expires 2h59m counter packets 3 bytes 180 }
	}
}
";

    fn entries_of_rule(rule: &str, from: &str, verdict: Option<&RuleVerdict>) -> Vec<String> {
        let ruleset: Ruleset = svclab_ruleset::nft::parse(TABLE).unwrap();
        let packet = Packet {
            flow: AddressPair {
                source: from.parse().unwrap(),
                destination: "10.96.0.1:80".parse().unwrap(),
            },
            payload: Payload::Tcp(2),
        };
        matching_entries(&ruleset.tables[0], rule, &packet, verdict)
    }

    #[test]
    fn matching_entries_set_lookup_returns_entry() {
        let entries = |rule: &str| entries_of_rule(rule, "10.0.0.9:4000", None);
        assert_eq!(
            entries("ip daddr . meta l4proto . th dport vmap @services"),
            ["services 10.96.0.1 . tcp . 80 comment \"ns/web:p\" : drop"]
        );
        assert_eq!(
            entries("ip daddr @ips meta l4proto . th dport vmap @ports"),
            ["ips 10.96.0.1", "ports tcp . 80"]
        );
        assert_eq!(
            entries("ip daddr . meta l4proto . th dport . ip saddr @allowed return"),
            ["allowed 10.96.0.1 . tcp . 80 . 10.0.0.0/24"]
        );
        assert_eq!(
            entries_of_rule(
                "ip daddr . meta l4proto . th dport . ip saddr @allowed return",
                "10.0.2.3:4000",
                None
            ),
            ["allowed 10.96.0.1 . tcp . 80 . 10.0.2.0-10.0.2.5"]
        );
        for rule in [
            "ip saddr != @ips drop",
            "update @ips { ip saddr }",
            "ct state new jump x",
            "drop",
        ] {
            assert_eq!(entries(rule), [""; 0], "{rule}");
        }
    }

    #[test]
    fn matching_entries_random_map_uses_verdict() {
        let rule = "numgen random mod 2 vmap { 0 : goto a, 1 : goto b }";
        let goto = |chain: &str| {
            let verdict = RuleVerdict::Goto(chain.to_owned());
            entries_of_rule(rule, "10.0.0.9:4000", Some(&verdict))
        };
        assert_eq!(goto("b"), ["1 : goto b"]);
        assert_eq!(goto("c"), [""; 0]);
        let map = "meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.1.5 . 80, 1 : 10.244.2.5 . 80 }";
        assert_eq!(
            entry_by_destination(map, "10.244.2.5:80".parse().unwrap()).as_deref(),
            Some("1 : 10.244.2.5 . 80")
        );
        assert_eq!(
            entry_by_destination(map, "10.244.2.5:81".parse().unwrap()),
            None
        );
    }
}
