//! Looks up the text of rules that packets matched, and the set entries by which the rules matched.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use super::RuleMatch;
use super::hop_matches::OUTPUT_STAGE;
use super::nftables::{self, NftTables, Packet};
use crate::packet::Payload;
use svclab_model::evidence::trace::{RuleVerdict, TracePoint};
use svclab_model::evidence::{AddressPair, StageEvidence, TraceEvent};
use svclab_model::plan::Backend;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::iptables::{Chain, IptablesRules, Rule};
use svclab_ruleset::nft;
use svclab_ruleset::text::Text;

/// Maximum number of rules before the rule that dropped a packet that a [`RuleMatch`] quotes.
const MAX_EARLIER_RULES: usize = 3;

/// Index of the rules and sets of all namespaces, as read back from the kernel.
pub(super) struct RuleIndex<'e> {
    rules: HashMap<(&'e str, Backend, u8), IptablesRules>,
    /// Native nftables rules by namespace.
    native: HashMap<&'e str, NftTables>,
    /// Type of each set, such as `hash:ip,port`, by namespace and name.
    sets: HashMap<&'e str, BTreeMap<String, String>>,
}

impl<'e> RuleIndex<'e> {
    /// Indexes the rules of the evidence. A dump that cannot be parsed is left out.
    pub(super) fn from_evidence(evidence: &'e StageEvidence) -> Self {
        let rules = evidence
            .rules
            .iter()
            .filter_map(|saved| {
                let key = (saved.namespace.as_str(), saved.backend, saved.ip_version);
                Some((key, IptablesRules::parse(&saved.text).ok()?))
            })
            .collect();
        let sets = evidence
            .kernel_state
            .iter()
            .map(|(namespace, held)| {
                let read = svclab_ruleset::ipset::saved::parse(
                    &Text::new(held.sets.as_str()),
                    &mut Vec::new(),
                );
                let kinds = read
                    .iter()
                    .map(|(name, set)| (name.clone(), set.kind.to_string()))
                    .collect();
                (namespace.as_str(), kinds)
            })
            .collect();
        let native = evidence
            .nft
            .iter()
            .map(|(namespace, text)| (namespace.as_str(), NftTables::parse(text)))
            .collect();
        Self {
            rules,
            native,
            sets,
        }
    }

    /// Builds the rule match of a trace event. `flow` and `payload` are those of the packet at that
    /// moment.
    pub(super) fn rule_match(
        &self,
        event: &TraceEvent,
        flow: AddressPair,
        payload: Payload,
    ) -> RuleMatch {
        let (number, chain_end) = match event.point {
            TracePoint::Rule(number) => (Some(number), None),
            TracePoint::Return => (None, Some("return")),
            TracePoint::Policy => (None, Some("policy")),
        };
        let rule = number.and_then(|number| self.rule(event, number));
        if rule.is_none() && self.is_native(event) {
            return self.native_rule_match(event, number, chain_end, Packet { flow, payload });
        }
        let target = match (rule, chain_end) {
            (_, Some(end)) => Some(end.to_owned()),
            (Some(rule), None) => rule.target().map(std::borrow::Cow::into_owned),
            (None, None) => None,
        };
        let dropped = event.verdict == Some(RuleVerdict::Drop)
            || is_drop_target(target.as_deref())
            || self.is_drop_policy(event);
        let chain = self.chain(event).filter(|_| dropped);
        let texts = chain.map(|chain| chain.rules.iter().map(|rule| rule.source_text().trim()));
        RuleMatch {
            backend: event.backend,
            table: event.table.clone(),
            chain: event.chain.clone(),
            number,
            rule: rule.map(|rule| rule.source_text().trim().to_owned()),
            entries: rule
                .map(|rule| self.entries(&event.namespace, rule, flow, payload))
                .unwrap_or_default(),
            service: None,
            packets: rule.and_then(|rule| rule.packets),
            flow,
            mark: event.mark,
            dropped,
            target,
            earlier: earlier(texts, number),
        }
    }

    /// Builds the rule match of a trace event in a native nftables table.
    fn native_rule_match(
        &self,
        event: &TraceEvent,
        number: Option<u32>,
        end: Option<&str>,
        packet: Packet,
    ) -> RuleMatch {
        let family = nftables::family(event).unwrap_or_default();
        let listing = self.native.get(event.namespace.as_str());
        let chain = listing.and_then(|listing| listing.chain(event));
        let table = listing.and_then(|listing| listing.table(event));
        let rule = number.and_then(|number| nftables::rule(chain?, number));
        let (rule, packets) = rule.map(nft::Rule::split_counter).unzip();
        let target = end
            .map(str::to_owned)
            .or_else(|| nftables::target(rule.as_ref(), event.verdict.as_ref()));
        let entries = match (table, &rule) {
            (Some(table), Some(rule)) => {
                nftables::matching_entries(table, &rule.text, &packet, event.verdict.as_ref())
            }
            _ => Vec::new(),
        };
        let service = table
            .and_then(|table| nftables::service(table, &event.chain, target.as_deref(), &entries));
        let dropped = event.verdict == Some(RuleVerdict::Drop) || is_drop_target(target.as_deref());
        let texts = chain
            .filter(|_| dropped)
            .map(|chain| chain.rules.iter().map(|rule| rule.text.as_str()));
        RuleMatch {
            backend: event.backend,
            table: format!("{family} {}", event.table),
            chain: event.chain.clone(),
            number,
            rule: rule.as_ref().map(ToString::to_string),
            entries,
            service,
            packets: packets.flatten(),
            flow: packet.flow,
            mark: event.mark,
            dropped,
            target,
            earlier: earlier(texts, number),
        }
    }

    /// Returns the stage of a packet in a namespace, from 0 (ingress) to 3 (egress), if the chain
    /// belongs to a hook; `None` for other chains. IPVS sends packets from the input hook on
    /// through the output hook.
    pub(super) fn stage(&self, event: &TraceEvent) -> Option<u8> {
        let hook = if self.is_native(event) {
            let chain = self.native.get(event.namespace.as_str())?.chain(event)?;
            chain.hook.as_ref()?.hook.as_str()
        } else {
            event.chain.as_str()
        };
        match hook {
            "ingress" | "prerouting" | "PREROUTING" => Some(0),
            "input" | "forward" | "INPUT" | "FORWARD" => Some(1),
            "output" | "OUTPUT" => Some(OUTPUT_STAGE),
            "postrouting" | "egress" | "POSTROUTING" => Some(3),
            _ => None,
        }
    }

    /// Whether the table of a trace event is a native nftables table.
    fn is_native(&self, event: &TraceEvent) -> bool {
        if event.backend == Backend::Legacy {
            return false;
        }
        let Some(table) = Table::from_name(&event.table).filter(|_| !event.inet) else {
            return true;
        };
        let key = (event.namespace.as_str(), event.backend, event.ip_version);
        let dump = self.rules.get(&key);
        let is_iptables_chain = dump.is_some_and(|dump| dump.chain(table, &event.chain).is_some());
        let listing = self.native.get(event.namespace.as_str());
        !is_iptables_chain && listing.is_some_and(|listing| listing.chain(event).is_some())
    }

    fn chain<'s>(&'s self, event: &'s TraceEvent) -> Option<&'s Chain> {
        let key = (event.namespace.as_str(), event.backend, event.ip_version);
        let dump = self.rules.get(&key).filter(|_| !event.inet)?;
        dump.chain(Table::from_name(&event.table)?, &event.chain)
    }

    fn rule<'s>(&'s self, event: &'s TraceEvent, number: u32) -> Option<&'s Rule> {
        let chain = self.chain(event)?;
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        chain.rules.get(index)
    }

    /// Whether the trace event is the end of a chain with policy DROP.
    fn is_drop_policy(&self, event: &TraceEvent) -> bool {
        let policy = || self.chain(event)?.policy.as_deref();
        event.point == TracePoint::Policy && event.verdict.is_none() && policy() == Some("DROP")
    }

    /// Returns, for each set that a rule looks up, the entry that matches the packet.
    fn entries(
        &self,
        namespace: &str,
        rule: &Rule,
        flow: AddressPair,
        payload: Payload,
    ) -> Vec<String> {
        let rule_parts = rule.parts();
        let set_options = rule_parts
            .matches
            .iter()
            .filter(|module| module.name == "set")
            .flat_map(|module| &module.options)
            .filter(|choice| choice.name == "--match-set" && !choice.is_negated);
        let sets = self.sets.get(namespace);
        set_options
            .filter_map(|choice| {
                let [set, directions] = choice.values.as_slice() else {
                    return None;
                };
                let kind = sets?.get(set.as_ref())?;
                let entry = entry_key(kind, directions, flow, payload)?;
                Some(format!("{set} {entry}"))
            })
            .collect()
    }
}

fn is_drop_target(target: Option<&str>) -> bool {
    matches!(target, Some("DROP" | "REJECT"))
}

/// Returns the rules of a chain before the rule with a number. Empty if there are many.
fn earlier<'t>(rules: Option<impl Iterator<Item = &'t str>>, number: Option<u32>) -> Vec<String> {
    let count = number.and_then(|number| usize::try_from(number).ok());
    let count = count.map_or(0, |number| number.saturating_sub(1));
    let rules = rules.into_iter().flatten().take(count);
    if count > MAX_EARLIER_RULES {
        return Vec::new();
    }
    rules.map(str::to_owned).collect()
}

/// Returns the key by which a set of type `kind` looks up a packet with `directions` (`dst,dst`),
/// in the format of entries in `ipset save`.
fn entry_key(kind: &str, directions: &str, flow: AddressPair, payload: Payload) -> Option<String> {
    let protocol = match payload {
        Payload::Tcp(_) => "tcp",
        Payload::Udp => "udp",
        _ => "icmp",
    };
    let (_, parts) = kind.split_once(':')?;
    // A port is prefixed with its protocol only next to an address.
    let port_only = parts == "port";
    let part = |(part, direction): (&str, &str)| {
        let end: SocketAddr = match direction {
            "dst" => flow.destination,
            "src" => flow.source,
            _ => return None,
        };
        let address: IpAddr = end.ip();
        Some(match part {
            "ip" | "net" => address.to_string(),
            "port" if port_only => end.port().to_string(),
            "port" => format!("{protocol}:{}", end.port()),
            _ => return None,
        })
    };
    let parts: Option<Vec<String>> = parts
        .split(',')
        .zip(directions.split(','))
        .map(part)
        .collect();
    Some(parts?.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_key_directions_returns_ipset_format() {
        let flow = AddressPair {
            source: "10.0.1.5:41000".parse().unwrap(),
            destination: "172.18.1.1:443".parse().unwrap(),
        };
        let key = |kind, directions| entry_key(kind, directions, flow, Payload::Tcp(2));
        assert_eq!(
            key("hash:ip,port", "dst,dst").as_deref(),
            Some("172.18.1.1,tcp:443")
        );
        assert_eq!(key("bitmap:port", "dst").as_deref(), Some("443"));
        assert_eq!(
            key("hash:ip,port,ip", "dst,dst,src").as_deref(),
            Some("172.18.1.1,tcp:443,10.0.1.5")
        );
        assert_eq!(key("hash:mac", "src"), None);
    }
}
