//! Compares queueing disciplines, classes, filters, `IPsec` policies and zones of connections.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use super::super::difference::DumpLocation;
use super::super::lists::{self, ListItem};
use super::super::node::NodeDump;
use super::{Comparison, union_of_names, value_change};
use svclab_ruleset::conntrack::{self, Connections};
use svclab_ruleset::traffic_control::listing::{Item, Listings};
use svclab_ruleset::traffic_control::qdisc::Qdisc;

/// Items by place: an interface with or without a hook.
type Places = IndexMap<String, Vec<ListItem>>;

/// Compares queues. Options that `tc` prints only with `-d` are compared if both dumps have them.
pub(super) fn compare_qdiscs(comparison: &mut Comparison<'_>) {
    let has_details = |dump: &NodeDump| dump.qdiscs.iter().flatten().any(Qdisc::has_details);
    let with_details = has_details(comparison.first) && has_details(comparison.second);
    let by_interface = |dump: &NodeDump| {
        let mut places = Places::new();
        for qdisc in dump.qdiscs.iter().flatten() {
            let items: &mut Vec<ListItem> = places.entry(qdisc.dev.to_string()).or_default();
            items.push(qdisc_item(qdisc, with_details));
        }
        places
    };
    let (first, second) = (
        by_interface(comparison.first),
        by_interface(comparison.second),
    );
    compare_places(comparison, "qdisc", &first, &second);
}

fn qdisc_item(qdisc: &Qdisc, with_details: bool) -> ListItem {
    ListItem {
        key: if with_details {
            qdisc.canonical()
        } else {
            qdisc.canonical_without_details()
        },
        source_text: qdisc.canonical(),
        line: qdisc.line,
    }
}

/// Compares classes or filters. Properties that `tc` prints only with `-d`, or does not print with
/// `-p`, are compared if both dumps have them.
pub(super) fn compare_listings(comparison: &mut Comparison<'_>, object: &str) {
    let listings = |dump: &NodeDump| -> Listings {
        let listings = if object == "class" {
            &dump.classes
        } else {
            &dump.filters
        };
        listings.clone().unwrap_or_default()
    };
    let sides = [comparison.first, comparison.second].map(listings);
    let items = || sides.iter().map(|side| side.values().flatten());
    let has_details = items().all(|mut side| side.any(Item::has_details));
    let has_matches = !items().any(|mut side| side.any(Item::has_named_matches));
    let key: fn(&Item) -> String = match object {
        "class" if !has_details => Item::canonical_without_details,
        "filter" if !has_matches => Item::canonical_without_matches,
        _ => Item::canonical,
    };
    let items_of = |listings: &Listings| -> Places {
        let items = listings.iter().map(|(place, items)| {
            let items = items.iter().map(|item| ListItem {
                key: key(item),
                source_text: item.text.clone(),
                line: item.line,
            });
            (place.clone(), items.collect())
        });
        items.collect()
    };
    let [first, second] = sides.each_ref().map(items_of);
    compare_places(comparison, object, &first, &second);
}

fn compare_places(to: &mut Comparison<'_>, object: &str, first: &Places, second: &Places) {
    let no_items = Vec::new();
    for place in union_of_names(first.keys(), second.keys()) {
        let interface = place.split(' ').next().unwrap_or_default();
        if !exists_in_both(to, interface) {
            continue;
        }
        let items = |places: &Places| places.get(place).unwrap_or(&no_items).clone();
        for change in lists::compare(&items(first), &items(second)) {
            let location = DumpLocation::TrafficControl {
                object: object.to_owned(),
                place: place.clone(),
            };
            to.add_difference(location, change, None);
        }
    }
}

/// Whether both dumps have an interface. If not, the interface itself is the difference. An
/// interface of unknown existence counts as present.
fn exists_in_both(comparison: &Comparison<'_>, interface: &str) -> bool {
    let links = [&comparison.first.links, &comparison.second.links];
    let [Some(first), Some(second)] = links else {
        return true;
    };
    first.contains_key(interface) == second.contains_key(interface)
}

/// Compares the policies for all packets, in any order: priorities decide.
pub(super) fn compare_ipsec_policies(to: &mut Comparison<'_>) {
    let items_of = |dump: &NodeDump| {
        let policies = dump.ipsec_policies.iter().flatten();
        let policies = policies.filter(|policy| !policy.is_of_socket());
        let items = policies.map(|policy| {
            let text = format!("{} {}", policy.selector, policy.settings);
            ListItem::from_text(text, policy.line)
        });
        let mut items: Vec<ListItem> = items.collect();
        items.sort_by(|a, b| a.key.cmp(&b.key));
        items
    };
    let (first, second) = (items_of(to.first), items_of(to.second));
    for change in lists::compare(&first, &second) {
        to.add_difference(DumpLocation::IpsecPolicies, change, None);
    }
}

/// Compares the zones in use and the stale connections. Other connections come and go.
pub(super) fn compare_connections(to: &mut Comparison<'_>) {
    let zones = |connections: &Option<Connections>| {
        let zones = conntrack::zones(connections.as_deref().unwrap_or_default());
        let zones: BTreeSet<u16> = zones.into_iter().chain([0]).collect();
        let zones: Vec<String> = zones.iter().map(ToString::to_string).collect();
        zones.join(", ")
    };
    let (first, second) = (zones(&to.first.connections), zones(&to.second.connections));
    if let Some(change) = value_change("zones", Some(&first), Some(&second)) {
        to.add_difference(DumpLocation::Connections, change, None);
    }
    let (first, second) = (stale_items(to.first), stale_items(to.second));
    for change in lists::compare(&first, &second) {
        to.add_difference(DumpLocation::Connections, change, None);
    }
}

fn stale_items(dump: &NodeDump) -> Vec<ListItem> {
    let stale = dump.stale_connections();
    let items = stale.iter().map(|(target, connections)| {
        let line = connections.first().map_or(0, |first| first.line);
        ListItem::from_text(target.to_string(), line)
    });
    items.collect()
}
