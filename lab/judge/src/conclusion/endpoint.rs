//! Finds why a request reached no endpoint of a service although its packets were delivered or
//! dropped as the rules state: wrong ports, source ranges, and endpoints that are not ready.

use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;

use super::service_reasons::{MissingEndpointReason, NoEndpointReason, NodePortGap, ServicePolicy};
use super::{Conclusion, Fact};
use crate::judge::probe::is_name_suffix;
use svclab_journey::journey::{Hop, Kind, PacketPath, PathEnd, RuleMatch};
use svclab_planner::cluster::{FABRIC, Node};
use svclab_rules::kube_proxy::Mode;
use svclab_rules::objects::{EndpointSlice, NODE_PORTS, PortSpec, Service, SliceEndpoint};
use svclab_ruleset::{Family, Protocol};

/// Chains of kube-proxy that drop packets from outside of the source ranges of a service: iptables
/// since v1.27, iptables before, ipvs and nftables (kubernetes v1.30, `pkg/proxy`).
const FIREWALL_CHAINS: [&str; 5] = [
    "KUBE-PROXY-FIREWALL",
    "KUBE-FW-",
    "KUBE-FIREWALL",
    "KUBE-LOAD-BALANCER-FW",
    "firewall-",
];

impl Conclusion<'_> {
    /// Returns facts about the end of a request: its address, its port, and the endpoint there.
    pub(super) fn endpoint_facts(&self, request: &PacketPath) -> Vec<Fact> {
        let Some(hop) = request.hops.last() else {
            return Vec::new();
        };
        let facts = [
            self.outside_ranges(request, hop),
            self.no_service_port(request),
            self.no_node_port(request, hop),
            self.no_endpoint(request, hop),
            self.not_listening(request, hop),
            self.unknown_endpoint(hop),
            self.not_in_fabric(request, hop),
        ];
        facts.into_iter().flatten().collect()
    }

    /// Returns the fact that a rule for source ranges dropped the request.
    fn outside_ranges(&self, request: &PacketPath, hop: &Hop) -> Option<Fact> {
        let is_firewall = |step: &RuleMatch| {
            let mut prefixes = FIREWALL_CHAINS.iter();
            step.dropped && prefixes.any(|prefix| step.chain.starts_with(prefix))
        };
        if !hop.matches.last().is_some_and(is_firewall) {
            return None;
        }
        let source = hop.before.source;
        let (service, _) = self.service(hop.before.destination, request.kind)?;
        let ranges = &service.source_ranges;
        let is_inside = ranges.iter().any(|range| range.contains(source.ip()));
        (!ranges.is_empty() && !is_inside).then(|| Fact::OutsideSourceRanges {
            service: service.full_name(),
            source: self.named(source),
        })
    }

    /// Returns the fact that the service with the requested address has no such port.
    fn no_service_port(&self, request: &PacketPath) -> Option<Fact> {
        let to = self.journey.addresses?.destination;
        if self.service(to, request.kind).is_some() {
            return None;
        }
        let mut services = self.book.cluster().services.iter();
        let service = services.find(|service| service.has_address(to.ip()))?;
        let protocol = protocol(request.kind)?;
        let ports = service.ports.iter();
        Some(Fact::NoServicePort {
            service: service.full_name(),
            port: format!("{protocol} {}", to.port()),
            ports: ports
                .map(|port| format!("{} {}", port.protocol, port.port))
                .collect(),
        })
    }

    /// Returns the fact that the node does not serve the node port of a request that it refused.
    fn no_node_port(&self, request: &PacketPath, hop: &Hop) -> Option<Fact> {
        let to = hop.after.destination;
        let node = self.node(hop)?;
        let is_refused = matches!(request.end, PathEnd::Rejected(_));
        let mut services = self.book.cluster().services.iter();
        if !is_refused || services.any(|service| service.has_address(to.ip())) {
            return None;
        }
        let services = self.book.cluster().services.iter();
        let node_ports: Vec<(&Service, &PortSpec, u16)> = services
            .flat_map(|service| service.ports.iter().map(move |port| (service, port)))
            .filter_map(|(service, port)| Some((service, port, port.node_port?)))
            .collect();
        let protocol = protocol(request.kind)?;
        let own_port = node_ports
            .iter()
            .filter(|(.., number)| *number == to.port());
        // One number may be the node port of two services, with different protocols.
        let own_port = own_port.max_by_key(|(_, port, _)| port.protocol == protocol);
        let Some((service, port, number)) = own_port else {
            let others = node_ports.iter();
            let others = others.map(|(service, _, number)| (service.full_name(), *number));
            return NODE_PORTS.contains(&to.port()).then(|| Fact::NoNodePort {
                port: to.port(),
                others: others.collect(),
            });
        };
        let family = Family::from_ip(to.ip());
        let mut cluster_ips = service.cluster_ips.iter();
        let because = if port.protocol != protocol {
            NodePortGap::Protocol(port.protocol.to_string())
        } else if !cluster_ips.any(|ip| Family::from_ip(*ip) == family) {
            NodePortGap::Family(family)
        } else if to.ip().is_loopback() {
            NodePortGap::Loopback
        } else if excludes(node, to.ip()) {
            NodePortGap::Address
        } else {
            return None;
        };
        Some(Fact::NodePortNotServed {
            node: node.name.clone(),
            address: to.ip(),
            port: *number,
            service: service.full_name(),
            because,
        })
    }

    /// Returns the fact that the service of a request that a node dropped or refused has no endpoint
    /// for it. kube-proxy also uses endpoints that terminate but still serve if no other is ready
    /// (kubernetes v1.30, `pkg/proxy/topology.go`, `CategorizeEndpoints`).
    fn no_endpoint(&self, request: &PacketPath, hop: &Hop) -> Option<Fact> {
        let to = hop.before.destination;
        let node = self.node(hop)?;
        node.kube_proxy.as_ref()?;
        let has_ended = matches!(request.end, PathEnd::DroppedByRule | PathEnd::Rejected(_));
        if !has_ended || hop.after.destination != to {
            return None;
        }
        let (service, port) = self.service_port(to, request.kind)?;
        let is_internal = service.cluster_ips.contains(&to.ip());
        let slices = self.book.cluster().slices.iter();
        let own = slices.filter(|slice| slice.belongs_to(service));
        let has_port = |slice: &EndpointSlice| slice.port_numbers(&port.name).next().is_some();
        let is_served = own.clone().any(has_port);
        let endpoints = own.flat_map(|slice| &slice.endpoints).filter(|endpoint| {
            let mut addresses = endpoint.addresses.iter();
            addresses.any(|own| own.is_ipv4() == to.is_ipv4())
        });
        let endpoints: Vec<&SliceEndpoint> = endpoints.collect();
        let is_usable = |endpoint: &&&SliceEndpoint| {
            endpoint.ready || (endpoint.serving && endpoint.terminating)
        };
        let mut usable = endpoints.iter().filter(is_usable).peekable();
        let (policy, is_local) = if is_internal {
            (ServicePolicy::InternalLocal, service.internal_local)
        } else {
            (ServicePolicy::ExternalLocal, service.external_local)
        };
        let reason = if endpoints.is_empty() {
            NoEndpointReason::Empty
        } else if usable.peek().is_none() {
            let addresses = endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
            let names = addresses.map(|address| self.book.name_of(*address));
            NoEndpointReason::NotReady(names.collect())
        } else if !is_served {
            NoEndpointReason::NoPort(port.port)
        } else if is_local && !usable.any(|endpoint| endpoint.node.as_ref() == Some(&node.name)) {
            NoEndpointReason::OnlyOnOtherNodes(policy)
        } else {
            return None;
        };
        Some(Fact::NoEndpoint {
            service: service.full_name(),
            node: node.name.clone(),
            reason,
        })
    }

    /// Returns the fact that no server of a pod listens on the port of a refused request.
    fn not_listening(&self, request: &PacketPath, hop: &Hop) -> Option<Fact> {
        let cluster = self.book.cluster();
        let to = hop.after.destination;
        let is_pod = |pod: &&svclab_planner::cluster::Pod| cluster.netns(pod) == hop.namespace;
        let pod = cluster.pods.iter().find(is_pod)?;
        let is_refused = matches!(request.end, PathEnd::Rejected(_));
        let own = protocol(request.kind)?;
        if pod.host_network || !is_refused {
            return None;
        }
        let serving = cluster
            .serving
            .iter()
            .filter(|own| own.netns == hop.namespace);
        let name = |port: u16, protocol: Protocol| format!("{port}/{}", protocol.name());
        let listening: Vec<String> = serving
            .filter_map(|own| Some(name(own.port, Protocol::try_from(own.protocol).ok()?)))
            .collect();
        let port = name(to.port(), own);
        (!listening.contains(&port)).then(|| Fact::NotListening {
            endpoint: pod.reference(),
            port,
            listening,
        })
    }

    /// Returns the fact that nothing has the address of the endpoint to which a request was sent.
    fn unknown_endpoint(&self, hop: &Hop) -> Option<Fact> {
        let to = hop.after.destination;
        let called = self.journey.addresses?.destination;
        let is_known = self.book.name_of(to.ip()) != to.ip().to_string();
        if to == called || is_known {
            return None;
        }
        let cluster = self.book.cluster();
        let has_endpoint = |service: &&Service| {
            let slices = cluster
                .slices
                .iter()
                .filter(|slice| slice.belongs_to(service));
            let mut endpoints = slices.flat_map(|slice| &slice.endpoints);
            endpoints.any(|endpoint| endpoint.addresses.contains(&to.ip()))
        };
        let service = cluster.services.iter().find(has_endpoint)?;
        Some(Fact::UnknownEndpoint {
            service: service.full_name(),
            address: to,
        })
    }

    /// Returns the fact that the fabric has no route to the destination of a request.
    fn not_in_fabric(&self, request: &PacketPath, hop: &Hop) -> Option<Fact> {
        let to = hop.after.destination;
        let is_lost = !matches!(request.end, PathEnd::Delivered);
        let cluster = self.book.cluster();
        let is_balanced = |address| {
            let mut balancers = cluster.balancers.iter();
            balancers.any(|balancer| balancer.addresses.contains(&address))
        };
        let mut routes = cluster.fabric.routes.iter();
        let is_outside = hop.namespace == FABRIC
            && is_lost
            && hop.before.destination == to
            && self.is_external(to)
            && !is_balanced(to.ip())
            && !routes.any(|(network, _)| network.contains(to.ip()));
        is_outside.then(|| Fact::NotInFabric {
            destination: self.named(to),
        })
    }

    /// Whether an address belongs to a service, and packets to it come from outside of the nodes.
    fn is_external(&self, address: SocketAddr) -> bool {
        let mut services = self.book.cluster().services.iter();
        services.any(|service| {
            service.external_ips.contains(&address.ip())
                || service.ingress_ips().contains(&address.ip())
        })
    }

    /// Returns for each expected endpoint without connections why it gets none.
    pub(super) fn missing_endpoints(&self, missing: &[String]) -> Vec<Fact> {
        let Some(called) = self.journey.addresses else {
            return Vec::new();
        };
        let Some((service, _)) = self.service(called.destination, Kind::Other) else {
            return Vec::new();
        };
        let cluster = self.book.cluster();
        let reason = |name: &str| {
            let pod = cluster
                .pods
                .iter()
                .find(|pod| is_name_suffix(&pod.reference(), name))?;
            let slices = cluster
                .slices
                .iter()
                .filter(|slice| slice.belongs_to(service));
            let mut endpoints = slices.flat_map(|slice| &slice.endpoints);
            let endpoint = endpoints
                .find(|endpoint| endpoint.addresses.iter().any(|own| pod.ips.contains(own)));
            let reason = match endpoint {
                None => MissingEndpointReason::NotSelected,
                Some(endpoint) if !endpoint.ready => MissingEndpointReason::NotReady,
                Some(_) => return None,
            };
            Some((pod.reference(), reason))
        };
        let reasons = missing.iter().filter_map(|name| reason(name));
        reasons
            .map(|(endpoint, reason)| Fact::MissingEndpoint {
                service: service.full_name(),
                endpoint,
                reason,
            })
            .collect()
    }
}

/// Whether kube-proxy serves node ports on other addresses of the node only.
fn excludes(node: &Node, address: IpAddr) -> bool {
    let Some(proxy) = &node.kube_proxy else {
        return false;
    };
    let mut addresses = node.addresses.iter().map(IpNetwork::ip);
    let primary = addresses.find(|own| own.is_ipv4() == address.is_ipv4());
    let selected = &proxy.node_port_addresses;
    if selected.is_empty() {
        return proxy.mode == Mode::Nftables && primary != Some(address);
    }
    !selected.iter().any(|own| own.covers(address, primary))
}

/// Returns the transport protocol of a request.
const fn protocol(kind: Kind) -> Option<Protocol> {
    match kind {
        Kind::Datagram => Some(Protocol::Udp),
        Kind::Syn => Some(Protocol::Tcp),
        _ => None,
    }
}
