//! Compares the iptables rules of two dumps by their meaning.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::difference::{Change, Side};
use crate::lists::{self, Item};
use svclab_rules::kube_proxy::chains;
use svclab_rules::kube_proxy::ipvs::IPVS_OUT_FILTER;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::iptables::{Chain, Dump, Rule};

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
pub struct Difference {
    /// Table of the difference.
    pub table: Table,
    /// Chain of the difference.
    pub chain: String,
    /// Content of the difference.
    pub change: Change,
}

impl fmt::Display for Difference {
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
/// the notation of rules are ignored. An empty built-in chain with the policy ACCEPT is ignored
/// too: whether it is printed depends on earlier use of the table.
#[must_use]
pub fn compare(first: &Dump, second: &Dump, order: Order) -> Vec<Difference> {
    let (one, other) = (chains_of(first), chains_of(second));
    let names: BTreeSet<_> = one.keys().chain(other.keys()).copied().collect();
    let mut differences = Vec::new();
    for (table, name) in names {
        let key = (table, name);
        let changes = match (one.get(&key), other.get(&key)) {
            (Some(a), Some(b)) => chain(a, b, order),
            (Some(a), None) => whole(table, a, Side::First),
            (None, Some(b)) => whole(table, b, Side::Second),
            (None, None) => Vec::new(),
        };
        differences.extend(changes.into_iter().map(|change| Difference {
            table,
            chain: name.to_owned(),
            change,
        }));
    }
    differences
}

fn chains_of(dump: &Dump) -> BTreeMap<(Table, &str), &Chain> {
    let mut chains = BTreeMap::new();
    for table in &dump.tables {
        for chain in &table.chains {
            chains.insert((table.table, chain.name.as_str()), chain);
        }
    }
    chains
}

/// Returns the changes for a chain with its rules that only one dump has.
fn whole(table: Table, chain: &Chain, only: Side) -> Vec<Change> {
    if chain.rules.is_empty()
        && chain.policy.as_deref() == Some("ACCEPT")
        && table.built_in_chains().contains(&chain.name.as_str())
    {
        return Vec::new();
    }
    let line = chain.line;
    let rules = chain.rules.iter().map(|rule| Change::Item {
        only,
        item: rule.written().trim_ascii().to_owned(),
        line: rule.line,
    });
    std::iter::once(Change::Whole { only, line })
        .chain(rules)
        .collect()
}

fn chain(first: &Chain, second: &Chain, order: Order) -> Vec<Change> {
    let mut changes = Vec::new();
    if first.policy != second.policy {
        changes.push(Change::Value {
            what: "policy".to_owned(),
            first: first.policy.clone(),
            second: second.policy.clone(),
        });
    }
    let (one, other) = (&first.rules, &second.rules);
    if !one
        .iter()
        .map(Rule::written)
        .eq(other.iter().map(Rule::written))
    {
        changes.extend(lists::compare(
            &in_order(first, order),
            &in_order(second, order),
        ));
    }
    changes
}

/// Returns the rules of a chain in an order without insignificant differences.
#[must_use]
pub fn in_order(chain: &Chain, order: Order) -> Vec<Item> {
    let free = order == Order::ServicesInAnyOrder
        && matches!(
            chain.name.as_str(),
            chains::SERVICES
                | chains::NODE_PORTS
                | chains::EXTERNAL_SERVICES
                | chains::PROXY_FIREWALL
        );
    let mut items = Vec::with_capacity(chain.rules.len());
    let groups = if free {
        groups(&chain.rules)
    } else {
        BTreeMap::new()
    };
    let mut services: BTreeMap<&String, Vec<Item>> = BTreeMap::new();
    for rule in &chain.rules {
        let item = Item {
            key: rule.text(),
            written: rule.written().trim_ascii().to_owned(),
            line: rule.line,
        };
        if let Some(group) = service(rule).and_then(|name| groups.get(&name)) {
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
fn groups(rules: &[Rule]) -> BTreeMap<String, String> {
    let mut groups: BTreeMap<String, String> = BTreeMap::new();
    let mut owners: BTreeMap<[Option<String>; 3], String> = BTreeMap::new();
    for rule in rules {
        let Some(name) = service(rule) else {
            continue;
        };
        let owner = owners.entry(destination(rule)).or_insert(name.clone());
        let group = groups.entry(name.clone()).or_insert(name).clone();
        let Some(other) = groups.get(owner).filter(|other| **other != group) else {
            continue;
        };
        let (kept, merged) = if *other < group {
            (other.clone(), group)
        } else {
            (group, other.clone())
        };
        for each in groups.values_mut().filter(|each| **each == merged) {
            each.clone_from(&kept);
        }
    }
    groups
}

/// Returns the address, protocol and port that a rule matches.
fn destination(rule: &Rule) -> [Option<String>; 3] {
    let parts = rule.parts();
    let port = parts
        .matches
        .iter()
        .find_map(|module| module.value("--dport"));
    [parts.header("-d"), parts.header("-p"), port].map(|value| value.map(str::to_owned))
}

/// Returns the service port of a rule, according to its comment: `namespace/name:port`.
pub(crate) fn service(rule: &Rule) -> Option<String> {
    let comment = rule.comment()?;
    let first = comment.split(' ').next()?;
    first.contains('/').then(|| first.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(rules: &[&str]) -> Dump {
        let mut text = "*nat\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n".to_owned();
        for rule in rules {
            text.push_str("-A KUBE-SERVICES ");
            text.push_str(rule);
            text.push('\n');
        }
        text.push_str("COMMIT\n");
        Dump::parse(&text).unwrap()
    }

    fn told(first: &[&str], second: &[&str], order: Order) -> Vec<String> {
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
    fn services_may_come_in_any_order_but_their_rules_may_not() {
        let any = Order::ServicesInAnyOrder;
        assert!(told(&[A1, A2, B1, LAST], &[B1, A1, A2, LAST], any).is_empty());
        assert_eq!(
            told(&[A1, A2, B1, LAST], &[B1, A1, A2, LAST], Order::Strict),
            [format!("nat KUBE-SERVICES: ~ {B1}")]
        );
        assert_eq!(told(&[A1, A2, B1, LAST], &[A2, A1, B1, LAST], any).len(), 1);
        assert_eq!(told(&[A1, A2, B1, LAST], &[A1, A2, LAST, B1], any).len(), 1);
    }

    #[test]
    fn services_of_one_destination_keep_their_order() {
        let any = Order::ServicesInAnyOrder;
        let external = |service: &str, port: u16| {
            format!(
                "-d 192.0.2.1/32 -p tcp -m comment --comment \"ns/{service} external IP\" -m tcp \
                 --dport {port} -j EXT-{service}"
            )
        };
        let (a, b, other) = (external("a:p", 80), external("b", 80), external("b", 81));
        assert_eq!(told(&[&a, &b], &[&b, &a], any).len(), 1);
        assert!(told(&[&a, &other], &[&other, &a], any).is_empty());
        // Rules of another service can be at any position.
        let third = "-d 10.0.0.9/32 -m comment --comment \"ns/c cluster IP\" -j SVC-C";
        assert!(told(&[&a, third, &b], &[third, &a, &b], any).is_empty());
        // All rules of the two services keep their order.
        assert_eq!(told(&[&a, A1, &b, B1], &[&b, B1, &a, A1], any).len(), 2);
    }

    #[test]
    fn what_is_missing_and_what_was_added_is_named() {
        let differences = told(&[A1, A2], &[A2, A2], Order::Strict);
        assert_eq!(
            differences,
            [
                format!("nat KUBE-SERVICES: - {A1}"),
                format!("nat KUBE-SERVICES: + {A2}"),
            ]
        );
    }

    #[test]
    fn chains_and_policies_count() {
        let one = dump(&[A1]);
        let other = Dump::parse(
            "*nat\n:OUTPUT DROP [0:0]\n:PREROUTING ACCEPT [0:0]\n:MINE - [0:0]\nCOMMIT\n",
        )
        .unwrap();
        let told: Vec<String> = compare(&one, &other, Order::Strict)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            told,
            [
                "nat KUBE-SERVICES: - all of it".to_owned(),
                format!("nat KUBE-SERVICES: - {A1}"),
                "nat MINE: + all of it".to_owned(),
                "nat OUTPUT: ! policy: ACCEPT | DROP".to_owned()
            ]
        );
    }
}
