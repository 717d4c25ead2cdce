//! Compares the interfaces, queues and sysctls that a packet met with those of the lab.

use std::collections::{BTreeMap, BTreeSet};

use super::network::routed_packets;
use super::{Deviation, InterfaceProperty as Property};
use crate::state::route_lookup::{RouteDecision, RouteLookup};
use crate::state::{LabState, NamespaceState};
use svclab_journey::journey::{Hop, PacketPath};
use svclab_model::evidence::{KERNEL_DEFAULTS, LinkState};
use svclab_model::plan::{Link, LinkKind, PortSettings, forwarding_switch};

/// Sysctls that kube-proxy sets with its default flags (kubernetes v1.20.2, `NewProxier` of
/// `pkg/proxy/iptables/proxier.go` and `pkg/proxy/ipvs/proxier.go`, and
/// `pkg/proxy/apis/config/v1alpha1/defaults.go`).
const KUBE_PROXY_SYSCTLS: [(&str, &str); 8] = [
    ("net.ipv4.conf.all.route_localnet", "1"),
    ("net.ipv4.conf.all.arp_ignore", "1"),
    ("net.ipv4.conf.all.arp_announce", "2"),
    ("net.ipv4.vs.conntrack", "1"),
    ("net.ipv4.vs.expire_nodest_conn", "1"),
    ("net.ipv4.vs.expire_quiescent_template", "1"),
    (
        "net.netfilter.nf_conntrack_tcp_timeout_established",
        "86400",
    ),
    ("net.netfilter.nf_conntrack_tcp_timeout_close_wait", "3600"),
];

/// Returns the deviations that a packet met in one hop, with the namespace of each.
pub(super) fn met(lab: &LabState<'_>, flight: &PacketPath, hop: &Hop) -> Vec<(String, Deviation)> {
    let (Some(planned), Some(observed)) =
        (lab.planned(&hop.namespace), lab.observed(&hop.namespace))
    else {
        return Vec::new();
    };
    let names = interfaces(lab, planned, flight, hop);
    let own = compare(planned, observed, &names).into_iter();
    let own = own.map(|deviation| (hop.namespace.clone(), deviation));
    own.chain(peers(lab, hop, &names)).collect()
}

/// Returns the deviations of all interfaces of a namespace.
pub(super) fn compare_all(planned: &NamespaceState, observed: &NamespaceState) -> Vec<Deviation> {
    let links = planned.links.iter().chain(&observed.links);
    let names = links.map(|link| &*link.name).collect();
    compare(planned, observed, &names)
}

/// Returns the deviations of some interfaces, with their queueing disciplines and sysctls.
fn compare(
    planned: &NamespaceState,
    observed: &NamespaceState,
    interfaces: &BTreeSet<&str>,
) -> Vec<Deviation> {
    let mut found: Vec<Deviation> = interfaces
        .iter()
        .flat_map(|name| interface(planned, observed, name))
        .collect();
    let queues = observed.network.queues.iter();
    let queues = queues.filter(|queue| interfaces.contains(&*queue.interface));
    found.extend(queues.map(|queue| Deviation::Queue {
        interface: queue.interface.clone(),
        kind: queue.kind.clone(),
        dropped: queue.dropped,
    }));
    found.extend(sysctls(planned, observed, interfaces));
    found
}

/// Returns the interfaces that a packet crossed, those that the routes and bridges of the lab select,
/// and the tunnels and bridges of all of them.
fn interfaces<'n>(
    lab: &'n LabState<'_>,
    planned: &'n NamespaceState,
    flight: &PacketPath,
    hop: &'n Hop,
) -> BTreeSet<&'n str> {
    let mut names: BTreeSet<&str> = hop.crossings.iter().map(|seen| &*seen.interface).collect();
    for routed in routed_packets(flight, hop) {
        let query = routed.query(planned.routing_mark(hop));
        let lookup = RouteLookup::new(&planned.network, query);
        if let RouteDecision::Unicast { interfaces, .. } = lookup.decision {
            let links = planned.links.iter();
            let selected = links.filter(|link| interfaces.contains(&link.name));
            names.extend(selected.map(|link| &*link.name));
        }
    }
    let links = planned.links.iter();
    let ports = links.filter(|link| names.contains(&*link.name));
    let bridges: Vec<&str> = ports.filter_map(|link| link.bridge.as_deref()).collect();
    names.extend(bridges);
    let to = hop.after.destination.ip();
    let leads_to = |link: &&Link| {
        let LinkKind::Veth { namespace, peer } = &link.kind else {
            return false;
        };
        let far = lab.planned(namespace).and_then(|far| far.link(peer));
        far.is_some_and(|far| far.addresses.iter().any(|own| own.ip() == to))
    };
    let plan = lab.plan.namespace(&hop.namespace);
    let links = plan.into_iter().flat_map(|namespace| &namespace.links);
    let ports = links.filter(leads_to).filter(|link| {
        let bridge = link.bridge.as_deref();
        bridge.is_some_and(|bridge| names.contains(bridge))
    });
    let ports: Vec<&str> = ports.map(|link| &*link.name).collect();
    names.extend(ports);
    if hop.crossings.iter().any(|seen| seen.encapsulated) {
        let tunnels = planned.links.iter().filter(|link| link.vxlan.is_some());
        names.extend(tunnels.map(|link| &*link.name));
    }
    names
}

/// Compares the interface with the one of the lab.
pub(super) fn interface(
    planned: &NamespaceState,
    observed: &NamespaceState,
    name: &str,
) -> Vec<Deviation> {
    let value = |property, planned: Option<String>, observed: Option<String>| {
        (planned != observed).then(|| Deviation::Interface {
            interface: name.to_owned(),
            property,
            planned,
            observed,
        })
    };
    let exists = || Some("exists".to_owned());
    let (planned, observed) = match (planned.link(name), observed.link(name)) {
        (Some(planned), Some(observed)) => (planned, observed),
        (Some(_), None) => {
            return value(Property::Existence, exists(), None)
                .into_iter()
                .collect();
        }
        // Routes and rules lead to an interface that the lab does not have.
        (None, _) => return Vec::new(),
    };
    let state = |link: &LinkState| Some(if link.is_up() { "up" } else { "down" }.to_owned());
    let mac = |link: &LinkState| link.mac.map(|mac| mac.to_string());
    let mtu = |link: &LinkState| Some(link.mtu.to_string());
    let mut found = vec![
        value(Property::State, state(planned), state(observed)),
        value(Property::HardwareAddress, mac(planned), mac(observed)),
        value(
            Property::Bridge,
            planned.bridge.clone(),
            observed.bridge.clone(),
        ),
    ];
    // A larger MTU loses no packet here.
    if observed.mtu < planned.mtu {
        found.push(value(Property::Mtu, mtu(planned), mtu(observed)));
    }
    let flag = |is_on: bool| Some(if is_on { "on" } else { "off" }.to_owned());
    found.push(value(
        Property::VlanFiltering,
        flag(planned.filters_vlans),
        flag(observed.filters_vlans),
    ));
    // The kernel creates interfaces of other kinds without ARP.
    let has_arp = |link: &LinkState| matches!(link.kind.as_deref(), Some("veth" | "bridge"));
    if has_arp(planned) && has_arp(observed) && !observed.resolves_neighbours() {
        found.push(value(Property::Arp, flag(true), flag(false)));
    }
    if let (Some(ours), Some(theirs)) = (planned.port, observed.port) {
        let properties = [
            Property::Hairpin,
            Property::Isolated,
            Property::Learning,
            Property::Flood,
            Property::Locked,
        ];
        let settings = [ours, theirs].map(|port| port.settings().map(|(_, is_on)| is_on));
        for (index, property) in properties.into_iter().enumerate() {
            let [ours, theirs] = settings.map(|settings| flag(settings[index]));
            found.push(value(property, ours, theirs));
        }
        // A port of an interface that is down does not forward either.
        if observed.is_up() {
            let state = |port: PortSettings| {
                let forwards = port.forwarding;
                Some(
                    if forwards {
                        "forwarding"
                    } else {
                        "not forwarding"
                    }
                    .to_owned(),
                )
            };
            found.push(value(Property::PortState, state(ours), state(theirs)));
        }
    }
    if let (Some(ours), Some(theirs)) = (planned.vxlan, observed.vxlan) {
        let text = |value: &dyn ToString| Some(value.to_string());
        let local = |state: Option<std::net::IpAddr>| state.map(|local| local.to_string());
        found.extend([
            value(Property::Vni, text(&ours.vni), text(&theirs.vni)),
            value(Property::VxlanPort, text(&ours.port), text(&theirs.port)),
            value(Property::VxlanLocal, local(ours.local), local(theirs.local)),
        ]);
    }
    let missing = planned
        .addresses
        .iter()
        .filter(|address| !observed.addresses.contains(address));
    found.extend(missing.map(|address| value(Property::Address, Some(address.to_string()), None)));
    found.into_iter().flatten().collect()
}

/// Returns the deviations of the other ends of the veth pairs through which a packet left.
fn peers(lab: &LabState<'_>, hop: &Hop, names: &BTreeSet<&str>) -> Vec<(String, Deviation)> {
    let plan = lab.plan.namespace(&hop.namespace);
    let links = plan.into_iter().flat_map(|namespace| &namespace.links);
    let ends = links.filter_map(|link| match &link.kind {
        LinkKind::Veth { namespace, peer } if names.contains(&*link.name) => {
            Some((namespace, peer))
        }
        _ => None,
    });
    let mut found = Vec::new();
    for (namespace, peer) in ends {
        if let (Some(planned), Some(observed)) = (lab.planned(namespace), lab.observed(namespace)) {
            let deviations = interface(planned, observed, peer);
            found.extend(deviations.into_iter().map(|own| (namespace.clone(), own)));
        }
    }
    found
}

/// Compares sysctls with those of the lab. Of the sysctls of interfaces, those of `interfaces` and
/// of `all` count.
fn sysctls(
    planned: &NamespaceState,
    observed: &NamespaceState,
    interfaces: &BTreeSet<&str>,
) -> Vec<Deviation> {
    let is_met = |name: &str| {
        let Some((_, rest)) = name.split_once(".conf.") else {
            return true;
        };
        let interface = rest
            .rsplit_once('.')
            .map_or(rest, |(interface, _)| interface);
        interface == "all" || interfaces.contains(&*interface.replace('/', "."))
    };
    let expected = |name: &str| {
        let of = |name: &str| planned.sysctls.get(name);
        let value = of(name).or_else(|| of(forwarding_switch(name)?)).cloned();
        let default = KERNEL_DEFAULTS.iter().find(|(own, _)| *own == name);
        value.or_else(|| default.map(|(_, value)| (*value).to_owned()))
    };
    let values = observed.sysctls.iter();
    let changed: BTreeMap<&str, (String, &String)> = values
        .filter_map(|(name, value)| Some((name.as_str(), (expected(name)?, value))))
        .filter(|(_, (planned, value))| planned != *value)
        .filter(|(name, (_, value))| {
            !planned.has_real_proxy || !KUBE_PROXY_SYSCTLS.contains(&(name, value))
        })
        .collect();
    let met = changed.iter().filter(|(name, _)| is_met(name));
    met.filter(|(name, (_, value))| !is_switched(name, value, &changed))
        .map(|(name, (planned, value))| Deviation::Sysctl {
            name: (*name).to_owned(),
            planned: planned.clone(),
            observed: (*value).clone(),
        })
        .collect()
}

/// Whether the kernel set a sysctl because somebody changed a switch of forwarding. IPv4 forwarding
/// also sets `accept_redirects` of `all` to the opposite (Linux v6.12, `net/ipv4/devinet.c`,
/// `inet_forward_change`).
fn is_switched(name: &str, value: &str, changed: &BTreeMap<&str, (String, &String)>) -> bool {
    let state_of = |switch: &str| changed.get(switch).map(|(_, state)| state.as_str());
    if name == "net.ipv4.conf.all.accept_redirects" {
        let state = state_of("net.ipv4.ip_forward");
        return state.is_some_and(|state| (value == "0") != (state == "0"));
    }
    forwarding_switch(name).and_then(state_of) == Some(value)
}
