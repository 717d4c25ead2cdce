//! Compares routes and routing rules.

use std::collections::BTreeMap;

use super::super::difference::{DumpChange, DumpLocation, Owner};
use super::super::lists::{self, ListItem};
use super::super::owner;
use super::Comparison;
use svclab_ruleset::Family;
use svclab_ruleset::route::Route;
use svclab_ruleset::route::rule::PolicyRule;

/// Attributes that change by themselves.
const VOLATILE_ATTRIBUTES: [&str; 1] = ["expires"];

pub(super) fn compare(comparison: &mut Comparison<'_>, first: &[Route], second: &[Route]) {
    let (first_tables, mut second_tables) = (tables(first), tables(second));
    for ((ip, table), routes) in &first_tables {
        let second_routes = second_tables.remove(&(*ip, *table)).unwrap_or_default();
        add_differences(
            comparison,
            *ip,
            table,
            lists::compare(&route_items(routes), &route_items(&second_routes)),
        );
    }
    for ((ip, table), routes) in second_tables {
        add_differences(
            comparison,
            ip,
            table,
            lists::compare(&[], &route_items(&routes)),
        );
    }
}

type Tables<'r> = BTreeMap<(Family, &'r str), Vec<&'r Route>>;

fn tables(routes: &[Route]) -> Tables<'_> {
    let mut tables = Tables::new();
    for route in routes {
        tables
            .entry((route.ip, route.table()))
            .or_default()
            .push(route);
    }
    tables
}

fn add_differences(to: &mut Comparison<'_>, family: Family, table: &str, changes: Vec<DumpChange>) {
    for change in changes {
        let owner = match &change {
            DumpChange::Item { item, .. } | DumpChange::Moved { item, .. } => route_owner(item),
            _ => None,
        };
        let table = table.to_owned();
        to.add_difference(DumpLocation::Routes { family, table }, change, owner);
    }
}

/// Returns the owner of a route, by its interface.
fn route_owner(route: &str) -> Option<Owner> {
    let mut words = route.split_ascii_whitespace();
    words.find(|word| *word == "dev")?;
    owner::link_owner(words.next()?)
}

/// Returns the routes of a table as items. The kernel prefers the longest prefix and then the
/// lowest metric. Only the order of routes equal in both is significant (Linux v6.12,
/// `fib_table_insert` of `net/ipv4/fib_trie.c`).
fn route_items(routes: &[&Route]) -> Vec<ListItem> {
    let sort_key = |route: &Route| {
        let attribute = |name| route.attributes.get(name).unwrap_or_default().to_owned();
        (route.to.to_string(), attribute("tos"), attribute("metric"))
    };
    let mut routes = routes.to_vec();
    routes.sort_by_cached_key(|route| sort_key(route));
    routes
        .iter()
        .map(|route| {
            let words = route.source_text.split_ascii_whitespace();
            let mut key = format!(
                "{} {} {}",
                route.kind.as_deref().unwrap_or("unicast"),
                route.to,
                route.attributes.canonical(&VOLATILE_ATTRIBUTES)
            );
            for hop in &route.hops {
                key.push_str(" nexthop ");
                key.push_str(&hop.canonical(&VOLATILE_ATTRIBUTES));
            }
            ListItem {
                key,
                source_text: words.collect::<Vec<_>>().join(" "),
                line: route.line,
            }
        })
        .collect()
}

pub(super) fn compare_policy(
    to: &mut Comparison<'_>,
    family: Family,
    first: &[PolicyRule],
    second: &[PolicyRule],
) {
    let items = |rules: &[PolicyRule]| -> Vec<ListItem> {
        let mut rules: Vec<&PolicyRule> = rules.iter().collect();
        rules.sort_by_key(|rule| rule.priority);
        rules.into_iter().map(routing_rule_item).collect()
    };
    for change in lists::compare(&items(first), &items(second)) {
        to.add_difference(DumpLocation::Policy { family }, change, None);
    }
}

fn routing_rule_item(rule: &PolicyRule) -> ListItem {
    let words = rule.source_text.split_ascii_whitespace();
    let not = if rule.inverted { "not " } else { "" };
    let attributes = rule.attributes.canonical(&[]);
    ListItem {
        key: format!("{} {not}{attributes}", rule.priority),
        source_text: words.collect::<Vec<_>>().join(" "),
        line: rule.line,
    }
}
