//! The rules that were met, by their own texts, and the set entries by which they
//! matched.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use super::Step;
use super::native::{self, Listing};
use crate::dump::iptables::{Dump, Rule};
use crate::dump::text::Text;
use crate::evidence::met::{At, Verdict};
use crate::evidence::{Evidence, Flow, Met};
use crate::explain::packet::Payload;
use crate::plan::Backend;
use crate::rules::script::Table;

/// The rules and sets of all namespaces, as they were read back.
pub struct RuleBook<'e> {
    rules: HashMap<(&'e str, Backend, u8), Dump>,
    /// By namespace, rules that no iptables prints.
    native: HashMap<&'e str, Listing<'e>>,
    /// By namespace, what each set's entries are made of.
    sets: HashMap<&'e str, BTreeMap<String, String>>,
}

impl<'e> RuleBook<'e> {
    /// Those of the evidence; a dump that cannot be read is none.
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
                let read = crate::dump::sets::read(&Text::new(held.sets.as_str()), &mut Vec::new());
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

    /// A step that was told of, with its rule; `flow` and `payload` are the packet's
    /// at that moment.
    pub fn step(&self, met: &Met, flow: Flow, payload: Payload) -> Step {
        let (number, end) = match met.at {
            At::Rule(number) => (Some(number), None),
            At::Return => (None, Some("return")),
            At::Policy => (None, Some("policy")),
        };
        let rule = number.and_then(|number| self.rule(met, number));
        let native = number.filter(|_| rule.is_none());
        let native = native.and_then(|number| self.native(met, number));
        let target = match (rule, end) {
            (_, Some(end)) => Some(end.to_owned()),
            (Some(rule), None) => rule.target().map(std::borrow::Cow::into_owned),
            (None, None) => native.and_then(native::target).map(str::to_owned),
        };
        let text = rule.map(Rule::written).or(native);
        let by_target = matches!(target.as_deref(), Some("DROP" | "REJECT"));
        Step {
            by: met.by,
            table: if met.inet {
                format!("inet {}", met.table)
            } else {
                met.table.clone()
            },
            chain: met.chain.clone(),
            number,
            rule: text.map(|text| text.trim().to_owned()),
            entries: rule
                .map(|rule| self.entries(&met.namespace, rule, flow, payload))
                .unwrap_or_default(),
            flow,
            mark: met.mark,
            dropped: met.verdict == Some(Verdict::Drop) || by_target || self.drops(met),
            target,
        }
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

    fn native(&self, met: &Met, number: u32) -> Option<&str> {
        let family = match (met.by, met.inet, met.ip) {
            (Backend::Legacy, ..) => return None,
            (Backend::Nft, true, _) => "inet",
            (Backend::Nft, false, 6) => "ip6",
            (Backend::Nft, false, _) => "ip",
        };
        let listing = self.native.get(met.namespace.as_str())?;
        listing.rule(family, &met.table, &met.chain, number)
    }

    /// Whether it is the end of a chain whose policy is to drop.
    fn drops(&self, met: &Met) -> bool {
        let policy = || {
            let dump = self.rules.get(&(met.namespace.as_str(), met.by, met.ip))?;
            let chain = dump.chain(Table::from_name(&met.table)?, &met.chain)?;
            chain.policy.as_deref()
        };
        met.at == At::Policy && met.verdict.is_none() && policy() == Some("DROP")
    }

    /// For each set that a rule asks for, the entry that the packet must have hit.
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

/// What a set of this kind is asked for when a packet is looked up by `directions`
/// (`dst,dst`), written as `ipset save` writes its entries.
fn entry(kind: &str, directions: &str, flow: Flow, payload: Payload) -> Option<String> {
    let protocol = match payload {
        Payload::Tcp(_) => "tcp",
        Payload::Udp => "udp",
        _ => "icmp",
    };
    let (_, parts) = kind.split_once(':')?;
    // A port stands with its protocol only where an address does, too.
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
