//! Telling two dumps apart by what their rules mean.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use super::rule::Rule;
use super::{Chain, Dump};
use crate::rules::kube_proxy::chains;
use crate::rules::kube_proxy::ipvs::IPVS_OUT_FILTER;
use crate::rules::script::Table;

/// What the order of rules within a chain means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Every rule stands where it stands.
    Strict,
    /// In the chains where kube-proxy lists service after service, in the random
    /// order of a Go map, services may come in any order; the rules of one
    /// service keep theirs, and so do rules of no service.
    ServicesInAnyOrder,
}

/// Something in which two dumps differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The table.
    pub table: Table,
    /// The chain.
    pub chain: String,
    /// What differs there.
    pub what: What,
}

/// What differs in a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Only the first dump has the chain.
    ChainMissing,
    /// Only the second dump has the chain.
    ChainAdded,
    /// What becomes of packets at its end.
    Policy(String, String),
    /// Only the first dump has this rule.
    RuleMissing(String),
    /// Only the second dump has this rule.
    RuleAdded(String),
    /// Both have the same rules, but not in the same order; the first place
    /// where they part.
    Order {
        /// What stands there in the first dump.
        first: String,
        /// What stands there in the second dump.
        second: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, chain, what } = self;
        match what {
            What::ChainMissing => write!(f, "- {table} {chain}"),
            What::ChainAdded => write!(f, "+ {table} {chain}"),
            What::Policy(first, second) => {
                write!(f, "! {table} {chain}: policy {first}, then {second}")
            }
            What::RuleMissing(rule) => write!(f, "- {table} {chain}: {rule}"),
            What::RuleAdded(rule) => write!(f, "+ {table} {chain}: {rule}"),
            What::Order { first, second } => {
                write!(f, "! {table} {chain}: order: {first} | {second}")
            }
        }
    }
}

/// In what `second` differs from `first`. Counters, the order of tables and
/// chains, and the way rules are written do not count; neither does a built-in
/// chain without rules that accepts everything, which is printed or not
/// depending on what was used.
#[must_use]
pub fn compare(first: &Dump, second: &Dump, order: Order) -> Vec<Difference> {
    let (one, other) = (chains_of(first), chains_of(second));
    let names: BTreeSet<_> = one.keys().chain(other.keys()).copied().collect();
    let mut differences = Vec::new();
    for (table, name) in names {
        let mut differs = |what| {
            differences.push(Difference {
                table,
                chain: name.to_owned(),
                what,
            });
        };
        let key = (table, name);
        match (one.get(&key), other.get(&key)) {
            (Some(a), Some(b)) => chain(a, b, order, &mut differs),
            (Some(a), None) => {
                if !says_nothing(a) {
                    differs(What::ChainMissing);
                }
            }
            (None, Some(b)) => {
                if !says_nothing(b) {
                    differs(What::ChainAdded);
                }
            }
            (None, None) => {}
        }
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

fn says_nothing(chain: &Chain) -> bool {
    chain.rules.is_empty() && chain.policy.as_deref() == Some("ACCEPT")
}

fn chain(first: &Chain, second: &Chain, order: Order, differs: &mut impl FnMut(What)) {
    if first.policy != second.policy {
        let said = |chain: &Chain| chain.policy.clone().unwrap_or_else(|| "none".to_owned());
        differs(What::Policy(said(first), said(second)));
    }
    let (one, other) = (in_order(first, order), in_order(second, order));
    if one == other {
        return;
    }
    let mut balance: HashMap<&str, i64> = HashMap::new();
    for rule in &other {
        *balance.entry(rule).or_default() += 1;
    }
    let mut missing = false;
    for rule in &one {
        let left = balance.entry(rule).or_default();
        *left -= 1;
        if *left < 0 {
            missing = true;
            differs(What::RuleMissing(rule.clone()));
        }
    }
    let mut added = false;
    for rule in other.iter().rev() {
        let left = balance.entry(rule).or_default();
        if *left > 0 {
            *left -= 1;
            added = true;
            differs(What::RuleAdded(rule.clone()));
        }
    }
    if !missing && !added {
        let parted = one.iter().zip(&other).find(|(a, b)| a != b);
        if let Some((first, second)) = parted {
            differs(What::Order {
                first: first.clone(),
                second: second.clone(),
            });
        }
    }
}

/// The rules of a chain, as texts, brought into an order that does not depend
/// on what means nothing.
fn in_order(chain: &Chain, order: Order) -> Vec<String> {
    let free = order == Order::ServicesInAnyOrder
        && matches!(
            chain.name.as_str(),
            chains::SERVICES
                | chains::NODE_PORTS
                | chains::EXTERNAL_SERVICES
                | chains::PROXY_FIREWALL
        );
    let mut texts = Vec::with_capacity(chain.rules.len());
    let mut services: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for rule in &chain.rules {
        match service(rule) {
            Some(name) if free => services.entry(name).or_default().push(rule.text()),
            _ => {
                texts.extend(std::mem::take(&mut services).into_values().flatten());
                texts.push(rule.text());
            }
        }
    }
    texts.extend(services.into_values().flatten());
    if order == Order::ServicesInAnyOrder && chain.name == IPVS_OUT_FILTER {
        // One rule for each service, and none says which.
        texts.sort();
    }
    texts
}

/// The service port whose rule this is, by its comment: `namespace/name:port`.
fn service(rule: &Rule) -> Option<String> {
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
            told(&[A1, A2, B1, LAST], &[B1, A1, A2, LAST], Order::Strict).len(),
            1
        );
        assert_eq!(told(&[A1, A2, B1, LAST], &[A2, A1, B1, LAST], any).len(), 1);
        assert_eq!(told(&[A1, A2, B1, LAST], &[A1, A2, LAST, B1], any).len(), 1);
    }

    #[test]
    fn what_is_missing_and_what_was_added_is_named() {
        let differences = told(&[A1, A2], &[A2, A2], Order::Strict);
        assert_eq!(
            differences,
            [
                "- nat KUBE-SERVICES: -d 10.0.0.1 -m comment --comment \"ns/a:p cluster IP\" -j MASQ",
                "+ nat KUBE-SERVICES: -d 10.0.0.1 -m comment --comment \"ns/a:p cluster IP\" -j SVC-A",
            ]
        );
    }

    #[test]
    fn chains_and_policies_count() {
        let one = dump(&[]);
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
                "- nat KUBE-SERVICES",
                "+ nat MINE",
                "! nat OUTPUT: policy ACCEPT, then DROP"
            ]
        );
    }
}
