//! The state that the components of the lab write on their own: without dumps, manual changes,
//! leftovers, and sysctls of the lab. Differences from this state may be the cause of a failure,
//! and a change of this state does not last.

use std::collections::HashMap;
use std::sync::Arc;

use ipnetwork::IpNetwork;

use super::change::{Origin, ProposedChange};
use super::request::WhyRequest;
use crate::bisect::{Difference, Kind};
use svclab_dump::Owner;
use svclab_model::plan::{Link, NFTABLES_TABLE, Namespace, Plan, Route};
use svclab_rules::kube_proxy::ipvs::DUMMY;
use svclab_ruleset::iptables::chains::{Chains, TableChains};
use svclab_ruleset::iptables::command::Command;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::nft::canonical;
use svclab_runner::run::prepare::prepare;
use svclab_scenario::lab::{ByHand, LabSpec, Leftovers};

/// Components that rewrite their chains and sets after changes, each with the prefix of the names.
const COMPONENT_PREFIXES: [(&str, &str); 5] = [
    (KUBE_PROXY, "KUBE-"),
    ("ip-masq-agent", "IP-MASQ-AGENT"),
    ("calico", "cali"),
    ("flannel", "FLANNEL-"),
    ("docker", "DOCKER"),
];

const KUBE_PROXY: &str = "kube-proxy";

/// Prefixes of the devices whose routes a component manages.
const OVERLAY_DEVICES: [&str; 6] = ["flannel", "cali", "vxlan.calico", "tunl", "cni", "cbr"];

/// State that the components write.
#[derive(Debug, Default)]
pub(super) struct ComponentState {
    /// Plan with this state; `None` if the lab is invalid without its dumps.
    plan: Option<Plan>,
    /// Rules of each namespace, by IP family (`true` for IPv6).
    rules: HashMap<(String, bool), Chains>,
}

impl ComponentState {
    pub(super) fn new(request: &WhyRequest<'_>) -> Self {
        let mut case = request.prepared.case.clone();
        remove_deviations(Arc::make_mut(&mut case.spec));
        for step in &mut case.steps {
            remove_deviations(Arc::make_mut(&mut step.spec));
        }
        let mut options = request.wishes.clone();
        options.dumps.clear();
        options.kube_proxy = None;
        let Ok(prepared) = prepare(request.lab, &case, options) else {
            return Self::default();
        };
        Self::from_plan(prepared.plan)
    }

    fn from_plan(plan: Plan) -> Self {
        let mut rules = HashMap::new();
        for namespace in &plan.namespaces {
            for written in namespace.iptables_rules() {
                for (v6, input) in [(false, &written.v4), (true, &written.v6)] {
                    let script = input.state().ok();
                    let chains = script.and_then(|script| Chains::from_script(script).ok());
                    if let Some(chains) = chains {
                        rules.insert((namespace.name.clone(), v6), chains);
                    }
                }
            }
        }
        Self {
            plan: Some(plan),
            rules,
        }
    }

    /// Returns the plan with the state that components write. `None` if it is unknown.
    pub(super) const fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Returns whether a component undoes the change, because it writes what the change deletes.
    pub(super) fn origin(&self, change: &ProposedChange) -> Origin {
        let is_written = match change {
            ProposedChange::DeleteRule {
                namespace,
                v6,
                table,
                chain,
                rule,
                ..
            } => self.writes_rule((namespace.as_str(), *v6), table, chain, rule),
            ProposedChange::DeleteSetEntry {
                namespace,
                set,
                entry,
            } => self.writes_entry(namespace, set, entry),
            ProposedChange::DeleteNftRule {
                namespace,
                table,
                chain,
                rule,
                ..
            } => self.writes_nft_rule(namespace, table, chain, rule),
            ProposedChange::DeleteNftElement {
                namespace,
                table,
                set,
                key,
            } => self.writes_element(namespace, table, set, key),
            ProposedChange::DeleteRoute { namespace, route } => self.writes_route(namespace, route),
            ProposedChange::DeleteAddress {
                namespace,
                link,
                address,
            } => self.writes_address(namespace, link, *address),
            _ => false,
        };
        if is_written {
            Origin::Generated
        } else {
            Origin::Configured
        }
    }

    /// Whether a difference can be restored: objects of a component that the lab does not have are
    /// no deviation.
    pub(super) fn covers(&self, difference: &Difference) -> bool {
        let component = match &difference.owner {
            None => return true,
            Some(_) if difference.good.is_some() => return true,
            Some(Owner::Service(_)) => KUBE_PROXY,
            Some(Owner::Component(name)) => name.as_str(),
        };
        let mut known = COMPONENT_PREFIXES.into_iter();
        let Some((_, prefix)) = known.find(|(name, _)| *name == component) else {
            return difference.kind == Kind::Link;
        };
        let Some(namespace) = self.namespace(&difference.namespace) else {
            return false;
        };
        let written = [false, true].into_iter().filter_map(|v6| {
            let key = (namespace.name.clone(), v6);
            self.rules.get(&key)
        });
        let mut tables = written.flat_map(|chains| chains.tables.values());
        let has_chain = |of: &TableChains| of.chains.keys().any(|name| name.starts_with(prefix));
        let is_native = component == KUBE_PROXY
            && (!namespace.ipvs.is_empty() || namespace.nft.text().contains(NFTABLES_TABLE));
        is_native || tables.any(has_chain)
    }

    fn namespace(&self, name: &str) -> Option<&Namespace> {
        self.plan.as_ref()?.namespace(name)
    }

    /// Whether a component writes the rule again. If the lab does not have the component, the names
    /// of the chains decide.
    fn writes_rule(&self, owner: (&str, bool), table: &str, chain: &str, rule: &str) -> bool {
        let target = rule.rsplit_once("-j ").map(|(_, target)| target);
        let words = [Some(chain), target].into_iter().flatten();
        let Some(prefix) = words.into_iter().find_map(component_prefix) else {
            return false;
        };
        let key = (owner.0.to_owned(), owner.1);
        let chains = self.rules.get(&key);
        let Some((chains, table)) = chains.zip(Table::from_name(table)) else {
            return true;
        };
        let mut names = chains.tables.values().flat_map(|of| of.chains.keys());
        if !names.any(|name| name.starts_with(prefix)) {
            return true;
        }
        let deletion = Command::delete(chain, rule);
        chains.clone().apply(table, &deletion).is_ok()
    }

    fn writes_entry(&self, namespace: &str, set: &str, entry: &str) -> bool {
        if component_prefix(set).is_none() {
            return false;
        }
        let known = self.namespace(namespace).map(|known| &known.ipset);
        let sets = known.and_then(|input| input.state().ok());
        match sets.filter(|sets| !sets.is_empty()) {
            Some(sets) => sets
                .get(set)
                .is_some_and(|set| set.entries.contains_key(entry)),
            None => true,
        }
    }

    fn writes_nft_rule(&self, namespace: &str, table: &str, chain: &str, rule: &str) -> bool {
        self.nft_table_has(namespace, table, |known| {
            let rules = known
                .chain(chain)
                .into_iter()
                .flat_map(|chain| &chain.rules);
            let mut texts = rules.map(|known| canonical(&known.text));
            let wanted = canonical(rule);
            texts.any(|text| text == wanted)
        })
    }

    fn writes_element(&self, namespace: &str, table: &str, set: &str, key: &str) -> bool {
        self.nft_table_has(namespace, table, |known| {
            let mut elements = known.set(set).into_iter().flat_map(|set| &set.elements);
            elements.any(|element| element.key == key)
        })
    }

    /// Whether a table of kube-proxy has an object. A table of others is no component's.
    fn nft_table_has(
        &self,
        namespace: &str,
        table: &str,
        has: impl FnOnce(&svclab_ruleset::nft::Table) -> bool,
    ) -> bool {
        if table.split_once(' ').map(|(_, name)| name) != Some(NFTABLES_TABLE) {
            return false;
        }
        let known = self.namespace(namespace).map(|known| &known.nft);
        let ruleset = known.and_then(|input| input.state().ok());
        let mut tables = ruleset.into_iter().flat_map(|ruleset| &ruleset.tables);
        tables
            .find(|known| known.full_name() == table)
            .is_none_or(has)
    }

    fn writes_route(&self, namespace: &str, route: &Route) -> bool {
        let is_overlay = |dev: &str| OVERLAY_DEVICES.iter().any(|own| dev.starts_with(own));
        if !is_overlay(&route.dev) {
            return false;
        }
        let Some(known) = self.namespace(namespace) else {
            return true;
        };
        let mut routes = known.routes.iter();
        let has_device = known.links.iter().any(|link| link.name == route.dev);
        !has_device || routes.any(|own| own == route)
    }

    /// Whether kube-proxy binds the address again.
    fn writes_address(&self, namespace: &str, link: &str, address: IpNetwork) -> bool {
        let links = self.namespace(namespace).map(|known| &known.links);
        let own = links.map(|links| links.iter().find(|own| own.name == link));
        let has_address = |own: &Link| own.addresses.contains(&address);
        link == DUMMY && own.is_none_or(|own| own.is_none_or(has_address))
    }
}

fn component_prefix(name: &str) -> Option<&'static str> {
    let mut prefixes = COMPONENT_PREFIXES.into_iter().map(|(_, prefix)| prefix);
    prefixes.find(|prefix| name.starts_with(prefix))
}

/// Removes everything of a lab that differs from what components write.
fn remove_deviations(spec: &mut LabSpec) {
    // Probes may call what only the deviations serve.
    spec.probes.clear();
    spec.flows.clear();
    for node in spec.nodes.values_mut() {
        node.dump = None;
        node.by_hand = ByHand::default();
        node.leftovers = Leftovers::default();
        node.sysctls.clear();
    }
    let proxies = spec.nodes.values_mut();
    let proxies = proxies.filter_map(|node| node.kube_proxy.as_mut());
    for proxy in proxies.chain(&mut spec.kube_proxy) {
        proxy.binary = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::{Backend, Iptables};
    use svclab_ruleset::input::Input;

    fn state(rules: &str) -> ComponentState {
        let iptables = (!rules.is_empty()).then(|| Iptables {
            backend: Backend::Nft,
            v4: Input::from_text(rules),
            v6: Input::default(),
        });
        ComponentState::from_plan(Plan {
            namespaces: vec![Namespace {
                name: "node-1".to_owned(),
                iptables,
                ..Namespace::default()
            }],
            ..Plan::default()
        })
    }

    fn delete_rule(chain: &str, rule: &str) -> ProposedChange {
        ProposedChange::DeleteRule {
            namespace: "node-1".to_owned(),
            backend: Backend::Nft,
            v6: false,
            table: "nat".to_owned(),
            chain: chain.to_owned(),
            number: 1,
            rule: rule.to_owned(),
        }
    }

    #[test]
    fn covers_objects_of_components_of_the_lab() {
        let rules = "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n";
        let difference = |owner: Option<&str>, good: Option<&str>| Difference {
            namespace: "node-1".to_owned(),
            kind: Kind::Rule,
            location: "iptables nat KUBE-SERVICES".to_owned(),
            good: good.map(str::to_owned),
            bad: Some("-j DROP".to_owned()),
            owner: owner.map(|name| Owner::Component(name.to_owned())),
        };
        let covers = |rules: &str, owner, good| state(rules).covers(&difference(owner, good));
        assert!(covers(rules, Some("kube-proxy"), None));
        assert!(!covers("", Some("kube-proxy"), None));
        assert!(!covers(rules, Some("calico"), None));
        assert!(covers("", None, None));
        assert!(covers("", Some("kube-proxy"), Some("-j RETURN")));
    }

    #[test]
    fn origin_rule_that_component_writes_is_generated() {
        let rules = "*nat\n:KUBE-SERVICES - [0:0]\n-A OUTPUT -j KUBE-SERVICES\n-A KUBE-SERVICES -d 10.96.0.1/32 -j RETURN\nCOMMIT\n";
        for (chain, rule, with_component, without) in [
            (
                "KUBE-SERVICES",
                "-d 10.96.0.1/32 -j RETURN",
                Origin::Generated,
                Origin::Generated,
            ),
            // A rule that somebody added to a chain of kube-proxy.
            (
                "KUBE-SERVICES",
                "-d 10.96.0.2/32 -j DROP",
                Origin::Configured,
                Origin::Generated,
            ),
            (
                "OUTPUT",
                "-j KUBE-SERVICES",
                Origin::Generated,
                Origin::Generated,
            ),
            (
                "POSTROUTING",
                "-s 10.0.0.0/8 -j RETURN",
                Origin::Configured,
                Origin::Configured,
            ),
        ] {
            let change = delete_rule(chain, rule);
            assert_eq!(state(rules).origin(&change), with_component, "{change}");
            assert_eq!(state("").origin(&change), without, "{change}");
        }
        for (link, expected) in [
            ("kube-ipvs0", Origin::Generated),
            ("eth0", Origin::Configured),
        ] {
            let change = ProposedChange::DeleteAddress {
                namespace: "node-1".to_owned(),
                link: link.to_owned(),
                address: "10.96.0.1/32".parse().expect("an address"),
            };
            assert_eq!(state("").origin(&change), expected);
        }
        let flag = ProposedChange::MasqueradeAll;
        assert_eq!(state(rules).origin(&flag), Origin::Configured);
    }
}
