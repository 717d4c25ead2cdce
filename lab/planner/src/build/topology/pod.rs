//! Connects pods to their nodes: through a bridge, or through one route for each pod, as Calico and
//! the network plugins of clouds do.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use data_encoding::HEXLOWER;
use ipnetwork::IpNetwork;
use sha1::{Digest, Sha1};

use crate::build::topology::fabric::UPLINK;
use crate::build::topology::{Port, Topology, default_destination};
use crate::cluster::{Cluster, Node, Pod, first_host};
use svclab_model::plan::{LinkKind, Mac};

/// Bridge of flannel's CNI plugin.
const CNI_BRIDGE: &str = "cni0";

/// Bridge of kubenet and related plugins.
const KUBENET_BRIDGE: &str = "cbr0";

/// Gateway address of calico's pods. The node answers neighbour requests for it
/// (projectcalico/calico v3.28.0, `cni-plugin/pkg/dataplane/linux/dataplane_linux.go`). The plugin of
/// AWS uses the same address with a permanent neighbour entry (aws/amazon-vpc-cni-k8s v1.18.0,
/// `cmd/routed-eni-cni-plugin/driver/driver.go`).
const CALICO_GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// Hardware address of the node's end of every calico veth pair, and the link-local address derived
/// from it.
const CALICO_MAC: Mac = Mac([0xee; 6]);
const CALICO_LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xecee, 0xeeff, 0xfeee, 0xeeee);

/// Connects every pod that does not use the host network.
pub fn add_to_topology(topology: &mut Topology, cluster: &Cluster) {
    for (index, node) in cluster.nodes.iter().enumerate() {
        let pods: Vec<&Pod> = cluster
            .pods
            .iter()
            .filter(|pod| pod.node == index && !pod.host_network)
            .collect();
        if cluster.routes_pods {
            for pod in pods {
                let digest = digest(pod);
                // Name as in projectcalico/calico v3.28.0,
                // `libcalico-go/lib/names/workloadendpoint.go`, and `VethNameForWorkload` of the CNI
                // plugin.
                let name = match &cluster.calico {
                    Some(_) => format!("cali{}", &digest[..11]),
                    None => format!("veth{}", &digest[..8]),
                };
                connect_by_route(topology, pod, &Port::new(&node.name, name));
            }
        } else if !node.pod_cidrs.is_empty() {
            let bridge = if cluster.flannel.is_some() {
                CNI_BRIDGE
            } else {
                KUBENET_BRIDGE
            };
            connect_to_bridge(topology, node, &pods, bridge);
        }
    }
}

fn connect_to_bridge(topology: &mut Topology, node: &Node, pods: &[&Pod], bridge: &str) {
    let routers: Vec<IpNetwork> = node
        .pod_cidrs
        .iter()
        .filter_map(|cidr| first_host(*cidr))
        .collect();
    let bridge = Port::new(&node.name, bridge);
    topology.link(&bridge, LinkKind::Bridge, routers.clone());
    let mut segment_ports = vec![bridge.clone()];
    for pod in pods {
        let inner = Port::new(pod.reference(), UPLINK);
        let outer = Port::new(&node.name, format!("veth{}", &digest(pod)[..8]));
        let addresses = pod
            .ips
            .iter()
            .filter_map(|ip| {
                let cidr = node.pod_cidrs.iter().find(|cidr| cidr.contains(*ip))?;
                IpNetwork::new(*ip, cidr.prefix()).ok()
            })
            .collect();
        topology.veth_pair(&inner, addresses, &outer, vec![]);
        if let Some(port) = topology.link_mut(&outer) {
            port.bridge = Some(bridge.dev.clone());
            // `hairpinMode` of the bridge plugin: set by flannel's manifest and by default in
            // kubenet.
            port.port.hairpin = true;
        }
        for router in routers
            .iter()
            .filter(|router| pod.ips.iter().any(|ip| router.contains(*ip)))
        {
            topology.route(
                &inner.namespace,
                default_destination(router.ip()),
                Some(router.ip()),
                UPLINK,
            );
        }
        segment_ports.push(inner);
    }
    topology.segment(segment_ports);
}

/// Connects a pod to its node by a veth pair and a route to each of its addresses. `outer` is the
/// node's end.
fn connect_by_route(topology: &mut Topology, pod: &Pod, outer: &Port) {
    let inner = Port::new(pod.reference(), UPLINK);
    let addresses: Vec<IpNetwork> = pod.ips.iter().map(|ip| IpNetwork::from(*ip)).collect();
    topology.veth_pair(&inner, addresses, outer, vec![]);
    if let Some(link) = topology.link_mut(outer) {
        link.mac = CALICO_MAC;
    }
    let mac = Mac::from_names(&inner.namespace, &inner.dev);
    for ip in &pod.ips {
        topology.route(&outer.namespace, IpNetwork::from(*ip), None, &outer.dev);
        topology.neighbour(outer, *ip, mac);
        let gateway = match ip {
            IpAddr::V4(_) => IpAddr::V4(CALICO_GATEWAY),
            IpAddr::V6(_) => IpAddr::V6(CALICO_LINK_LOCAL),
        };
        topology.neighbour(&inner, gateway, CALICO_MAC);
        if gateway.is_ipv4() {
            topology.route(&inner.namespace, IpNetwork::from(gateway), None, UPLINK);
        }
        topology.route(
            &inner.namespace,
            default_destination(gateway),
            Some(gateway),
            UPLINK,
        );
    }
}

fn digest(pod: &Pod) -> String {
    HEXLOWER.encode(&Sha1::digest(format!("{}.{}", pod.namespace, pod.name)))
}

/// Whether an interface name is that of the node's end of a calico veth pair.
#[must_use]
pub fn is_calico_interface(dev: &str) -> bool {
    dev.starts_with("cali")
}
