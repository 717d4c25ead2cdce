//! Compares routes and routing rules.

use std::collections::BTreeMap;

use super::super::difference::{Change, Owner, Place};
use super::super::lists::{self, Item};
use super::super::owner;
use super::Comparison;
use svclab_ruleset::route::Route;
use svclab_ruleset::route::rule::PolicyRule;
use svclab_ruleset::tool::Ip;

/// Attributes that change by themselves.
const COUNTED: [&str; 1] = ["expires"];

pub(super) fn compare(to: &mut Comparison<'_>, first: &[Route], second: &[Route]) {
    let (one, mut other) = (tables(first), tables(second));
    for ((ip, table), routes) in &one {
        let others = other.remove(&(*ip, *table)).unwrap_or_default();
        differ(
            to,
            *ip,
            table,
            lists::compare(&items(routes), &items(&others)),
        );
    }
    for ((ip, table), routes) in other {
        differ(to, ip, table, lists::compare(&[], &items(&routes)));
    }
}

type Tables<'r> = BTreeMap<(Ip, &'r str), Vec<&'r Route>>;

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

fn differ(to: &mut Comparison<'_>, family: Ip, table: &str, changes: Vec<Change>) {
    for change in changes {
        let owner = match &change {
            Change::Item { item, .. } | Change::Moved { item, .. } => of_route(item),
            _ => None,
        };
        let table = table.to_owned();
        to.differ(Place::Routes { family, table }, change, owner);
    }
}

/// Returns the owner of a route, by its interface.
fn of_route(route: &str) -> Option<Owner> {
    let mut words = route.split_ascii_whitespace();
    words.find(|word| *word == "dev")?;
    owner::of_link(words.next()?)
}

/// Returns the routes of a table as items. The kernel prefers the longest prefix and then the
/// lowest metric. Only the order of routes equal in both is significant (Linux v6.12,
/// `fib_table_insert` of `net/ipv4/fib_trie.c`).
fn items(routes: &[&Route]) -> Vec<Item> {
    let place = |route: &Route| {
        let said = |name| route.attributes.get(name).unwrap_or_default().to_owned();
        (route.to.to_string(), said("tos"), said("metric"))
    };
    let mut routes = routes.to_vec();
    routes.sort_by_cached_key(|route| place(route));
    routes
        .iter()
        .map(|route| {
            let words = route.written.split_ascii_whitespace();
            let mut key = format!(
                "{} {} {}",
                route.kind.as_deref().unwrap_or("unicast"),
                route.to,
                route.attributes.canonical(&COUNTED)
            );
            for hop in &route.hops {
                key.push_str(" nexthop ");
                key.push_str(&hop.canonical(&COUNTED));
            }
            Item {
                key,
                written: words.collect::<Vec<_>>().join(" "),
                line: route.line,
            }
        })
        .collect()
}

pub(super) fn compare_policy(
    to: &mut Comparison<'_>,
    family: Ip,
    first: &[PolicyRule],
    second: &[PolicyRule],
) {
    let items = |rules: &[PolicyRule]| -> Vec<Item> {
        let mut rules: Vec<&PolicyRule> = rules.iter().collect();
        rules.sort_by_key(|rule| rule.priority);
        rules.into_iter().map(rule).collect()
    };
    for change in lists::compare(&items(first), &items(second)) {
        to.differ(Place::Policy { family }, change, None);
    }
}

fn rule(rule: &PolicyRule) -> Item {
    let words = rule.written.split_ascii_whitespace();
    let not = if rule.not { "not " } else { "" };
    let said = rule.attributes.canonical(&[]);
    Item {
        key: format!("{} {not}{said}", rule.priority),
        written: words.collect::<Vec<_>>().join(" "),
        line: rule.line,
    }
}
