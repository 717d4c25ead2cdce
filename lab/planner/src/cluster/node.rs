//! Builds a node from a `Node` object, or reports the problems in the object.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1 as core;

use super::Node;
use super::problem::{DocumentPath, Problem, object_ref, place};
use super::subnets::{default_network, network_of, unusable_reason};
use svclab_scenario::lab::{FabricKind, LabSpec};
use svclab_scenario::reference::{DocumentRef, ObjectKind};

/// Builds a node with its addresses and the settings of the lab.
pub(super) fn build_node(
    spec: &LabSpec,
    object: &core::Node,
    problems: &mut Vec<Problem>,
) -> Option<Node> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let document = object_ref(ObjectKind::Node, &object.metadata);
    let node_spec = spec.nodes.get(&name);
    let status_addresses = object
        .status
        .as_ref()
        .and_then(|status| status.addresses.as_ref())
        .into_iter()
        .flatten();
    let mut addresses: Vec<IpNetwork> = Vec::new();
    for (index, address) in status_addresses
        .enumerate()
        .filter(|(_, address)| address.type_ == "InternalIP")
    {
        // Objects with other texts are refused when they are read.
        let Ok(ip) = address.address.parse::<IpAddr>() else {
            continue;
        };
        if addresses
            .iter()
            .any(|existing| existing.is_ipv4() == ip.is_ipv4())
        {
            // The first address of each family is the node's, as in kube-proxy.
            continue;
        }
        let subnet = node_spec
            .and_then(|node_spec| node_spec.subnet)
            .or(spec
                .fabric
                .subnet
                .filter(|_| spec.fabric.kind == FabricKind::Switched))
            .filter(|subnet| subnet.is_ipv4() == ip.is_ipv4())
            .unwrap_or_else(|| default_network(ip));
        if !subnet.contains(ip) {
            let problem = node_spec.and_then(|node_spec| node_spec.subnet).map_or_else(
                || Problem::in_lab(place!["spec", "fabric", "subnet"], format!("the address {ip} of node `{name}` is outside the fabric's subnet {subnet}")),
                |_| Problem::in_lab(place!["spec", "nodes", &name, "subnet"], format!("the node's address {ip} is outside its subnet {subnet}")),
            );
            problems.push(
                problem.with_help("use a subnet that contains the node's InternalIP".to_owned()),
            );
        }
        let address = IpNetwork::new(ip, subnet.prefix()).unwrap_or_else(|_| ip.into());
        if let Some(reason) = unusable_reason(address) {
            problems.push(Problem::new(
                document.clone(),
                place!["status", "addresses", index, "address"],
                format!("node `{name}` cannot have the address {ip}: {reason}"),
            ));
        }
        addresses.push(address);
    }
    if addresses.is_empty() {
        problems.push(
            Problem::new(
                document.clone(),
                place!["status", "addresses"],
                format!("node `{name}` has no InternalIP"),
            )
            .with_help(
                "add `status: {addresses: [{type: InternalIP, address: 10.0.0.1}]}`, \
                as printed by `kubectl get node -o yaml`"
                    .to_owned(),
            ),
        );
        return None;
    }
    let pod_cidrs = pod_cidrs(object, &document, problems);
    Some(Node {
        name,
        object: object.into(),
        addresses,
        pod_cidrs,
        sysctls: node_spec
            .map(|node_spec| {
                node_spec
                    .sysctls
                    .iter()
                    .map(|(key, value)| (key.clone(), value.0.clone()))
                    .collect()
            })
            .unwrap_or_default(),
        leftovers: node_spec
            .map(|node_spec| node_spec.leftovers.clone())
            .unwrap_or_default(),
        by_hand: node_spec
            .map(|node_spec| node_spec.by_hand.clone())
            .unwrap_or_default(),
        kube_proxy: node_spec
            .and_then(|node_spec| node_spec.kube_proxy.clone())
            .or_else(|| spec.kube_proxy.clone()),
    })
}

fn pod_cidrs(
    object: &core::Node,
    document: &DocumentRef,
    problems: &mut Vec<Problem>,
) -> Vec<IpNetwork> {
    let Some(spec) = &object.spec else {
        return Vec::new();
    };
    let plural_field = spec
        .pod_cidrs
        .iter()
        .flatten()
        .enumerate()
        .map(|(at, text)| (place!["spec", "podCIDRs", at].to_vec(), text));
    let singular_field = spec
        .pod_cidr
        .iter()
        .map(|text| (place!["spec", "podCIDR"].to_vec(), text));
    let mut networks: Vec<IpNetwork> = Vec::new();
    for (path, text) in singular_field.chain(plural_field) {
        match text.parse::<IpNetwork>() {
            Ok(network) if network == network_of(network) => {
                if !networks.contains(&network) {
                    networks.push(network);
                }
            }
            Ok(network) => problems.push(Problem {
                location: DocumentPath {
                    document: document.clone(),
                    path,
                },
                message: format!("`{text}` has host bits set"),
                help: Some(format!("write `{}`", network_of(network))),
                is_key: false,
                stage: 0,
            }),
            // Objects with other texts are refused when they are read.
            Err(_) => {}
        }
    }
    networks
}
