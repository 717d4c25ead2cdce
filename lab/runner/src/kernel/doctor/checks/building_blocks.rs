//! Building blocks of the feature checks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use ipnetwork::IpNetwork;

use super::PORT;
use svclab_model::plan::{
    Lifetime, Link, LinkKind, Mac, Namespace, Neighbour, Plan, PortSettings, Probe, ProbeProtocol,
    Route, Server, ServerKind, Sysctl, Target,
};

/// Returns a namespace with one interface that is not connected yet.
pub(super) fn host(name: &str, address: IpAddr) -> Namespace {
    Namespace {
        name: name.to_owned(),
        links: vec![link(name, "eth0", LinkKind::Bridge, Some(address))],
        sysctls: vec![
            sysctl("net.ipv4.conf.all.rp_filter", "0"),
            sysctl("net.ipv4.conf.default.rp_filter", "0"),
        ],
        ..Namespace::default()
    }
}

/// Returns an interface whose MAC address is derived from its names.
pub(super) fn link(namespace: &str, name: &str, kind: LinkKind, address: Option<IpAddr>) -> Link {
    Link {
        name: name.to_owned(),
        kind,
        mac: Mac::from_names(namespace, name),
        addresses: address
            .into_iter()
            .map(|address| with_prefix(address, 24, 64))
            .collect(),
        bridge: None,
        port: PortSettings::default(),
        down: false,
        mtu: None,
    }
}

/// Returns the end of a veth pair whose other end is `peer` in `namespace`.
pub(super) fn veth_end(namespace: &str, peer: &str) -> LinkKind {
    LinkKind::Veth {
        namespace: namespace.to_owned(),
        peer: peer.to_owned(),
    }
}

/// Makes two interfaces, each `(namespace, name)`, the ends of one veth pair.
pub(super) fn connect(plan: &mut Plan, first: (&str, &str), second: (&str, &str)) {
    for (near_end, far_end) in [(first, second), (second, first)] {
        for namespace in plan
            .namespaces
            .iter_mut()
            .filter(|ns| ns.name == near_end.0)
        {
            for link in namespace
                .links
                .iter_mut()
                .filter(|link| link.name == near_end.1)
            {
                link.kind = veth_end(far_end.0, far_end.1);
            }
        }
    }
}

/// Adds static neighbours between the namespaces of a plan.
pub(super) fn add_neighbours(plan: &mut Plan) {
    let neighbours: Vec<(IpAddr, Mac)> = plan
        .namespaces
        .iter()
        .flat_map(|namespace| &namespace.links)
        .flat_map(|link| {
            link.addresses
                .iter()
                .map(|address| (address.ip(), link.mac))
        })
        .collect();
    for namespace in &mut plan.namespaces {
        let own_macs: Vec<Mac> = namespace.links.iter().map(|link| link.mac).collect();
        for (address, mac) in neighbours.iter().filter(|(_, mac)| !own_macs.contains(mac)) {
            namespace.neighbours.push(Neighbour {
                address: *address,
                mac: *mac,
                dev: "eth0".to_owned(),
            });
        }
    }
}

/// Adds 1 connection from host `one` to an address, and a server on host `two` if there is none.
pub(super) fn with_probe(mut plan: Plan, address: IpAddr, port: u16, max_wait: Duration) -> Plan {
    if plan.servers.is_empty() {
        plan.servers.push(Server {
            namespace: "two".to_owned(),
            name: "two".to_owned(),
            address: None,
            protocol: ProbeProtocol::Tcp,
            port: PORT,
            kind: ServerKind::Identify,
        });
    }
    plan.stages[0].probes.push(Probe {
        name: "call".to_owned(),
        namespace: "one".to_owned(),
        target: Target { address, port },
        protocol: ProbeProtocol::Tcp,
        connections: 1,
        concurrency: None,
        bind: None,
        source_port: None,
        bytes: None,
        datagrams: NonZeroU32::MIN,
        max_wait,
        settle: false,
        after: None,
        lifetime: Lifetime::Stage,
    });
    plan
}

/// Returns the default route through `via` on `eth0`, in the family of `via`.
pub(super) fn default_route(via: IpAddr) -> Route {
    let any: IpAddr = match via {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    Route {
        via: Some(via),
        ..Route::new(with_prefix(any, 0, 0), "eth0")
    }
}

/// Returns an address with the prefix length of its family.
fn with_prefix(address: IpAddr, v4: u8, v6: u8) -> IpNetwork {
    let prefix = if address.is_ipv4() { v4 } else { v6 };
    // Fails only if a check uses a longer prefix than its family has.
    IpNetwork::new(address, prefix).unwrap_or_else(|_| address.into())
}

/// Returns a sysctl that concerns no interface of the plan.
pub(super) fn sysctl(key: &str, value: &str) -> Sysctl {
    Sysctl {
        key: key.to_owned(),
        value: value.to_owned(),
        link: None,
        optional: false,
    }
}
