//! Builds the ports that kube-proxies hold open to prevent other programs from using them.

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::cluster::Cluster;
use svclab_model::plan::{Namespace, ProbeProtocol, Server, ServerKind};
use svclab_rules::kube_proxy::history::{LISTENS_ON_ALL_ADDRESSES, LISTENS_ON_NODE_PORTS};
use svclab_rules::kube_proxy::ipvs::DUMMY;
use svclab_rules::kube_proxy::node_ports::NodePortSelection;
use svclab_rules::kube_proxy::services::{self, ServicePort};
use svclab_rules::kube_proxy::{Family, KubeProxy};
use svclab_ruleset::Protocol;

/// Builds a listening socket for each node port, and for the ports of external IPs that the node
/// itself has. No program accepts from these sockets: a connection that matches no rule is
/// established and stays silent. If a server in `taken` already uses the port, kube-proxy cannot
/// open it and skips it. (`syncProxyRules` of `pkg/proxy/iptables/proxier.go` and
/// `pkg/proxy/ipvs/proxier.go`, v1.9.0 to v1.23.4.)
pub fn held_ports(cluster: &Cluster, namespaces: &[Namespace], taken: &[Server]) -> Vec<Server> {
    let mut servers: Vec<Server> = Vec::new();
    for node in &cluster.nodes {
        let holds_ports = |proxy: &&KubeProxy| proxy.version.has(&LISTENS_ON_NODE_PORTS);
        let Some(proxy) = node.generated_proxy().filter(holds_ports) else {
            continue;
        };
        let own_addresses: Vec<IpAddr> = namespaces
            .iter()
            .filter(|namespace| namespace.name == node.name)
            .flat_map(|namespace| &namespace.links)
            // kube-proxy reads the node's addresses before it binds its own.
            .filter(|link| link.name != DUMMY)
            .flat_map(|link| link.addresses.iter().map(IpNetwork::ip))
            .collect();
        let families = [Some(Family::V4), cluster.has_ipv6().then_some(Family::V6)];
        for family in families.into_iter().flatten() {
            // Errors were already reported when the rules were built.
            let ports = services::service_ports(&cluster.services, proxy.version, family);
            for (address, port, protocol) in ports
                .iter()
                .flatten()
                .flat_map(|port| held_sockets(proxy, port, &own_addresses, family))
            {
                let is_taken = |server: &Server| {
                    server.namespace == node.name
                        && (server.port, server.protocol) == (port, protocol)
                        && conflicts(server.address, address)
                };
                if !taken.iter().chain(&servers).any(is_taken) {
                    servers.push(Server {
                        namespace: node.name.clone(),
                        name: format!("kube-proxy of {}", node.name),
                        address: Some(address),
                        protocol,
                        port,
                        kind: ServerKind::ListenOnly,
                    });
                }
            }
        }
    }
    servers
}

/// Whether a listening socket on one address prevents a listening socket on the other.
fn conflicts(listening: Option<IpAddr>, address: IpAddr) -> bool {
    listening.is_none_or(|there| {
        there == address
            || (there.is_ipv4() == address.is_ipv4()
                && (there.is_unspecified() || address.is_unspecified()))
    })
}

/// Returns where one service port is held: address, port, protocol.
fn held_sockets(
    proxy: &KubeProxy,
    service: &ServicePort,
    own_addresses: &[IpAddr],
    family: Family,
) -> Vec<(IpAddr, u16, ProbeProtocol)> {
    let protocol = match service.protocol {
        Protocol::Tcp => ProbeProtocol::Tcp,
        Protocol::Udp => ProbeProtocol::Udp,
        Protocol::Sctp => return Vec::new(),
    };
    let external = service
        .external_ips
        .iter()
        .filter(|ip| own_addresses.contains(ip));
    let mut sockets: Vec<_> = external.map(|ip| (*ip, service.port, protocol)).collect();
    if let Some(port) = service.node_port {
        let addresses = node_addresses(proxy, own_addresses, family);
        sockets.extend(addresses.into_iter().map(|ip| (ip, port, protocol)));
    }
    sockets
}

/// Returns the addresses on which node ports are held. The unspecified address covers all
/// addresses.
fn node_addresses(proxy: &KubeProxy, own_addresses: &[IpAddr], family: Family) -> Vec<IpAddr> {
    let serving = NodePortSelection::new(proxy, family);
    if serving == NodePortSelection::All || proxy.version.has(&LISTENS_ON_ALL_ADDRESSES) {
        return vec![family.unspecified()];
    }
    let loopback = family.localhost();
    let mut addresses: Vec<IpAddr> = own_addresses
        .iter()
        .chain([&loopback])
        .copied()
        .filter(|ip| Family::from_ip(*ip) == family)
        .filter(|ip| serving.covers(*ip, None))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}
