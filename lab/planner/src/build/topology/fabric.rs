//! Builds the fabric: the router between machines, and a bridge for subnets with several members.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::build::topology::{Port, Topology, default_destination, interface_name};
use crate::cluster::{Cluster, FABRIC, Member, Subnet};
use svclab_model::plan::LinkKind;

/// Interface that connects a machine to the fabric.
pub const UPLINK: &str = "eth0";

/// Subnets on one bridge: those that share a member.
struct BridgedSubnets<'a> {
    subnets: Vec<&'a Subnet>,
    members: Vec<Member>,
}

/// Adds the fabric to the topology and connects every node and host to it.
pub fn add_to_topology(topology: &mut Topology, cluster: &Cluster) {
    topology.namespace(FABRIC);
    for (index, switch) in group_by_bridge(&cluster.fabric.subnets).iter().enumerate() {
        connect(topology, cluster, index, switch);
    }
    for (to, node) in &cluster.fabric.routes {
        if let Some((via, dev)) = find_port(topology, cluster, *node, to.is_ipv4()) {
            topology.route(FABRIC, *to, Some(via), &dev);
        }
    }
}

/// Returns a node's address and the interface of the fabric that has a network with this address.
/// `None` if the node has no address of the family, or is not in a subnet of the fabric.
pub fn find_port(
    topology: &mut Topology,
    cluster: &Cluster,
    node: usize,
    v4: bool,
) -> Option<(IpAddr, String)> {
    let address = cluster.nodes[node]
        .addresses
        .iter()
        .find(|address| address.is_ipv4() == v4)?
        .ip();
    let fabric = topology.namespace(FABRIC);
    let link = fabric
        .links
        .iter()
        .find(|link| link.addresses.iter().any(|own| own.contains(address)))?;
    Some((address, link.name.clone()))
}

fn group_by_bridge(subnets: &[Subnet]) -> Vec<BridgedSubnets<'_>> {
    let mut switches: Vec<BridgedSubnets<'_>> = Vec::new();
    for subnet in subnets {
        let (connected, separate): (Vec<_>, Vec<_>) = switches.into_iter().partition(|switch| {
            switch
                .members
                .iter()
                .any(|member| subnet.members.contains(member))
        });
        let mut joined = BridgedSubnets {
            subnets: vec![],
            members: vec![],
        };
        for switch in connected {
            joined.subnets.extend(switch.subnets);
            joined.members.extend(switch.members);
        }
        joined.subnets.push(subnet);
        for member in &subnet.members {
            if !joined.members.contains(member) {
                joined.members.push(*member);
            }
        }
        switches = separate;
        switches.push(joined);
    }
    switches
}

fn connect(topology: &mut Topology, cluster: &Cluster, index: usize, switch: &BridgedSubnets<'_>) {
    let router: Vec<IpNetwork> = switch
        .subnets
        .iter()
        .filter_map(|subnet| IpNetwork::new(subnet.gateway, subnet.network.prefix()).ok())
        .collect();
    let bridge = (switch.members.len() > 1).then(|| Port::new(FABRIC, format!("br{index}")));
    let mut segment_ports = Vec::new();
    if let Some(bridge) = &bridge {
        topology.link(bridge, LinkKind::Bridge, router.clone());
        segment_ports.push(bridge.clone());
    }
    for member in &switch.members {
        let (name, addresses) = match member {
            Member::Node(node) => (
                cluster.nodes[*node].name.as_str(),
                cluster.nodes[*node].addresses.clone(),
            ),
            Member::Host(host) => (
                cluster.hosts[*host].name.as_str(),
                vec![cluster.hosts[*host].address],
            ),
        };
        let (outer, inner) = (
            Port::new(FABRIC, interface_name(name)),
            Port::new(name, UPLINK),
        );
        let on_port = if bridge.is_some() {
            vec![]
        } else {
            router.clone()
        };
        topology.veth_pair(&inner, addresses.clone(), &outer, on_port);
        if let Some(bridge) = &bridge {
            if let Some(port) = topology.link_mut(&outer) {
                port.bridge = Some(bridge.dev.clone());
            }
        } else {
            segment_ports.push(outer);
        }
        segment_ports.push(inner);
        for subnet in switch
            .subnets
            .iter()
            .filter(|subnet| subnet.members.contains(member))
        {
            topology.route(
                name,
                default_destination(subnet.gateway),
                Some(subnet.gateway),
                UPLINK,
            );
        }
    }
    topology.segment(segment_ports);
}
