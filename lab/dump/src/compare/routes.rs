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
const VOLATILE_ATTRIBUTES: [&str; 4] = ["expires", "users", "used", "age"];

pub(super) fn compare(comparison: &mut Comparison<'_>, first: &[Route], second: &[Route]) {
    // Only `ip -d` prints the properties of next hop objects.
    let has_objects = |routes: &[Route]| routes.iter().any(|route| route.object.is_some());
    let with_objects = has_objects(first) && has_objects(second);
    let route_items = |routes: &[&Route]| route_items(routes, with_objects);
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
fn route_items(routes: &[&Route], with_objects: bool) -> Vec<ListItem> {
    let sort_key = |route: &Route| {
        let attribute = |name| route.attributes.get(name).unwrap_or_default().to_owned();
        (route.to.to_string(), attribute("tos"), attribute("metric"))
    };
    let mut routes = routes.to_vec();
    routes.sort_by_cached_key(|route| sort_key(route));
    routes
        .iter()
        .map(|route| {
            let mut source_text = route.one_line();
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
            if with_objects && let Some(object) = route.canonical_object() {
                let object = format!(" nh_info {object}");
                key.push_str(&object);
                source_text.push_str(&object);
            }
            ListItem {
                key,
                source_text,
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

#[cfg(test)]
mod tests {
    use super::super::compare;
    use crate::node::NodeDump;

    /// Outputs of iproute2 6.1 for one state: `ip OPTIONS route show table all`.
    const ROUTES: [&str; 10] = [
        include_str!("recorded/routes/plain"),
        include_str!("recorded/routes/d"),
        include_str!("recorded/routes/o"),
        include_str!("recorded/routes/o-d"),
        include_str!("recorded/routes/s-d"),
        include_str!("recorded/routes/N"),
        include_str!("recorded/routes/N-d"),
        include_str!("recorded/routes/j"),
        include_str!("recorded/routes/d-j"),
        include_str!("recorded/routes/N-d-j"),
    ];

    /// Outputs of iproute2 6.1 for one state: `ip OPTIONS rule`.
    const RULES: [&str; 8] = [
        include_str!("recorded/rules/plain"),
        include_str!("recorded/rules/d"),
        include_str!("recorded/rules/o-d"),
        include_str!("recorded/rules/N"),
        include_str!("recorded/rules/N-d"),
        include_str!("recorded/rules/j"),
        include_str!("recorded/rules/d-j"),
        include_str!("recorded/rules/N-d-j"),
    ];

    fn describe(first: &[(&str, &str)], second: &[(&str, &str)]) -> String {
        let [first, second] = [first, second].map(NodeDump::from_texts);
        let differences = compare(&first, &second);
        let differences = differences.iter().map(ToString::to_string);
        differences.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn compare_routes_with_all_options_are_equal() {
        for (name, texts) in [("ip-route", &ROUTES[..]), ("ip-rule", &RULES[..])] {
            for text in texts {
                assert_eq!(describe(&[(name, texts[0])], &[(name, text)]), "", "{text}");
            }
        }
    }

    #[test]
    fn compare_routes_of_both_families_equals_two_files() {
        let files = [
            ("ip-route", include_str!("recorded/routes/4")),
            ("ip-6-route", include_str!("recorded/routes/6")),
        ];
        let both = [("ip-route", ROUTES[0])];
        assert_eq!(describe(&both, &files), "");
        let three = [files[1], ("a.ip-route", ROUTES[1]), files[0]];
        assert_eq!(describe(&three, &both), "");
    }

    #[test]
    fn compare_routes_with_options_reports_edits() {
        for (from, to) in [
            ("proto bird scope", "proto babel scope"),
            ("table default", "table 100"),
            ("mtu 1400", "mtu 1300"),
            ("weight 3", "weight 2"),
            ("blackhole", "prohibit"),
            ("realm 5", "realm 6"),
            ("pref high", "pref low"),
            ("scope host", "scope link"),
            (" onlink", ""),
        ] {
            let changed = ROUTES[1].replace(from, to);
            assert_ne!(changed, ROUTES[1], "{from}");
            for text in ROUTES {
                let found = describe(&[("ip-route", text)], &[("ip-route", &changed)]);
                assert_ne!(found, "", "{from}");
            }
        }
    }

    #[test]
    fn compare_next_hop_objects_needs_details_of_both() {
        let [plain, details, json] = [ROUTES[0], ROUTES[1], ROUTES[8]];
        let changed = details.replace("buckets 8", "buckets 16");
        let files = |text| [("ip-route", text)];
        assert_eq!(describe(&files(plain), &files(&changed)), "");
        let found = describe(&files(details), &files(&changed));
        assert!(found.contains("type resilient buckets 16"), "{found}");
        assert_ne!(describe(&files(json), &files(&changed)), "");
    }
}
