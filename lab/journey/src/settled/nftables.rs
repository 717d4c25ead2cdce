//! Checks whether native nftables rules are deterministic: the same result for identical packets.
//!
//! Only an allowlist of words passes. Rules that draw at random (`numgen`), count (`limit`,
//! `quota`, `ct count`) or keep state (`update @affinity { … }`) contain other words.

use std::collections::HashSet;

use super::ConntrackState;
use svclab_ruleset::nft::{self, Token, tokenize};
use svclab_ruleset::nft::{Chain, Rule, Set, Table};

/// Words of matches on the packet, interface, address or connection, and their separators.
const DETERMINISTIC_MATCH_WORDS: [&str; 45] = [
    "ip",
    "ip6",
    "saddr",
    "daddr",
    "protocol",
    "nexthdr",
    "tcp",
    "udp",
    "sctp",
    "th",
    "sport",
    "dport",
    "meta",
    "l4proto",
    "nfproto",
    "mark",
    "iif",
    "iifname",
    "oif",
    "oifname",
    "fib",
    "type",
    "local",
    "ct",
    "state",
    "new",
    "established",
    "related",
    "invalid",
    "untracked",
    "status",
    "dnat",
    "snat",
    ".",
    "!=",
    "==",
    "&",
    "|",
    "^",
    "{",
    "}",
    ",",
    ":",
    "packets",
    "bytes",
];

/// Words of statements that always do the same to identical packets. The arguments of `dnat` and
/// `reject` are checked separately.
const DETERMINISTIC_STATEMENT_WORDS: [&str; 11] = [
    "accept", "drop", "return", "jump", "goto", "vmap", "counter", "set", "to", "reject",
    "continue",
];

/// Tables of one namespace that parse without error.
#[derive(Debug, Default)]
pub(super) struct NftTables(Vec<Table>);

/// A chain with its table.
#[derive(Debug, Clone, Copy)]
pub(super) struct NftChainRef<'t> {
    pub table: &'t Table,
    pub chain: &'t Chain,
}

impl NftTables {
    /// Parses the output of `nft list ruleset`. A table with anything unparsable is left out.
    pub(super) fn parse(text: &str) -> Self {
        let tables = nft::tables(text).filter_map(|(_, text)| nft::parse(text).ok());
        Self(tables.flat_map(|ruleset| ruleset.tables).collect())
    }

    /// Returns a chain of a table that is named by family and name, such as `ip kube-proxy`.
    pub(super) fn chain(&self, table: &str, chain: &str) -> Option<NftChainRef<'_>> {
        let (family, name) = table.split_once(' ')?;
        let mut tables = self.0.iter();
        let table =
            tables.find(|table| (table.family.as_str(), table.name.as_str()) == (family, name))?;
        let chain = table.chain(chain)?;
        Some(NftChainRef { table, chain })
    }
}

impl NftChainRef<'_> {
    /// Whether the kernel evaluates this chain only for the first packet of a connection (type
    /// `nat`). `None` if the chain has no hook.
    pub(super) fn is_nat_chain(&self) -> Option<bool> {
        Some(self.chain.hook.as_ref()?.kind == "nat")
    }

    /// Checks that a rule of this chain is deterministic, given the conntrack state of the
    /// connection.
    ///
    /// # Errors
    ///
    /// Fails with the part of the rule that may give another result.
    pub(super) fn check_rule(&self, rule: &Rule, state: ConntrackState) -> Result<(), String> {
        let words = tokenize(&rule.text).map_err(|_| format!("cannot parse `{rule}`"))?;
        for (index, word) in words.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|at| words.get(at));
            let is_ct_key = before.is_some_and(|before| before.is_unquoted("ct"));
            // The kernel sets the connection status only after it has evaluated the rules for the
            // first packet.
            let is_deterministic = match word.text {
                _ if !is_ct_key => self.is_deterministic_word(word, before),
                "state" => true,
                "status" => state == ConntrackState::NoEntry,
                _ => false,
            };
            if !is_deterministic {
                return Err(format!("`{}` may have another result", word.text));
            }
        }
        let matches_conntrack = words.iter().any(|word| word.is_unquoted("ct"));
        if state == ConntrackState::Replied
            && matches_conntrack
            && !self.can_only_end(rule, &mut HashSet::new())
        {
            return Err("a rule matches on the reply state of the connection".to_owned());
        }
        Ok(())
    }

    fn is_deterministic_word(&self, word: &Token<'_>, before: Option<&Token<'_>>) -> bool {
        let is_chain_name =
            before.is_some_and(|before| before.is_unquoted("jump") || before.is_unquoted("goto"));
        let is_interface = word.is_quoted
            && before.is_some_and(|before| {
                let words = ["iif", "iifname", "oif", "oifname", "!=", "{", ","];
                words.iter().any(|known| before.is_unquoted(known))
            });
        if is_chain_name || is_interface {
            return true;
        }
        if let Some(set) = word.text.strip_prefix('@').filter(|_| !word.is_quoted) {
            return self.table.set(set).is_some_and(is_fixed);
        }
        !word.is_quoted && (is_value(word.text) || is_deterministic_keyword(word.text))
    }

    /// Whether a matching rule only drops the packet or continues, so that a packet that passed
    /// would also pass without the rule.
    fn can_only_end<'s>(&'s self, rule: &'s Rule, checked_chains: &mut HashSet<&'s str>) -> bool {
        let Ok(words) = tokenize(&rule.text) else {
            return false;
        };
        let has_other_effect = |word: &Token<'_>| {
            let more = [
                "accept",
                "dnat",
                "snat",
                "masquerade",
                "redirect",
                "set",
                "continue",
            ];
            more.iter().any(|known| word.is_unquoted(known))
        };
        let mut chains: Vec<&str> = Vec::new();
        for (index, word) in words.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|at| words.get(at));
            // `ct status dnat` is a match.
            let is_status_match = before.is_some_and(|before| before.is_unquoted("status"));
            if !is_status_match && has_other_effect(word) {
                return false;
            }
            if before.is_some_and(|before| before.is_unquoted("jump") || before.is_unquoted("goto"))
            {
                chains.push(word.text);
            }
            if let Some(set) = word.text.strip_prefix('@') {
                let Some(set) = self.table.set(set) else {
                    return false;
                };
                for value in set
                    .elements
                    .iter()
                    .filter_map(|entry| entry.value.as_deref())
                {
                    match value.split_once(' ') {
                        Some(("jump" | "goto", chain)) => chains.push(chain),
                        None if ["drop", "return"].contains(&value) => {}
                        _ => return false,
                    }
                }
            }
        }
        chains.into_iter().all(|name| {
            let Some(chain) = self.table.chains.iter().find(|chain| chain.name == name) else {
                return false;
            };
            // A chain that was already checked is skipped.
            !checked_chains.insert(chain.name.as_str())
                || chain
                    .rules
                    .iter()
                    .all(|rule| self.can_only_end(rule, checked_chains))
        })
    }
}

fn is_deterministic_keyword(word: &str) -> bool {
    DETERMINISTIC_MATCH_WORDS.contains(&word) || DETERMINISTIC_STATEMENT_WORDS.contains(&word)
}

/// Whether only the owner of a set adds elements to it.
fn is_fixed(set: &Set) -> bool {
    !set.flags
        .iter()
        .any(|flag| ["dynamic", "timeout"].contains(&flag.as_str()))
        && set.timeout.is_none()
}

/// Whether a word is a number, an address with or without a port, a network or a range.
fn is_value(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_hexdigit() || first == '[' || first == ':')
        && word
            .chars()
            .all(|each| each.is_ascii_hexdigit() || "x.:/-[]".contains(each))
        && word.contains(|each: char| each.is_ascii_digit() || each == ':')
}

/// Whether the destination of a rule leaves no choice: `dnat` to one address.
pub(super) fn has_one_destination(rule: &Rule) -> bool {
    let Ok(words) = tokenize(&rule.text) else {
        return false;
    };
    let to_index = words.iter().position(|word| word.is_unquoted("to"));
    match to_index.map(|at| &words[at + 1..]) {
        None => !rule.text.contains("dnat to"),
        Some([to]) => !to.text.contains('-'),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
table ip kube-proxy {
	set ips {
		type ipv4_addr
		elements = { 10.96.0.1 }
	}

	set affinity {
		type ipv4_addr
		flags dynamic,timeout
		timeout 3h
	}

	map none {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.1 . tcp . 80 comment \"a/b\" : goto refuse,
			     10.96.0.2 . tcp . 80 comment \"a/c\" : drop }
	}

	map all {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.1 . tcp . 80 : goto marks }
	}

	chain a {
		type nat hook output priority -100; policy accept;
		jump check
	}

	chain check {
		ip daddr . meta l4proto . th dport vmap @none
	}

	chain refuse {
		reject
	}

	chain marks {
		meta mark set meta mark | 0x00004000
	}
}
";

    fn parse_tables() -> NftTables {
        let tables = NftTables::parse(TEXT);
        assert_eq!(tables.0.len(), 1);
        tables
    }

    #[test]
    fn check_rule_unlisted_word_fails() {
        let tables = parse_tables();
        let chain = tables.chain("ip kube-proxy", "a").unwrap();
        for (rule, expected) in [
            ("jump check", true),
            ("ct state new jump numgen", true),
            ("ip daddr . meta l4proto . th dport vmap @none", true),
            ("ip daddr @ips meta l4proto . th dport vmap @all", true),
            ("ip saddr @affinity goto x", false),
            ("ip saddr @unknown goto x", false),
            ("update @affinity { ip saddr }", false),
            ("numgen random mod 2 vmap { 0 : goto a, 1 : goto b }", false),
            ("meta l4proto tcp dnat to 10.244.1.5:8080", true),
            ("meta l4proto tcp dnat to [fd00::1]:8080", true),
            (
                "meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.0.0.1 . 80 }",
                false,
            ),
            ("meta random & 2147483647 < 1073741824 accept", false),
            ("limit rate 5/second accept", false),
            ("ct count over 5 drop", false),
            ("ct mark 0x00000001 drop", false),
            ("ct status dnat drop", true),
            ("meta hour \"10:00\"-\"11:00\" drop", false),
            ("iifname != \"cali*\" jump x", true),
            ("log prefix \"tcp\" drop", false),
            ("fib daddr type local ip daddr != 127.0.0.0/8 drop", true),
            (
                "ip saddr != { 10.0.0.0/8, 192.168.0.1-192.168.0.9 } drop",
                true,
            ),
            ("meta mark & 0x00004000 == 0x00000000 return", true),
            ("meta mark set meta mark | 0x00004000", true),
            ("masquerade fully-random", false),
            ("dnat to 10.0.0.1 random", false),
            ("queue to 3", false),
            ("ip daddr 10.0.0.1 counter packets 3 bytes 180 drop", true),
        ] {
            let result = chain.check_rule(&Rule::new(rule), ConntrackState::NoEntry);
            assert_eq!(result.is_ok(), expected, "{rule}: {result:?}");
        }
    }

    #[test]
    fn check_rule_replied_state_match_must_only_end_packet() {
        let tables = parse_tables();
        let chain = tables.chain("ip kube-proxy", "a").unwrap();
        let is_deterministic = |rule: &str| {
            chain
                .check_rule(&Rule::new(rule), ConntrackState::Replied)
                .is_ok()
        };
        assert!(is_deterministic("ct state new jump check"));
        assert!(is_deterministic("ct state invalid drop"));
        assert!(is_deterministic("jump marks"));
        assert!(!is_deterministic("ct state new jump marks"));
        assert!(!is_deterministic(
            "ct state new ip daddr . meta l4proto . th dport vmap @all"
        ));
        assert!(!is_deterministic("ct state established accept"));
        assert!(!is_deterministic("ct state new jump nowhere"));
        assert!(!is_deterministic("ct status dnat drop"));
    }

    #[test]
    fn has_one_destination_range_or_map_is_false() {
        let has_one = |rule: &str| has_one_destination(&Rule::new(rule));
        assert!(has_one("meta l4proto tcp dnat to 10.244.1.5:8080"));
        assert!(has_one("drop"));
        assert!(!has_one("dnat to 10.0.0.1-10.0.0.9"));
        assert!(!has_one(
            "dnat ip to numgen random mod 1 map { 0 : 10.0.0.1 . 80 }"
        ));
    }

    #[test]
    fn is_nat_chain_hook_type_decides() {
        let tables = parse_tables();
        let is_nat = |chain| tables.chain("ip kube-proxy", chain).unwrap().is_nat_chain();
        assert_eq!(is_nat("a"), Some(true));
        assert_eq!(is_nat("check"), None);
        assert!(tables.chain("ip6 kube-proxy", "a").is_none());
    }
}
