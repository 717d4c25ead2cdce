//! Ports that kube-proxies keep others away from.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

use crate::cluster::Cluster;
use svclab_model::plan::{Namespace, Protocol, Server, ServerKind};
use svclab_rules::kube_proxy::history::{HOLDS_PORTS, HOLDS_PORTS_EVERYWHERE};
use svclab_rules::kube_proxy::ipvs::DUMMY;
use svclab_rules::kube_proxy::node_ports::Serving;
use svclab_rules::kube_proxy::services::{self, ServicePort};
use svclab_rules::kube_proxy::{Family, KubeProxy};

/// Listeners that nobody accepts from, on each node port and on the ports of
/// external IPs that are the node's own. A connection that no rule takes is made
/// with them, and nobody says a word. Where `taken` has a server already,
/// kube-proxy could not open the port, and passed it by.
/// (`syncProxyRules` of `pkg/proxy/iptables/proxier.go` and
/// `pkg/proxy/ipvs/proxier.go`, v1.9.0 to v1.23.4.)
pub fn held(cluster: &Cluster, namespaces: &[Namespace], taken: &[Server]) -> Vec<Server> {
    let mut held: Vec<Server> = Vec::new();
    for node in &cluster.nodes {
        let holds = |proxy: &&KubeProxy| proxy.version.has(&HOLDS_PORTS);
        let Some(proxy) = node.generated_proxy().filter(holds) else {
            continue;
        };
        let own: Vec<IpAddr> = namespaces
            .iter()
            .filter(|namespace| namespace.name == node.name)
            .flat_map(|namespace| &namespace.links)
            // What kube-proxy itself binds is there when it has looked.
            .filter(|link| link.name != DUMMY)
            .flat_map(|link| link.addresses.iter().map(IpNetwork::ip))
            .collect();
        let families = [Some(Family::V4), cluster.speaks_v6().then_some(Family::V6)];
        for family in families.into_iter().flatten() {
            // What cannot be read was told of when the rules were written.
            let ports = services::service_ports(&cluster.services, proxy.version, family);
            for (address, port, protocol) in ports
                .iter()
                .flatten()
                .flat_map(|port| of_port(proxy, port, &own, family))
            {
                let is_there = |server: &Server| {
                    server.namespace == node.name
                        && (server.port, server.protocol) == (port, protocol)
                        && meets(server.address, address)
                };
                if !taken.iter().chain(&held).any(is_there) {
                    held.push(Server {
                        namespace: node.name.clone(),
                        name: format!("kube-proxy of {}", node.name),
                        address: Some(address),
                        protocol,
                        port,
                        kind: ServerKind::Holds,
                    });
                }
            }
        }
    }
    held
}

/// Whether a listener on an address keeps one from another.
fn meets(there: Option<IpAddr>, address: IpAddr) -> bool {
    there.is_none_or(|there| {
        there == address
            || (there.is_ipv4() == address.is_ipv4()
                && (there.is_unspecified() || address.is_unspecified()))
    })
}

/// Where one service port is held: address, port, protocol.
fn of_port(
    proxy: &KubeProxy,
    service: &ServicePort,
    own: &[IpAddr],
    family: Family,
) -> Vec<(IpAddr, u16, Protocol)> {
    let protocol = match service.protocol {
        services::Protocol::Tcp => Protocol::Tcp,
        services::Protocol::Udp => Protocol::Udp,
        services::Protocol::Sctp => return Vec::new(),
    };
    let external = service.external_ips.iter().filter(|ip| own.contains(ip));
    let mut held: Vec<_> = external.map(|ip| (*ip, service.port, protocol)).collect();
    if let Some(port) = service.node_port {
        let addresses = node_addresses(proxy, own, family);
        held.extend(addresses.into_iter().map(|ip| (ip, port, protocol)));
    }
    held
}

/// The addresses on which node ports are held; the unspecified one is all.
fn node_addresses(proxy: &KubeProxy, own: &[IpAddr], family: Family) -> Vec<IpAddr> {
    let serving = Serving::of(proxy, family);
    if serving == Serving::All || proxy.version.has(&HOLDS_PORTS_EVERYWHERE) {
        return vec![family.unspecified()];
    }
    let loopback = match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Family::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    let mut addresses: Vec<IpAddr> = own
        .iter()
        .chain([&loopback])
        .copied()
        .filter(|ip| Family::of(*ip) == family)
        .filter(|ip| serving.covers(*ip, None))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}
