//! Compares the rules, sets and virtual servers that a packet met with those of the lab.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::rule_match::PacketAtRule;
use svclab_dump::{Difference, DumpChange, DumpLocation, NodeDump, Side, compare};
use svclab_journey::journey::{Hop, PacketPath, RuleMatch};
use svclab_model::evidence::StageEvidence;
use svclab_model::plan::{Backend, Namespace, Plan, VirtualServer};
use svclab_ruleset::Family;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::iptables::{IptablesRules, Rule, TableRules};
use svclab_ruleset::nft::Ruleset;
use svclab_ruleset::text::Text;
use svclab_ruleset::tool::DumpedBackend;
use svclab_ruleset::{ipset, ipvs, nft};

/// Observed rules, sets and virtual servers, and their differences from the lab.
#[derive(Debug)]
pub(crate) struct ObservedRules<'a> {
    plan: &'a Plan,
    evidence: &'a StageEvidence,
    /// Rules and differences by namespace, computed on first use.
    by_namespace: OnceCell<BTreeMap<String, NamespaceRules>>,
}

#[derive(Debug)]
struct NamespaceRules {
    observed: NodeDump,
    differences: Vec<Difference>,
}

impl<'a> ObservedRules<'a> {
    pub(crate) const fn new(plan: &'a Plan, evidence: &'a StageEvidence) -> Self {
        Self {
            plan,
            evidence,
            by_namespace: OnceCell::new(),
        }
    }

    /// Returns the differences that a packet met in one hop.
    pub(super) fn met(&self, flight: &PacketPath, hop: &Hop) -> Vec<Difference> {
        let rules = self.namespace(&hop.namespace).into_iter();
        let differences = rules.flat_map(|rules| &rules.differences);
        let met = Met { flight, hop };
        differences
            .filter(|difference| met.is_met(difference))
            .cloned()
            .collect()
    }

    /// Returns the differences of a namespace that have an effect.
    pub(super) fn differences(&self, namespace: &str) -> impl Iterator<Item = &Difference> {
        let rules = self.namespace(namespace).into_iter();
        rules
            .flat_map(|rules| &rules.differences)
            .filter(|difference| has_effect(difference))
    }

    /// Returns the chains of the table of iptables in which a packet matched a rule. `None` if the
    /// table was not read back.
    pub(crate) fn table(&self, hop: &Hop, step: &RuleMatch) -> Option<&TableRules> {
        let namespace = self.plan.namespace(&hop.namespace)?;
        let family = match step.flow.destination {
            SocketAddr::V4(_) => Family::V4,
            SocketAddr::V6(_) => Family::V6,
        };
        let key = (family, dumped_backend(namespace, step.backend));
        let rules = &self.namespace(&hop.namespace)?.observed.rules;
        rules.get(&key)?.table(Table::from_name(&step.table)?)
    }

    fn namespace(&self, name: &str) -> Option<&NamespaceRules> {
        let all = self.by_namespace.get_or_init(|| self.compare_namespaces());
        all.get(name)
    }

    fn compare_namespaces(&self) -> BTreeMap<String, NamespaceRules> {
        // The plan does not have the rules of a real kube-proxy.
        let has_real_proxy =
            |namespace: &Namespace| self.plan.real_proxy(&namespace.name).is_some();
        let namespaces = self.plan.namespaces.iter();
        let compared = namespaces.map(|namespace| {
            let observed = observed(namespace, self.evidence);
            let planned = planned(namespace, &observed);
            let planned = planned.filter(|_| !has_real_proxy(namespace));
            let rules = NamespaceRules {
                differences: planned.map_or_else(Vec::new, |planned| compare(&planned, &observed)),
                observed,
            };
            (namespace.name.clone(), rules)
        });
        compared.collect()
    }
}

/// Returns the planned rules, sets and virtual servers, as far as they were read back. `None` if the
/// plan has an input without a typed form.
fn planned(namespace: &Namespace, observed: &NodeDump) -> Option<NodeDump> {
    let mut dump = NodeDump::default();
    for key in observed.rules.keys() {
        dump.rules.insert(*key, IptablesRules::default());
    }
    for input in namespace.iptables_rules() {
        let backend = dumped_backend(namespace, input.backend);
        for (family, script) in [(Family::V4, &input.v4), (Family::V6, &input.v6)] {
            let rules = IptablesRules::from_script(script.state().ok()?).ok()?;
            if let Some(planned) = dump.rules.get_mut(&(family, backend)) {
                *planned = rules;
            }
        }
    }
    if observed.sets.is_some() {
        dump.sets = Some(namespace.ipset.state().ok()?.clone());
    }
    if observed.nft.is_some() {
        dump.nft = Some(namespace.nft.state().ok()?.clone());
    }
    if observed.servers.is_some() {
        dump.servers = Some(servers(&namespace.ipvs));
    }
    Some(dump)
}

/// Returns the rules, sets and virtual servers that were read back. Those that the plan does not
/// have are omitted, unless the agent reads them in every namespace.
fn observed(namespace: &Namespace, evidence: &StageEvidence) -> NodeDump {
    let mut dump = NodeDump::default();
    let saved = evidence.rules.iter();
    for saved in saved.filter(|saved| saved.namespace == namespace.name) {
        let Ok(rules) = IptablesRules::parse(&saved.text) else {
            continue;
        };
        let family = match saved.ip_version {
            6 => Family::V6,
            _ => Family::V4,
        };
        let backend = dumped_backend(namespace, saved.backend);
        dump.rules.insert((family, backend), rules);
    }
    let Some(state) = evidence.kernel_state.get(&namespace.name) else {
        return dump;
    };
    if !namespace.ipset.is_empty() {
        let text = Text::new(state.sets.as_str());
        dump.sets = Some(ipset::saved::parse(&text, &mut Vec::new()));
    }
    // Tables that the plan does not have are read if they exist.
    let nft = if namespace.nft.is_empty() {
        evidence.nft.get(&namespace.name)
    } else {
        Some(&state.nft)
    };
    dump.nft = nft.and_then(|text| Some(native_tables(nft::parse(text).ok()?)));
    if !namespace.ipvs.is_empty() {
        dump.servers = Some(servers(&state.ipvs));
    }
    dump
}

/// Returns the backend as a dump of the node has it: the legacy backend beside another one.
fn dumped_backend(namespace: &Namespace, backend: Backend) -> DumpedBackend {
    let mut planned = namespace.iptables_rules();
    let is_first = planned
        .next()
        .is_some_and(|first| first.backend == Backend::Legacy);
    match backend {
        Backend::Legacy if !is_first => DumpedBackend::Legacy,
        Backend::Nft if is_first && namespace.iptables.is_some() => DumpedBackend::Legacy,
        _ => DumpedBackend::Default,
    }
}

/// Removes the tables that iptables manages, and entries that rules added.
fn native_tables(mut ruleset: Ruleset) -> Ruleset {
    ruleset.tables.retain(|table| {
        !matches!(table.family.as_str(), "ip" | "ip6") || Table::from_name(&table.name).is_none()
    });
    let sets = ruleset.tables.iter_mut().flat_map(|table| &mut table.sets);
    for set in sets.filter(|set| set.flags.iter().any(|flag| flag == "dynamic")) {
        set.elements.clear();
    }
    ruleset
}

fn servers(all: &[VirtualServer]) -> ipvs::saved::Servers {
    let text: String = all.iter().map(ToString::to_string).collect();
    ipvs::saved::parse(&Text::new(text), &mut Vec::new())
}

/// Whether a difference has an effect of its own: an additional object has none without its items,
/// except a chain whose policy drops packets.
fn has_effect(difference: &Difference) -> bool {
    match &difference.change {
        DumpChange::Whole { only, .. } => *only == Side::First,
        DumpChange::Value { first, second, .. } => {
            let is_drop = |value: &String| value.eq_ignore_ascii_case("drop");
            !matches!(difference.location, DumpLocation::Chain { .. })
                || first.is_some()
                || second.as_ref().is_some_and(is_drop)
        }
        _ => true,
    }
}

/// Packet in one namespace.
struct Met<'a> {
    flight: &'a PacketPath,
    hop: &'a Hop,
}

impl Met<'_> {
    /// Whether the packet met the object of a difference.
    fn is_met(&self, difference: &Difference) -> bool {
        match &difference.location {
            DumpLocation::Chain { table, chain, .. } => {
                self.is_met_in_chain(table, chain, &difference.change)
            }
            DumpLocation::NftTable { table } => {
                // Without the table, no packet can meet it.
                let is_missing = matches!(
                    difference.change,
                    DumpChange::Whole {
                        only: Side::First,
                        ..
                    }
                );
                is_missing || self.matches_in(table).next().is_some()
            }
            DumpLocation::NftSet { table, .. } => {
                self.matches_in(table).next().is_some() && self.names_packet(&difference.change)
            }
            DumpLocation::Set { .. } => self.names_packet(&difference.change),
            DumpLocation::Server { server } => {
                let mut words = server.split(' ');
                let address = words.nth(1).unwrap_or_default();
                self.addresses()
                    .any(|own| own.to_string() == address || own.ip().to_string() == address)
            }
            _ => false,
        }
    }

    fn matches_in(&self, table: &str) -> impl Iterator<Item = &RuleMatch> {
        self.hop
            .matches
            .iter()
            .filter(move |step| step.table == table)
    }

    fn is_met_in_chain(&self, table: &str, chain: &str, change: &DumpChange) -> bool {
        let is_visit = |step: &RuleMatch| step.chain == chain;
        let is_jump = |step: &RuleMatch| step.target.as_deref() == Some(chain);
        let is_visited = self
            .matches_in(table)
            .any(|step| is_visit(step) || is_jump(step));
        match change {
            DumpChange::Item {
                only: Side::Second,
                item,
                ..
            } => {
                let is_rule = |step: &RuleMatch| {
                    is_visit(step) && step.rule.as_ref().is_some_and(|rule| rule == item)
                };
                self.matches_in(table).any(is_rule)
            }
            DumpChange::Item { item, .. } => is_visited && self.may_match(item),
            DumpChange::Moved { .. }
            | DumpChange::Whole {
                only: Side::First, ..
            } => is_visited,
            DumpChange::Whole { .. } => false,
            DumpChange::Value { .. } => {
                let is_policy =
                    |step: &RuleMatch| is_visit(step) && step.target.as_deref() == Some("policy");
                self.matches_in(table).any(is_policy)
            }
        }
    }

    /// Returns the addresses that the packet had in the namespace.
    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let flows = self.hop.matches.iter().map(|step| step.flow);
        let flows = flows.chain([self.hop.before, self.hop.after]);
        flows.flat_map(|flow| [flow.source, flow.destination])
    }

    /// Whether the item of a change has an address of the packet, or only its destination port.
    fn names_packet(&self, change: &DumpChange) -> bool {
        let DumpChange::Item { item, .. } = change else {
            return matches!(change, DumpChange::Whole { .. });
        };
        let is_separator = |c: char| !(c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '/'));
        let words: Vec<&str> = item.split(is_separator).collect();
        let has_address = words.iter().any(|word| {
            let network: Option<ipnetwork::IpNetwork> = word.parse().ok();
            network.is_some_and(|network| self.addresses().any(|own| network.contains(own.ip())))
        });
        let names_address = words
            .iter()
            .any(|word| word.parse::<ipnetwork::IpNetwork>().is_ok());
        // `tcp:30080` in a set of ports has its protocol, as in other sets.
        let ports = item.split(|c: char| !c.is_ascii_digit());
        let mut ports = ports.filter_map(|port| port.parse::<u16>().ok());
        has_address
            || !names_address && ports.any(|port| self.addresses().any(|own| own.port() == port))
    }

    /// Whether the packet could have matched a rule of iptables.
    fn may_match(&self, rule: &str) -> bool {
        let Ok(rule) = Rule::from_words(rule) else {
            // A rule of nftables.
            return true;
        };
        let Hop { before, after, .. } = self.hop;
        let flows = self.hop.matches.iter().map(|step| step.flow);
        let mut flows = flows.chain([*before, *after]);
        flows.any(|flow| {
            let packet = PacketAtRule {
                hop: self.hop,
                kind: self.flight.kind,
                flow,
                mark: None,
            };
            packet.matches(&rule) != Some(false)
        })
    }
}
