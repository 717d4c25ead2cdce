//! References to rules that packets matched, and the rules that marked packets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::deviation::Deviation;
use svclab_dump::{DumpChange, DumpLocation};
use svclab_journey::journey::{Hop, RuleMatch};
use svclab_model::plan::Backend;

/// Rule of a namespace that a packet matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleReference {
    /// Backend of the table: legacy iptables or `nf_tables`.
    pub backend: Backend,
    /// Whether the packet also matched rules of the other backend in the namespace.
    pub both_backends: bool,
    /// Name of the table. A table that iptables cannot print is prefixed with its family:
    /// `inet fw`.
    pub table: String,
    /// Name of the chain.
    pub chain: String,
    /// Number of the rule in its chain, from 1; absent at the end of the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// Text of the rule from its first match on; absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Target of the rule, such as `RETURN`. At the end of a chain: `return` or `policy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Entries of sets and maps that matched, such as `KUBE-CLUSTER-IP 10.96.0.1,tcp:443`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
    /// Service port of a rule of kube-proxy in nftables mode, such as `ns1/nginx:http`. For a rule
    /// in ipvs mode that looks up a set, the service at the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

impl RuleReference {
    /// Returns the reference of a rule that a packet matched in a hop.
    #[must_use]
    pub fn new(step: &RuleMatch, hop: &Hop) -> Self {
        let mut matches = hop.matches.iter();
        Self {
            backend: step.backend,
            both_backends: matches.any(|other| other.backend != step.backend),
            table: step.table.clone(),
            chain: step.chain.clone(),
            number: step.number,
            rule: step.rule.clone(),
            target: step.target.clone(),
            entries: step.entries.clone(),
            service: step.service.clone(),
        }
    }

    /// Whether a deviation is this rule, as an addition to the lab.
    pub(super) fn is_in(&self, deviation: &Deviation) -> bool {
        let Deviation::Rules { difference } = deviation else {
            return false;
        };
        let is_chain = match &difference.location {
            DumpLocation::Chain { table, chain, .. } => {
                (table, chain) == (&self.table, &self.chain)
            }
            _ => false,
        };
        let is_rule = match &difference.change {
            DumpChange::Item { item, .. } => Some(item) == self.rule.as_ref(),
            _ => false,
        };
        is_chain && is_rule
    }
}

/// Returns the rule that set the mark on which the dropping rule matched, or the jump to that rule.
pub(super) fn marking_rule(hop: &Hop) -> Option<&RuleMatch> {
    let (last, before) = hop.matches.split_last()?;
    let (value, mask) = matched_mark(last.rule.as_ref()?)?;
    let has_mark = |step: &RuleMatch| step.mark & mask == value;
    if value == 0 || !has_mark(last) {
        return None;
    }
    let marking_index = hop.matches.windows(2).position(|pair| match pair {
        [one, next] => !has_mark(one) && has_mark(next),
        _ => false,
    })?;
    last_jump_to(before, marking_index)
}

/// Returns the last rule with conditions on the way to a dropping rule without conditions, or the
/// first jump on this way. `None` if the dropping rule itself decides.
pub(super) fn sending_rule(hop: &Hop) -> Option<&RuleMatch> {
    let mut index = hop.matches.len().checked_sub(1)?;
    let mut sent_by = None;
    while is_unconditional(hop.matches[index].rule.as_ref()?) {
        let Some(jump) = jump_to(&hop.matches, index) else {
            break;
        };
        sent_by = hop.matches.get(jump);
        index = jump;
    }
    sent_by
}

/// Returns the rules before a dropping rule without conditions that would have accepted or returned
/// the packet. A packet that meets the dropping rule did not match them.
pub(super) fn unmatched_rules(hop: &Hop) -> Vec<RuleReference> {
    let Some(last) = hop.matches.last() else {
        return Vec::new();
    };
    if !last.rule.as_deref().is_some_and(is_unconditional) {
        return Vec::new();
    }
    let earlier = last.earlier.iter().zip(1..);
    earlier
        .filter(|(rule, _)| lets_pass(rule))
        .map(|(rule, number)| RuleReference {
            number: Some(number),
            rule: Some(rule.clone()),
            target: None,
            entries: Vec::new(),
            ..RuleReference::new(last, hop)
        })
        .collect()
}

/// Whether a rule of iptables or nftables ends the chain for packets that match, without dropping
/// them.
fn lets_pass(rule: &str) -> bool {
    let words = shlex::split(rule).unwrap_or_default();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    words
        .windows(2)
        .any(|pair| matches!(pair, ["-j", "RETURN" | "ACCEPT"] | ["-g" | "goto", _]))
        || matches!(words.last(), Some(&("return" | "accept")))
}

/// Whether a rule of iptables or nftables has no match: all packets in its chain match it.
fn is_unconditional(rule: &str) -> bool {
    let words = shlex::split(rule).unwrap_or_default();
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        match word {
            "-m" if words.peek() == Some(&"comment") => {
                words.next();
            }
            "--comment" => {
                words.next();
            }
            // Values of a counter and of a log statement follow their names.
            "counter" | "log" | "packets" | "bytes" | "prefix" | "level" => {}
            // Options of iptables, and verdicts of nftables.
            "-j" | "-g" | "drop" | "reject" | "jump" | "goto" => return true,
            word if word.parse::<u64>().is_ok() => {}
            _ => return false,
        }
    }
    false
}

/// Returns the jump to the chain of the match at `index`, or that match in a base chain.
fn last_jump_to(matches: &[RuleMatch], index: usize) -> Option<&RuleMatch> {
    matches.get(jump_to(matches, index).unwrap_or(index))
}

/// Returns the index of the jump to the chain of the match at `index`. `None` in a base chain.
fn jump_to(matches: &[RuleMatch], index: usize) -> Option<usize> {
    let chain = &matches.get(index)?.chain;
    let mut earlier = matches[..index].iter();
    earlier.rposition(|step| step.target.as_ref() == Some(chain))
}

/// Returns the mark and the mask of a rule that matches a mark: `--mark 0x4000/0x4000`. `None` for
/// other rules.
fn matched_mark(rule: &str) -> Option<(u32, u32)> {
    let (before, rest) = rule.split_once("--mark ")?;
    if before.ends_with("! ") {
        return None;
    }
    let word = rest.split_ascii_whitespace().next()?;
    let (value, mask) = word.split_once('/').unwrap_or((word, "0xffffffff"));
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    Some((number(value)?, number(mask)?))
}

/// Returns the jump to the rule that first set bits of the mark, or this rule itself.
pub(super) fn marking_jump(hop: &Hop) -> Option<&RuleMatch> {
    let is_marking = |pair: &[RuleMatch]| matches!(pair, [one, next] if next.mark & !one.mark != 0);
    let index = hop.matches.windows(2).position(is_marking)?;
    last_jump_to(&hop.matches, index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_unconditional_only_without_matches() {
        for (rule, expected) in [
            ("reject", true),
            ("counter packets 3 bytes 180 drop", true),
            ("jump services", true),
            ("ct state new jump services", false),
            ("-j DROP", true),
            (r#"-m comment --comment "a -s b" -j REJECT"#, true),
            ("-s 10.0.0.0/8 -j DROP", false),
            ("-m mark --mark 0x8000/0x8000 -j DROP", false),
        ] {
            assert_eq!(is_unconditional(rule), expected, "{rule}");
        }
    }

    #[test]
    fn lets_pass_accept_return_and_goto() {
        for (rule, expected) in [
            ("-s 10.0.0.0/8 -j RETURN", true),
            ("-s 10.0.0.0/8 -g OTHER", true),
            ("-m comment --comment \"-j RETURN\" -j DROP", false),
            ("-s 10.0.0.0/8 -j OTHER", false),
            ("ip saddr { 10.0.0.0/8 } return", true),
            ("ip saddr 10.0.0.1 goto other", true),
            ("ip saddr 10.0.0.1 jump other", false),
            ("ip saddr 10.0.0.1 drop", false),
        ] {
            assert_eq!(lets_pass(rule), expected, "{rule}");
        }
    }

    #[test]
    fn matched_mark_has_value_and_mask() {
        for (rule, expected) in [
            ("-m mark --mark 0x10/0x10 -j DROP", Some((0x10, 0x10))),
            ("-m mark --mark 16 -j DROP", Some((16, u32::MAX))),
            ("-m mark ! --mark 0x10/0x10 -j DROP", None),
            ("-j MARK --set-xmark 0x10/0x10", None),
        ] {
            assert_eq!(matched_mark(rule), expected, "{rule}");
        }
    }
}
