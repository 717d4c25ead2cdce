//! Looks up the text of rules that packets matched, and the set entries by which the rules matched.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use super::Step;
use super::native::{self, Listing, Packet};
use crate::packet::Payload;
use svclab_model::evidence::met::{At, Verdict};
use svclab_model::evidence::{Evidence, Flow, Met};
use svclab_model::plan::Backend;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::iptables::{Dump, Rule};
use svclab_ruleset::text::Text;

/// Index of the rules and sets of all namespaces, as read back from the kernel.
pub struct RuleBook<'e> {
    rules: HashMap<(&'e str, Backend, u8), Dump>,
    /// Native nftables rules by namespace.
    native: HashMap<&'e str, Listing>,
    /// Type of each set, such as `hash:ip,port`, by namespace and name.
    sets: HashMap<&'e str, BTreeMap<String, String>>,
}

impl<'e> RuleBook<'e> {
    /// Indexes the rules of the evidence. A dump that cannot be parsed is left out.
    pub fn of(evidence: &'e Evidence) -> Self {
        let rules = evidence
            .rules
            .iter()
            .filter_map(|saved| {
                let key = (saved.namespace.as_str(), saved.backend, saved.ip);
                Some((key, Dump::parse(&saved.text).ok()?))
            })
            .collect();
        let sets = evidence
            .held
            .iter()
            .map(|(namespace, held)| {
                let read = svclab_ruleset::ipset::saved::read(
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
            .map(|(namespace, text)| (namespace.as_str(), Listing::read(text)))
            .collect();
        Self {
            rules,
            native,
            sets,
        }
    }

    /// Builds the rule match of a trace event. `flow` and `payload` are those of the packet at that
    /// moment.
    pub fn step(&self, met: &Met, flow: Flow, payload: Payload) -> Step {
        let (number, end) = match met.at {
            At::Rule(number) => (Some(number), None),
            At::Return => (None, Some("return")),
            At::Policy => (None, Some("policy")),
        };
        let rule = number.and_then(|number| self.rule(met, number));
        if rule.is_none() && self.is_native(met) {
            return self.native_step(met, number, end, Packet { flow, payload });
        }
        let target = match (rule, end) {
            (_, Some(end)) => Some(end.to_owned()),
            (Some(rule), None) => rule.target().map(std::borrow::Cow::into_owned),
            (None, None) => None,
        };
        let by_target = matches!(target.as_deref(), Some("DROP" | "REJECT"));
        Step {
            by: met.by,
            table: met.table.clone(),
            chain: met.chain.clone(),
            number,
            rule: rule.map(|rule| rule.written().trim().to_owned()),
            entries: rule
                .map(|rule| self.entries(&met.namespace, rule, flow, payload))
                .unwrap_or_default(),
            service: None,
            flow,
            mark: met.mark,
            dropped: met.verdict == Some(Verdict::Drop) || by_target || self.drops(met),
            target,
        }
    }

    /// Builds the rule match of a trace event in a native nftables table.
    fn native_step(
        &self,
        met: &Met,
        number: Option<u32>,
        end: Option<&str>,
        packet: Packet,
    ) -> Step {
        let family = native::family(met).unwrap_or_default();
        let listing = self.native.get(met.namespace.as_str());
        let chain = listing.and_then(|listing| listing.chain(met));
        let table = listing.and_then(|listing| listing.table(met));
        let rule = number.and_then(|number| native::rule(chain?, number));
        let target = end
            .map(str::to_owned)
            .or_else(|| native::target(rule, met.verdict.as_ref()));
        let entries = match (table, rule) {
            (Some(table), Some(rule)) => {
                native::entries(table, &rule.text, &packet, met.verdict.as_ref())
            }
            _ => Vec::new(),
        };
        let service =
            table.and_then(|table| native::service(table, &met.chain, target.as_deref(), &entries));
        let by_target = matches!(target.as_deref(), Some("DROP" | "REJECT"));
        Step {
            by: met.by,
            table: format!("{family} {}", met.table),
            chain: met.chain.clone(),
            number,
            rule: rule.map(ToString::to_string),
            entries,
            service,
            flow: packet.flow,
            mark: met.mark,
            dropped: met.verdict == Some(Verdict::Drop) || by_target,
            target,
        }
    }

    /// Returns the stage of a packet in a namespace, from 0 (ingress) to 3 (egress), if the chain
    /// belongs to a hook; `None` for other chains. IPVS sends packets from the input hook on
    /// through the output hook.
    pub fn stage(&self, met: &Met) -> Option<u8> {
        let hook = if self.is_native(met) {
            let chain = self.native.get(met.namespace.as_str())?.chain(met)?;
            chain.hook.as_ref()?.hook.as_str()
        } else {
            met.chain.as_str()
        };
        match hook {
            "ingress" | "prerouting" | "PREROUTING" => Some(0),
            "input" | "forward" | "INPUT" | "FORWARD" => Some(1),
            "output" | "OUTPUT" => Some(2),
            "postrouting" | "egress" | "POSTROUTING" => Some(3),
            _ => None,
        }
    }

    /// Whether the table of a trace event is a native nftables table.
    fn is_native(&self, met: &Met) -> bool {
        if met.by == Backend::Legacy {
            return false;
        }
        let Some(table) = Table::from_name(&met.table).filter(|_| !met.inet) else {
            return true;
        };
        let key = (met.namespace.as_str(), met.by, met.ip);
        let dump = self.rules.get(&key);
        let known = dump.is_some_and(|dump| dump.chain(table, &met.chain).is_some());
        let listing = self.native.get(met.namespace.as_str());
        !known && listing.is_some_and(|listing| listing.chain(met).is_some())
    }

    fn rule<'s>(&'s self, met: &'s Met, number: u32) -> Option<&'s Rule> {
        if met.inet {
            return None;
        }
        let dump = self.rules.get(&(met.namespace.as_str(), met.by, met.ip))?;
        let chain = dump.chain(Table::from_name(&met.table)?, &met.chain)?;
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        chain.rules.get(at)
    }

    /// Whether the trace event is the end of a chain with policy DROP.
    fn drops(&self, met: &Met) -> bool {
        let policy = || {
            let dump = self.rules.get(&(met.namespace.as_str(), met.by, met.ip))?;
            let chain = dump.chain(Table::from_name(&met.table)?, &met.chain)?;
            chain.policy.as_deref()
        };
        met.at == At::Policy && met.verdict.is_none() && policy() == Some("DROP")
    }

    /// Returns, for each set that a rule looks up, the entry that matches the packet.
    fn entries(&self, namespace: &str, rule: &Rule, flow: Flow, payload: Payload) -> Vec<String> {
        let parts = rule.parts();
        let asked = parts
            .matches
            .iter()
            .filter(|module| module.name == "set")
            .flat_map(|module| &module.choices)
            .filter(|choice| choice.name == "--match-set" && !choice.negated);
        let sets = self.sets.get(namespace);
        asked
            .filter_map(|choice| {
                let [set, directions] = choice.values.as_slice() else {
                    return None;
                };
                let kind = sets?.get(set.as_ref())?;
                let entry = entry(kind, directions, flow, payload)?;
                Some(format!("{set} {entry}"))
            })
            .collect()
    }
}

/// Returns the key by which a set of type `kind` looks up a packet with `directions` (`dst,dst`),
/// in the format of entries in `ipset save`.
fn entry(kind: &str, directions: &str, flow: Flow, payload: Payload) -> Option<String> {
    let protocol = match payload {
        Payload::Tcp(_) => "tcp",
        Payload::Udp => "udp",
        _ => "icmp",
    };
    let (_, parts) = kind.split_once(':')?;
    // A port is prefixed with its protocol only next to an address.
    let alone = parts == "port";
    let part = |(part, direction): (&str, &str)| {
        let end: SocketAddr = match direction {
            "dst" => flow.destination,
            "src" => flow.source,
            _ => return None,
        };
        let address: IpAddr = end.ip();
        Some(match part {
            "ip" | "net" => address.to_string(),
            "port" if alone => end.port().to_string(),
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
    fn an_entry_is_written_as_the_set_prints_it() {
        let flow = Flow {
            source: "10.0.1.5:41000".parse().unwrap(),
            destination: "172.18.1.1:443".parse().unwrap(),
        };
        let of = |kind, directions| entry(kind, directions, flow, Payload::Tcp(2));
        assert_eq!(
            of("hash:ip,port", "dst,dst").as_deref(),
            Some("172.18.1.1,tcp:443")
        );
        assert_eq!(of("bitmap:port", "dst").as_deref(), Some("443"));
        assert_eq!(
            of("hash:ip,port,ip", "dst,dst,src").as_deref(),
            Some("172.18.1.1,tcp:443,10.0.1.5")
        );
        assert_eq!(of("hash:mac", "src"), None);
    }
}
