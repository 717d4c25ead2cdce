//! Combines two files of one format in a dump: the same state printed twice, or parts such as `ip -4
//! addr` and `ip -6 addr`. Files that contradict each other cannot be combined.

use std::collections::{BTreeMap, BTreeSet};

use super::compare::{compare, link_details, ports};
use super::difference::DumpChange;
use super::node::NodeDump;
use svclab_ruleset::conntrack::Connection;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::link::kind::LinkKinds;
use svclab_ruleset::link::{Address, Link, Links};
use svclab_ruleset::neighbour::Neighbour;
use svclab_ruleset::route::Route;
use svclab_ruleset::tool::Format;
use svclab_ruleset::traffic_control::qdisc::Qdisc;

/// Adds the state of a file to the state of another file with the same format.
///
/// # Errors
///
/// Returns the first contradiction.
pub(super) fn merge(first: &mut NodeDump, second: NodeDump, format: Format) -> Result<(), String> {
    match format {
        Format::Links => {
            if let (Some(first), Some(second)) = (&mut first.links, second.links) {
                return merge_links(first, second);
            }
        }
        Format::LinkDetails => {
            if let (Some(first), Some(second)) = (&mut first.kinds, second.kinds) {
                return merge_kinds(first, second);
            }
        }
        // Connections change all the time, so both lists are right.
        Format::Connections => {
            if let (Some(first), Some(second)) = (&mut first.connections, second.connections) {
                merge_connections(first, second);
            }
        }
        Format::ProxyFlags => return check_equal(&first.proxy.flags, &second.proxy.flags),
        Format::ProxyConfiguration => {
            return check_equal(&first.proxy.configuration, &second.proxy.configuration);
        }
        _ => {
            let mut own = first.clone();
            own.retain_formats(|known| known == format);
            let shared = [shared_part(&own, &second), shared_part(&second, &own)];
            if let Some(difference) = compare(&shared[0], &shared[1]).first() {
                return Err(difference.to_string().trim().to_owned());
            }
            extend(first, second);
        }
    }
    Ok(())
}

/// Adds the connections that the first list does not have: those of the other family, or of a later
/// time.
fn merge_connections(first: &mut Vec<Connection>, second: Vec<Connection>) {
    let key = |own: &Connection| (own.protocol, own.original, own.zone);
    let known: BTreeSet<_> = first.iter().map(key).collect();
    first.extend(second.into_iter().filter(|own| !known.contains(&key(own))));
}

fn check_equal(
    first: &BTreeMap<String, String>,
    second: &BTreeMap<String, String>,
) -> Result<(), String> {
    let union = first.keys().chain(second.keys());
    let mut different = union.filter(|name| first.get(*name) != second.get(*name));
    match different.next() {
        Some(name) => Err(format!("the value of `{name}` differs")),
        None => Ok(()),
    }
}

/// Returns the part of a dump that the other dump has, too: tables, sets, servers or sysctls with
/// the same name.
fn shared_part(dump: &NodeDump, other: &NodeDump) -> NodeDump {
    let mut dump = dump.clone();
    for (key, rules) in &mut dump.rules {
        let other = other.rules.get(key).map(|rules| &rules.tables);
        let names: Vec<Table> = other
            .into_iter()
            .flatten()
            .map(|table| table.table)
            .collect();
        rules.tables.retain(|table| names.contains(&table.table));
    }
    if let (Some(sets), Some(other)) = (&mut dump.sets, &other.sets) {
        sets.retain(|name, _| other.contains_key(name));
    }
    if let (Some(nft), Some(other)) = (&mut dump.nft, &other.nft) {
        nft.tables.retain(|table| {
            let mut tables = other.tables.iter();
            tables.any(|other| (&other.family, &other.name) == (&table.family, &table.name))
        });
    }
    if let (Some(servers), Some(other)) = (&mut dump.servers, &other.servers) {
        servers.retain(|key, _| other.contains_key(key));
    }
    for (family, routes) in &mut dump.routes {
        let tables = other
            .routes
            .get(family)
            .map(|routes| route_tables(routes))
            .unwrap_or_default();
        routes.retain(|route| tables.contains(&table_key(route)));
    }
    if let (Some(sysctls), Some(other)) = (&mut dump.sysctls, &other.sysctls) {
        sysctls.retain(|name, _| other.contains_key(name));
    }
    if let (Some(neighbours), Some(other)) = (&mut dump.neighbours, &other.neighbours) {
        neighbours.retain(|own| has_family(other, own));
    }
    if let (Some(qdiscs), Some(other)) = (&mut dump.qdiscs, &other.qdiscs) {
        qdiscs.retain(|own| has_interface(other, own));
    }
    for (own, other) in [
        (&mut dump.classes, &other.classes),
        (&mut dump.filters, &other.filters),
    ] {
        if let (Some(own), Some(other)) = (own, other) {
            own.retain(|place, _| other.contains_key(place));
        }
    }
    dump
}

/// Whether a list has neighbours of the address family of another neighbour.
fn has_family(list: &[Neighbour], of: &Neighbour) -> bool {
    let is_six = of.address.is_ipv6();
    list.iter().any(|own| own.address.is_ipv6() == is_six)
}

fn has_interface(list: &[Qdisc], of: &Qdisc) -> bool {
    list.iter().any(|own| own.dev == of.dev)
}

/// Adds tables, sets, servers and sysctls that only the second dump has.
fn extend(first: &mut NodeDump, second: NodeDump) {
    for (key, rules) in second.rules {
        let own = first.rules.entry(key).or_default();
        let names: Vec<Table> = own.tables.iter().map(|table| table.table).collect();
        let new = rules
            .tables
            .into_iter()
            .filter(|table| !names.contains(&table.table));
        own.tables.extend(new);
    }
    if let (Some(sets), Some(second)) = (&mut first.sets, second.sets) {
        for (name, set) in second {
            sets.entry(name).or_insert(set);
        }
    }
    if let (Some(nft), Some(second)) = (&mut first.nft, second.nft) {
        for table in second.tables {
            let mut tables = nft.tables.iter();
            if !tables.any(|own| (&own.family, &own.name) == (&table.family, &table.name)) {
                nft.tables.push(table);
            }
        }
    }
    if let (Some(servers), Some(second)) = (&mut first.servers, second.servers) {
        for (key, server) in second {
            let existing = servers.entry(key).or_insert_with(|| server.clone());
            // The other program prints more properties.
            if existing.source < server.source {
                *existing = server;
            }
        }
    }
    for (family, routes) in second.routes {
        let own = first.routes.entry(family).or_default();
        let tables = route_tables(own);
        own.extend(
            routes
                .into_iter()
                .filter(|route| !tables.contains(&table_key(route))),
        );
    }
    if let (Some(sysctls), Some(second)) = (&mut first.sysctls, second.sysctls) {
        for (name, sysctl) in second {
            sysctls.entry(name).or_insert(sysctl);
        }
    }
    if let (Some(neighbours), Some(second)) = (&mut first.neighbours, second.neighbours) {
        let new = second.into_iter();
        let new: Vec<Neighbour> = new.filter(|own| !has_family(neighbours, own)).collect();
        neighbours.extend(new);
    }
    if let (Some(qdiscs), Some(second)) = (&mut first.qdiscs, second.qdiscs) {
        let new = second.into_iter();
        let new: Vec<Qdisc> = new.filter(|own| !has_interface(qdiscs, own)).collect();
        qdiscs.extend(new);
    }
    for (own, second) in [
        (&mut first.classes, second.classes),
        (&mut first.filters, second.filters),
    ] {
        if let (Some(own), Some(second)) = (own, second) {
            for (place, items) in second {
                own.entry(place).or_insert(items);
            }
        }
    }
}

/// Family and table of routes. `ip -6 route` prints only one of the tables.
type TableKey = (svclab_ruleset::Family, String);

fn table_key(route: &Route) -> TableKey {
    (route.ip, route.table().to_owned())
}

fn route_tables(routes: &[Route]) -> BTreeSet<TableKey> {
    routes.iter().map(table_key).collect()
}

/// Adds interfaces with their kinds. Details are known only from outputs of `ip -d`.
fn merge_kinds(first: &mut LinkKinds, second: LinkKinds) -> Result<(), String> {
    for (name, details) in second {
        let Some(existing) = first.get_mut(&name) else {
            first.insert(name, details);
            continue;
        };
        check_attributes(&name, &existing.link, &details.link)?;
        let mut changes = link_details::detail_changes(existing, &details);
        // `ip -d addr` does not print virtual functions with all versions.
        if existing.other_lines.is_empty() || details.other_lines.is_empty() {
            changes.retain(|change| !matches!(change, DumpChange::Item { .. }));
        }
        if let (Some(first), Some(second)) = (&existing.bridge_port, &details.bridge_port) {
            changes.extend(ports::setting_changes(first, second));
        }
        if let Some(change) = changes.first() {
            let change = change.to_string();
            let change = change.trim_start_matches("! ");
            return Err(format!("interface {name}: {change}"));
        }
        let (known, other) = if existing.is_detailed || !details.is_detailed {
            (existing.clone(), details)
        } else {
            (details, existing.clone())
        };
        *existing = known;
        complete(&mut existing.link, other.link);
        if existing.other_lines.is_empty() {
            existing.other_lines = other.other_lines;
        }
    }
    Ok(())
}

/// Adds the properties of an interface that only the second output prints.
pub(super) fn complete(link: &mut Link, mut other: Link) {
    for attribute in std::mem::take(&mut other.attributes.0) {
        if !link.attributes.has(&attribute.name) {
            link.attributes.0.push(attribute);
        }
    }
    if link.link_layer.is_none() {
        link.link_layer = other.link_layer.take();
        link.mac = other.mac.take();
    }
    if link.other_names.is_empty() {
        link.other_names = std::mem::take(&mut other.other_names);
    }
}

/// Adds interfaces and addresses. `ip -6 addr` prints only interfaces with addresses of the family,
/// and fewer attributes.
fn merge_links(first: &mut Links, second: Links) -> Result<(), String> {
    let has_family = |links: &Links, is_six: bool| {
        let mut addresses = links.values().flat_map(|link| &link.addresses);
        addresses.any(|address| address.network.is_ipv6() == is_six)
    };
    // A file without any address of a family does not show the family: each node has `::1`, unless
    // IPv6 is disabled, and 127.0.0.1.
    let in_first = [false, true].map(|is_six| has_family(first, is_six));
    let in_second = [false, true].map(|is_six| has_family(&second, is_six));
    for (name, link) in second {
        let Some(existing) = first.get_mut(&name) else {
            first.insert(name, link);
            continue;
        };
        if existing.is_partial() || link.is_partial() {
            // `ip -o addr` prints no flags and attributes.
            if existing.is_partial() {
                let addresses = std::mem::take(&mut existing.addresses);
                let flags_of = link.clone();
                *existing = Link {
                    addresses,
                    ..flags_of
                };
            }
        } else {
            check_attributes(&name, existing, &link)?;
        }
        for is_six in [false, true] {
            let index = usize::from(is_six);
            if !in_second[index] {
                continue;
            }
            let of_family = |link: &Link| -> Vec<Address> {
                let addresses = link.addresses.iter();
                let addresses = addresses.filter(|address| address.network.is_ipv6() == is_six);
                addresses.cloned().collect()
            };
            let addresses = of_family(&link);
            if !in_first[index] {
                existing.addresses.extend(addresses);
                continue;
            }
            let networks = |addresses: &[Address]| -> BTreeSet<String> {
                let networks = addresses.iter().map(|address| address.network.to_string());
                networks.collect()
            };
            if networks(&of_family(existing)) != networks(&addresses) {
                return Err(format!("the addresses of interface {name} differ"));
            }
        }
        complete(existing, link);
    }
    Ok(())
}

/// Checks that attributes that both files print are equal.
fn check_attributes(name: &str, first: &Link, second: &Link) -> Result<(), String> {
    for attribute in ["mtu", "master", "vrf"] {
        let values = [first, second].map(|link| link.attributes.get(attribute));
        if let [Some(first), Some(second)] = values
            && first != second
        {
            return Err(format!(
                "the {attribute} of interface {name} is {first} or {second}"
            ));
        }
    }
    if let (Some(first), Some(second)) = (&first.mac, &second.mac)
        && first != second
    {
        return Err(format!(
            "the hardware address of interface {name} is {first} or {second}"
        ));
    }
    if first.has_flag("UP") != second.has_flag("UP") {
        return Err(format!("interface {name} is up in only one of them"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_two_files_are_added() {
        let line = |source: &str, target: &str| {
            format!(
                "udp 17 29 src={source} dst={target} sport=4000 dport=53 [UNREPLIED] src={target} \
                 dst={source} sport=53 dport=4000\n"
            )
        };
        let four = line("10.0.0.1", "10.96.0.10");
        let six = line("fd00::1", "fd00:96::10");
        let both = four.clone() + &six;
        let dump = NodeDump::from_texts(&[
            ("a.conntrack-L", &four),
            ("b.conntrack-L", &six),
            ("c.conntrack-L", &both),
        ]);
        let connections = dump.connections.expect("connections");
        let targets = connections
            .iter()
            .map(|own| own.original.destination.to_string());
        assert_eq!(targets.collect::<Vec<_>>(), ["10.96.0.10", "fd00:96::10"]);
    }

    #[test]
    fn filters_of_two_interfaces_are_added() {
        let dump = NodeDump::from_texts(&[
            (
                "a.tc-filter",
                "# tc filter show dev a ingress\nfilter protocol ip pref 1\n",
            ),
            (
                "b.tc-filter",
                "# tc filter show dev b ingress\nfilter protocol ip pref 2\n",
            ),
        ]);
        let filters = dump.filters.expect("filters");
        let places: Vec<&String> = filters.keys().collect();
        assert_eq!(places, ["a ingress", "b ingress"]);
    }
}
