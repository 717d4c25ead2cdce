//! Computes the state that a kernel has after the plan of a namespace was applied.

use ipnetwork::IpNetwork;

use super::NamespaceState;
use super::route_lookup::LOCAL_TABLE;
use svclab_model::evidence::{
    ForwardingEntry, LinkState, NeighbourEntry, NetworkState, VxlanState,
};
use svclab_model::plan::{
    ETHERNET_MTU, ForwardingTarget, Link, LinkKind, Namespace, PortSettings, Route, RouteKind,
    RoutingRule,
};
use svclab_ruleset::network::is_single;

/// Bytes that a VXLAN device adds to an IPv4 packet (Linux v6.12, `include/net/vxlan.h`,
/// `VXLAN_HEADROOM`).
const VXLAN_HEADROOM: u32 = 50;

pub(super) fn planned(namespace: &Namespace) -> NamespaceState {
    let links = namespace.links.iter();
    let neighbours = namespace.neighbours.iter().map(|entry| NeighbourEntry {
        address: entry.address,
        interface: entry.dev.clone(),
        mac: Some(entry.mac),
        permanent: true,
    });
    let forwarding = namespace.forwarding.iter().map(|entry| ForwardingEntry {
        interface: entry.dev.clone(),
        mac: entry.mac,
        remote: match entry.to {
            ForwardingTarget::Remote(remote) => Some(remote),
            ForwardingTarget::Port | ForwardingTarget::StickyPort | ForwardingTarget::Node => None,
        },
        permanent: true,
    });
    let sysctls = namespace.sysctls.iter();
    NamespaceState {
        links: links.map(|link| planned_link(namespace, link)).collect(),
        network: NetworkState {
            routes: planned_routes(namespace),
            multipath_routes: namespace.multipath_routes.clone(),
            routing_rules: planned_rules(namespace),
            neighbours: neighbours.collect(),
            forwarding: forwarding.collect(),
            queues: Vec::new(),
        },
        sysctls: sysctls
            .map(|sysctl| (sysctl.key.clone(), sysctl.value.clone()))
            .collect(),
        ipvs: namespace.ipvs.clone(),
        ..NamespaceState::default()
    }
}

fn planned_link(namespace: &Namespace, link: &Link) -> LinkState {
    let (kind, vxlan) = match &link.kind {
        LinkKind::Veth { .. } => ("veth", None),
        LinkKind::Bridge => ("bridge", None),
        LinkKind::Dummy => ("dummy", None),
        LinkKind::Vxlan {
            vni, port, local, ..
        } => {
            let state = VxlanState {
                vni: *vni,
                port: *port,
                local: Some(*local),
            };
            ("vxlan", Some(state))
        }
    };
    // The kernel disables the ports of a bridge that is down.
    let is_up = |name: &String| {
        namespace
            .links
            .iter()
            .any(|link| link.name == *name && !link.down)
    };
    let port = link.bridge.as_ref().map(|bridge| PortSettings {
        forwarding: link.port.forwarding && !link.down && is_up(bridge),
        ..link.port
    });
    LinkState {
        name: link.name.clone(),
        flags: u32::from(!link.down),
        addresses: link.addresses.clone(),
        kind: Some(kind.to_owned()),
        mac: Some(link.mac),
        mtu: planned_mtu(namespace, link),
        bridge: link.bridge.clone(),
        port,
        filters_vlans: false,
        vxlan,
    }
}

/// Returns the MTU of an interface. A bridge has the smallest MTU of its ports (Linux v6.12,
/// `net/bridge/br_if.c`, `br_mtu_auto_adjust`).
fn planned_mtu(namespace: &Namespace, link: &Link) -> u32 {
    if let Some(mtu) = link.mtu {
        return mtu;
    }
    let mut links = namespace.links.iter();
    match &link.kind {
        LinkKind::Bridge => links
            .filter(|port| port.bridge.as_ref() == Some(&link.name))
            .map(|port| planned_mtu(namespace, port))
            .min()
            .unwrap_or(ETHERNET_MTU),
        LinkKind::Vxlan { dev, .. } => {
            let below = links.find(|other| other.name == *dev);
            let below = below.map_or(ETHERNET_MTU, |below| planned_mtu(namespace, below));
            below.saturating_sub(VXLAN_HEADROOM)
        }
        LinkKind::Veth { .. } | LinkKind::Dummy => ETHERNET_MTU,
    }
}

/// Returns the routes of the plan, and those that the kernel adds for addresses. The kernel removes
/// the routes of an interface that is down, except those to its own addresses.
fn planned_routes(namespace: &Namespace) -> Vec<Route> {
    let is_up = |interface: &str| {
        let mut links = namespace.links.iter();
        !links.any(|link| link.name == interface && link.down)
    };
    let routes = namespace.routes.iter().filter(|route| is_up(&route.dev));
    let mut all: Vec<Route> = routes.cloned().collect();
    let loopback = namespace.loopback.iter().map(|own| ("lo", *own));
    let defaults = ["127.0.0.0/8", "::1/128"].into_iter();
    let defaults = defaults.filter_map(|text| Some(("lo", text.parse().ok()?)));
    let links = namespace.links.iter();
    let addresses = links.flat_map(|link| link.addresses.iter().map(|own| (&*link.name, *own)));
    let host_routes = loopback.chain(addresses.clone()).map(|(dev, own)| {
        let single: IpNetwork = own.ip().into();
        (dev, single)
    });
    all.extend(defaults.chain(host_routes).map(|(dev, to)| Route {
        kind: RouteKind::Local,
        table: Some(LOCAL_TABLE),
        ..Route::new(to, dev)
    }));
    let connected = addresses.filter(|(dev, own)| {
        let is_removed = |(network, interface): &(IpNetwork, String)| {
            network.network() == own.network()
                && network.prefix() == own.prefix()
                && interface == dev
        };
        // An address with the longest prefix has no subnet.
        !is_single(*own) && is_up(dev) && !namespace.removed_routes.iter().any(is_removed)
    });
    all.extend(connected.filter_map(|(dev, own)| {
        let to = IpNetwork::new(own.network(), own.prefix()).ok()?;
        // Linux v6.12, `net/ipv4/fib_frontend.c`, `fib_magic`.
        let source = own.is_ipv4().then(|| own.ip());
        Some(Route {
            source,
            ..Route::new(to, dev)
        })
    }));
    all
}

/// Returns the rules of the kernel and those of the plan, by priority. A later rule of the same
/// priority comes after the earlier ones.
fn planned_rules(namespace: &Namespace) -> Vec<RoutingRule> {
    let removed = &namespace.removed_routing_rules;
    let mut rules: Vec<RoutingRule> = RoutingRule::kernel_rules()
        .filter(|rule| !removed.contains(rule))
        .collect();
    rules.extend(namespace.routing_rules.iter().cloned());
    rules.sort_by_key(|rule| rule.priority);
    rules
}
