//! Checks that no two objects share an address and no two networks overlap.

use std::collections::HashMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;

use super::build::Inputs;
use super::problem::{Problem, object_of, place};
use super::subnets::{Member, Subnet, overlap};
use super::{Host, Node, Pod};
use svclab_rules::service::{cluster_ips, name_of, namespace_of};
use svclab_scenario::reference::{DocumentRef, ObjectKind};

/// Reports addresses that several nodes, hosts, pods or cluster IPs share.
pub(super) fn unique(
    nodes: &[Node],
    pods: &[Pod],
    hosts: &[Host],
    services: &[core::Service],
    problems: &mut Vec<Problem>,
) {
    let node_places = nodes.iter().flat_map(|node| {
        let document = DocumentRef::object(ObjectKind::Node, "", &node.name);
        node.addresses.iter().map(move |address| {
            (
                address.ip(),
                format!("node `{}`", node.name),
                Problem::new(document.clone(), place!["status", "addresses"], ""),
            )
        })
    });
    let pod_places = pods.iter().filter(|pod| !pod.host_network).flat_map(|pod| {
        let document = DocumentRef::object(ObjectKind::Pod, &pod.namespace, &pod.name);
        pod.ips.iter().map(move |ip| {
            (
                *ip,
                format!("pod `{}/{}`", pod.namespace, pod.name),
                Problem::new(document.clone(), place!["status", "podIP"], ""),
            )
        })
    });
    let host_places = hosts.iter().map(|host| {
        (
            host.address.ip(),
            format!("host `{}`", host.name),
            Problem::in_lab(place!["spec", "hosts", &host.name, "address"], ""),
        )
    });
    let service_places = services.iter().flat_map(|service| {
        let document = object_of(ObjectKind::Service, &service.metadata);
        cluster_ips(service).into_iter().map(move |ip| {
            (
                ip,
                format!(
                    "the cluster IP of service `{}/{}`",
                    namespace_of(service),
                    name_of(service)
                ),
                Problem::new(document.clone(), place!["spec", "clusterIP"], ""),
            )
        })
    });
    let mut owners: HashMap<IpAddr, String> = HashMap::new();
    for (address, who, mut problem) in node_places
        .chain(pod_places)
        .chain(host_places)
        .chain(service_places)
    {
        if let Some(other) = owners.get(&address) {
            problem.message = format!("{address} is already the address of {other}");
            problem.help = Some(format!("give {who} another address"));
            problems.push(problem);
        } else {
            owners.insert(address, who);
        }
    }
}

/// Returns a problem without a message at the address of a subnet's first member.
fn place_of(subnet: &Subnet, nodes: &[Node], inputs: &Inputs<'_>) -> Problem {
    match subnet.members.first() {
        Some(Member::Host(at)) => {
            let name = inputs.spec.hosts.keys().nth(*at).map_or("", String::as_str);
            Problem::in_lab(place!["spec", "hosts", name, "address"], "")
        }
        Some(Member::Node(at)) => Problem::new(
            DocumentRef::object(ObjectKind::Node, "", &nodes[*at].name),
            place!["status", "addresses"],
            "",
        ),
        None => Problem::in_lab(place!["spec"], ""),
    }
}

/// Reports overlaps between subnets, pod networks and cluster IPs.
pub(super) fn disjoint(
    nodes: &[Node],
    subnets: &[Subnet],
    inputs: &Inputs<'_>,
    problems: &mut Vec<Problem>,
) {
    for (at, subnet) in subnets.iter().enumerate() {
        for other in &subnets[..at] {
            if overlap(subnet.network, other.network) {
                let mut problem = place_of(subnet, nodes, inputs);
                problem.message = format!(
                    "the subnets {} and {} overlap",
                    other.network, subnet.network
                );
                problems.push(
                    problem.help(
                        "no machine could tell which of the two an address lies in".to_owned(),
                    ),
                );
            }
        }
    }
    for (at, node) in nodes.iter().enumerate() {
        for cidr in &node.pod_cidrs {
            let document = DocumentRef::object(ObjectKind::Node, "", &node.name);
            let mut clash = |with: String| {
                problems.push(Problem::new(
                    document.clone(),
                    place!["spec", "podCIDR"],
                    format!("the podCIDR {cidr} of node `{}` overlaps {with}", node.name),
                ));
            };
            for other in &nodes[..at] {
                for theirs in other
                    .pod_cidrs
                    .iter()
                    .filter(|theirs| overlap(*cidr, **theirs))
                {
                    clash(format!("{theirs}, that of node `{}`", other.name));
                }
            }
            for subnet in subnets
                .iter()
                .filter(|subnet| overlap(*cidr, subnet.network))
            {
                clash(format!("the machines' subnet {}", subnet.network));
            }
        }
    }
    for service in inputs.services {
        for ip in cluster_ips(service) {
            let subnet = subnets
                .iter()
                .find(|subnet| subnet.network.contains(ip))
                .map(|subnet| format!("the machines' subnet {}", subnet.network));
            let cidr = nodes
                .iter()
                .flat_map(|node| node.pod_cidrs.iter().map(move |cidr| (node, cidr)))
                .find(|(_, cidr)| cidr.contains(ip))
                .map(|(node, cidr)| format!("{cidr}, the podCIDR of node `{}`", node.name));
            if let Some(inside) = subnet.or(cidr) {
                problems.push(
                    Problem::new(
                        object_of(ObjectKind::Service, &service.metadata),
                        place!["spec", "clusterIP"],
                        format!("the cluster IP {ip} lies in {inside}"),
                    )
                    .help("cluster IPs have a network of their own".to_owned()),
                );
            }
        }
    }
}
