//! Compares the iptables rules of two dumps by their meaning.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::difference::{DumpChange, Side};
use crate::lists::{self, ListItem};
use crate::owner::service_port;
use svclab_rules::kube_proxy::chains;
use svclab_rules::kube_proxy::ipvs::IPVS_OUT_FILTER;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::iptables::{Chain, IptablesRules, Rule};

/// Significance of the order of rules within a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Order of all rules is significant.
    Strict,
    /// Order of services is not significant in chains where kube-proxy lists services in the random
    /// order of a Go map. The order of the rules of one service, and of rules without a service,
    /// remains significant.
    ServicesInAnyOrder,
}

/// Difference between the rules of two dumps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleDifference {
    /// Table of the difference.
    pub table: Table,
    /// Chain of the difference.
    pub chain: String,
    /// Content of the difference.
    pub change: DumpChange,
}

impl fmt::Display for RuleDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            table,
            chain,
            change,
        } = self;
        write!(f, "{table} {chain}: {change}")
    }
}

/// Returns the differences of `second` from `first`. Counters, the order of tables and chains, and
/// the notation of rules are ignored. A built-in chain that only one dump lists is compared with an
/// empty one with the policy ACCEPT: whether it is printed depends on earlier use of the table.
#[must_use]
pub fn compare(first: &IptablesRules, second: &IptablesRules, order: Order) -> Vec<RuleDifference> {
    let (first_chains, second_chains) = (chains_by_name(first), chains_by_name(second));
    let names: BTreeSet<_> = first_chains
        .keys()
        .chain(second_chains.keys())
        .copied()
        .collect();
    let mut differences = Vec::new();
    for (table, name) in names {
        let key = (table, name);
        let unused = table.built_in_chains().contains(&name).then(|| Chain {
            name: name.to_owned(),
            policy: Some("ACCEPT".to_owned()),
            rules: Vec::new(),
            line: 0,
        });
        let [first, second] = [&first_chains, &second_chains]
            .map(|chains| chains.get(&key).copied().or(unused.as_ref()));
        let changes = match (first, second) {
            (Some(a), Some(b)) => chain_changes(a, b, order),
            (Some(a), None) => whole_chain_changes(a, Side::First),
            (None, Some(b)) => whole_chain_changes(b, Side::Second),
            (None, None) => Vec::new(),
        };
        differences.extend(changes.into_iter().map(|change| RuleDifference {
            table,
            chain: name.to_owned(),
            change,
        }));
    }
    differences
}

fn chains_by_name(dump: &IptablesRules) -> BTreeMap<(Table, &str), &Chain> {
    let mut chains = BTreeMap::new();
    for table in &dump.tables {
        for chain in &table.chains {
            chains.insert((table.table, chain.name.as_str()), chain);
        }
    }
    chains
}

/// Returns the changes for a chain with its rules that only one dump has.
fn whole_chain_changes(chain: &Chain, only: Side) -> Vec<DumpChange> {
    let line = chain.line;
    let rules = chain.rules.iter().map(|rule| DumpChange::Item {
        only,
        item: rule.source_text().trim_ascii().to_owned(),
        line: rule.line,
    });
    std::iter::once(DumpChange::Whole { only, line })
        .chain(rules)
        .collect()
}

fn chain_changes(first: &Chain, second: &Chain, order: Order) -> Vec<DumpChange> {
    let mut changes = Vec::new();
    if first.policy != second.policy {
        changes.push(DumpChange::Value {
            property: "policy".to_owned(),
            first: first.policy.clone(),
            second: second.policy.clone(),
        });
    }
    let (first_rules, second_rules) = (&first.rules, &second.rules);
    if !first_rules
        .iter()
        .map(Rule::source_text)
        .eq(second_rules.iter().map(Rule::source_text))
    {
        changes.extend(lists::compare(
            &normalized_rules(first, order),
            &normalized_rules(second, order),
        ));
    }
    changes
}

/// Whether kube-proxy lists services in the chain, in any order.
pub(super) fn lists_services(chain: &str) -> bool {
    matches!(
        chain,
        chains::SERVICES
            | chains::NODE_PORTS
            | chains::EXTERNAL_SERVICES
            | chains::PROXY_FIREWALL
            | IPVS_OUT_FILTER
    )
}

/// Returns the rules of a chain in an order without insignificant differences.
#[must_use]
pub fn normalized_rules(chain: &Chain, order: Order) -> Vec<ListItem> {
    let is_any_order = order == Order::ServicesInAnyOrder && lists_services(&chain.name);
    let mut items = Vec::with_capacity(chain.rules.len());
    let groups = if is_any_order {
        service_groups(&chain.rules)
    } else {
        BTreeMap::new()
    };
    let mut services: BTreeMap<&String, Vec<ListItem>> = BTreeMap::new();
    for rule in &chain.rules {
        let item = ListItem {
            key: rule.canonical_text(),
            source_text: rule.source_text().trim_ascii().to_owned(),
            line: rule.line,
        };
        if let Some(group) = service_port(rule).and_then(|name| groups.get(&name)) {
            services.entry(group).or_default().push(item);
        } else {
            items.extend(std::mem::take(&mut services).into_values().flatten());
            items.push(item);
        }
    }
    items.extend(services.into_values().flatten());
    if order == Order::ServicesInAnyOrder && chain.name == IPVS_OUT_FILTER {
        // There is one rule for each service, and no rule names its service.
        items.sort_by(|a, b| a.key.cmp(&b.key));
    }
    items
}

/// Returns the group of each service, named after one of its members. Services with rules for the
/// same destination, such as an external IP, form one group: the first of the rules decides.
fn service_groups(rules: &[Rule]) -> BTreeMap<String, String> {
    let mut groups: BTreeMap<String, String> = BTreeMap::new();
    let mut owners: BTreeMap<[Option<String>; 3], String> = BTreeMap::new();
    for rule in rules {
        let Some(name) = service_port(rule) else {
            continue;
        };
        let owner = owners.entry(rule_destination(rule)).or_insert(name.clone());
        let group = groups.entry(name.clone()).or_insert(name).clone();
        let Some(owner_group) = groups.get(owner).filter(|other| **other != group) else {
            continue;
        };
        let (kept, merged) = if *owner_group < group {
            (owner_group.clone(), group)
        } else {
            (group, owner_group.clone())
        };
        for each in groups.values_mut().filter(|each| **each == merged) {
            each.clone_from(&kept);
        }
    }
    groups
}

/// Returns the address, protocol and port that a rule matches.
fn rule_destination(rule: &Rule) -> [Option<String>; 3] {
    let parts = rule.parts();
    let port = parts
        .matches
        .iter()
        .find_map(|module| module.value("--dport"));
    [parts.header("-d"), parts.header("-p"), port].map(|value| value.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(rules: &[&str]) -> IptablesRules {
        let mut text = "*nat\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n".to_owned();
        for rule in rules {
            text.push_str("-A KUBE-SERVICES ");
            text.push_str(rule);
            text.push('\n');
        }
        text.push_str("COMMIT\n");
        IptablesRules::parse(&text).unwrap()
    }

    fn describe_differences(first: &[&str], second: &[&str], order: Order) -> Vec<String> {
        compare(&dump(first), &dump(second), order)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    const A1: &str = "-d 10.0.0.1/32 -m comment --comment \"ns/a:p cluster IP\" -j MASQ";
    const A2: &str = "-d 10.0.0.1/32 -m comment --comment \"ns/a:p cluster IP\" -j SVC-A";
    const B1: &str = "-d 10.0.0.2/32 -m comment --comment \"ns/b cluster IP\" -j SVC-B";
    const LAST: &str = "-m comment --comment \"must be last\" -j NODEPORTS";

    #[test]
    fn compare_rules_service_order_is_ignored() {
        let any = Order::ServicesInAnyOrder;
        assert!(describe_differences(&[A1, A2, B1, LAST], &[B1, A1, A2, LAST], any).is_empty());
        assert_eq!(
            describe_differences(&[A1, A2, B1, LAST], &[B1, A1, A2, LAST], Order::Strict),
            [format!("nat KUBE-SERVICES: ~ {B1}")]
        );
        assert_eq!(
            describe_differences(&[A1, A2, B1, LAST], &[A2, A1, B1, LAST], any).len(),
            1
        );
        assert_eq!(
            describe_differences(&[A1, A2, B1, LAST], &[A1, A2, LAST, B1], any).len(),
            1
        );
    }

    #[test]
    fn compare_rules_shared_destination_keeps_order() {
        let any = Order::ServicesInAnyOrder;
        let external = |service: &str, port: u16| {
            format!(
                "-d 192.0.2.1/32 -p tcp -m comment --comment \"ns/{service} external IP\" -m tcp \
                 --dport {port} -j EXT-{service}"
            )
        };
        let (a, b, other_port) = (external("a:p", 80), external("b", 80), external("b", 81));
        assert_eq!(describe_differences(&[&a, &b], &[&b, &a], any).len(), 1);
        assert!(describe_differences(&[&a, &other_port], &[&other_port, &a], any).is_empty());
        // Rules of another service can be at any position.
        let third = "-d 10.0.0.9/32 -m comment --comment \"ns/c cluster IP\" -j SVC-C";
        assert!(describe_differences(&[&a, third, &b], &[third, &a, &b], any).is_empty());
        // All rules of the two services keep their order.
        assert_eq!(
            describe_differences(&[&a, A1, &b, B1], &[&b, B1, &a, A1], any).len(),
            2
        );
    }

    #[test]
    fn compare_rules_reports_missing_and_added() {
        let differences = describe_differences(&[A1, A2], &[A2, A2], Order::Strict);
        assert_eq!(
            differences,
            [
                format!("nat KUBE-SERVICES: - {A1}"),
                format!("nat KUBE-SERVICES: + {A2}"),
            ]
        );
    }

    #[test]
    fn compare_rules_reports_chains_and_policies() {
        let first = dump(&[A1]);
        let second = IptablesRules::parse(
            "*nat\n:OUTPUT DROP [0:0]\n:PREROUTING ACCEPT [0:0]\n:MINE - [0:0]\nCOMMIT\n\
             *filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\nCOMMIT\n",
        )
        .unwrap();
        let differences: Vec<String> = compare(&first, &second, Order::Strict)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            differences,
            [
                "nat KUBE-SERVICES: - whole object".to_owned(),
                format!("nat KUBE-SERVICES: - {A1}"),
                "nat MINE: + whole object".to_owned(),
                "nat OUTPUT: ! policy: ACCEPT | DROP".to_owned(),
                "filter FORWARD: ! policy: ACCEPT | DROP".to_owned()
            ]
        );
    }
}
