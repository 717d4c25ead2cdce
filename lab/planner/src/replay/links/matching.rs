//! Finds the interface of the plan that simulates a dumped one: by name, address, route, pod or kind.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::replay::link_layer::pods_behind_ports;
use svclab_dump::NodeDump;
use svclab_model::plan::{Link, LinkKind, Plan};
use svclab_ruleset::link::Links;
use svclab_ruleset::network::is_single;
use svclab_ruleset::route::Route;

/// Kinds of tunnels that a replay does not build.
pub(super) const TUNNEL_KINDS: [&str; 14] = [
    "bareudp",
    "erspan",
    "geneve",
    "gre",
    "gretap",
    "ip6gre",
    "ip6gretap",
    "ip6tnl",
    "ipip",
    "sit",
    "vti",
    "vti6",
    "wireguard",
    "xfrm",
];

/// Returns the interface of the plan for each interface of the dump, by name.
pub(super) fn match_links(
    plan: &Plan,
    node: &str,
    dump: &NodeDump,
    links: &Links,
) -> BTreeMap<String, String> {
    let mut pairs: BTreeMap<String, String> = BTreeMap::new();
    let Some(namespace) = plan.namespace(node) else {
        return pairs;
    };
    let names = links.keys().filter(|name| *name != "lo");
    for name in names.clone() {
        if namespace.links.iter().any(|link| link.name == *name) {
            pairs.insert(name.clone(), name.clone());
        }
    }
    let pods = pods_behind_ports(dump);
    for (name, link) in links.iter().filter(|(name, _)| *name != "lo") {
        if pairs.contains_key(name) {
            continue;
        }
        let is_unmatched = |link: &&Link| !pairs.values().any(|taken| *taken == link.name);
        let has_address = |ip: IpAddr| link.addresses.iter().any(|own| own.network.ip() == ip);
        let by_address = namespace.links.iter().filter(is_unmatched).find(|planned| {
            planned
                .addresses
                .iter()
                .any(|address| has_address(address.ip()))
        });
        let by_route = || {
            let host_addresses = hosts_behind(dump, name);
            let mut routes = namespace.routes.iter();
            let route = routes
                .find(|route| route.via.is_none() && host_addresses.contains(&route.to.ip()))?;
            let mut planned = namespace.links.iter().filter(is_unmatched);
            planned.find(|planned| planned.name == route.dev)
        };
        let by_pod = || {
            let addresses = pods.get(name.as_str())?;
            let mut planned = namespace.links.iter().filter(is_unmatched);
            planned.find(|planned| leads_to(plan, planned, addresses))
        };
        let by_kind = || {
            let is_tunnel = matches!(link_kind(dump, name).as_deref(), Some("vxlan"));
            let mut planned = namespace.links.iter().filter(is_unmatched);
            planned.find(|planned| is_tunnel && matches!(planned.kind, LinkKind::Vxlan { .. }))
        };
        if let Some(found) = by_address
            .or_else(by_route)
            .or_else(by_pod)
            .or_else(by_kind)
        {
            pairs.insert(name.clone(), found.name.clone());
        }
    }
    pairs
}

/// Whether the other end of a veth pair has one of these addresses.
fn leads_to(plan: &Plan, link: &Link, addresses: &[IpAddr]) -> bool {
    let LinkKind::Veth { namespace, peer } = &link.kind else {
        return false;
    };
    let ends = plan
        .namespace(namespace)
        .into_iter()
        .flat_map(|ns| &ns.links);
    let mut ends = ends.filter(|end| end.name == *peer);
    ends.any(|end| {
        end.addresses
            .iter()
            .any(|own| addresses.contains(&own.ip()))
    })
}

/// Returns the host addresses that routes have behind an interface.
pub(super) fn hosts_behind(dump: &NodeDump, dev: &str) -> Vec<IpAddr> {
    let routes = dump.routes.values().flatten();
    let on_link = |route: &&Route| {
        route.kind.is_none()
            && route.attributes.get("dev") == Some(dev)
            && !route.attributes.has("via")
    };
    let host_addresses = routes.filter(on_link).filter_map(|route| {
        let to: IpNetwork = route.to.parse().ok()?;
        is_single(to).then(|| to.ip())
    });
    host_addresses.collect()
}

/// Returns the kind of an interface, from the dump or else guessed from its name.
pub(super) fn link_kind(dump: &NodeDump, name: &str) -> Option<String> {
    let details = dump.kinds.as_ref().map(|kinds| kinds.get(name));
    // `ip link` without `-d` prints no kinds.
    if let Some(details) = details.filter(|link| link.is_none_or(|link| link.is_detailed)) {
        return details?.kind.as_deref().map(str::to_owned);
    }
    let link = dump.links.as_ref().and_then(|links| links.get(name));
    let layer = link.and_then(|link| link.link_layer.as_ref());
    if let Some((layer, _)) = layer.filter(|(layer, _)| TUNNEL_KINDS.contains(&&**layer)) {
        return Some(layer.to_string());
    }
    let is_controller = dump
        .links
        .iter()
        .flat_map(Links::values)
        .any(|link| link.attributes.get("master") == Some(name));
    let has_prefix = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
    let guessed = if has_prefix(&["kube-ipvs", "nodelocaldns", "dummy"]) {
        "dummy"
    } else if is_controller || has_prefix(&["docker", "br-", "cni", "cbr", "virbr"]) {
        "bridge"
    } else if has_prefix(&["flannel.", "vxlan"]) {
        "vxlan"
    } else if has_prefix(&["veth", "cali", "lxc"]) {
        "veth"
    } else {
        return None;
    };
    Some(guessed.to_owned())
}
