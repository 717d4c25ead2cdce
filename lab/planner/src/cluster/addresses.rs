//! Checks that no two objects share an address and no two networks overlap.

use std::collections::HashMap;
use std::net::IpAddr;

use super::problem::{Problem, place};
use super::subnets::{Member, Subnet, has_overlap};
use super::{Host, Node, Pod};
use svclab_rules::objects::Service;
use svclab_scenario::lab::LabSpec;
use svclab_scenario::reference::{DocumentRef, ObjectKind};

/// Reports addresses that several nodes, hosts, pods or cluster IPs share.
pub(super) fn check_unique_addresses(
    nodes: &[Node],
    pods: &[Pod],
    hosts: &[Host],
    services: &[Service],
    problems: &mut Vec<Problem>,
) {
    let node_addresses = nodes.iter().flat_map(|node| {
        let document = DocumentRef::object(ObjectKind::Node, "", &node.name);
        node.addresses.iter().map(move |address| {
            (
                address.ip(),
                Some(ObjectKind::Node),
                format!("node `{}`", node.name),
                Problem::new(document.clone(), place!["status", "addresses"], ""),
            )
        })
    });
    let pod_addresses = pods.iter().filter(|pod| !pod.host_network).flat_map(|pod| {
        let document = DocumentRef::object(ObjectKind::Pod, &pod.namespace, &pod.name);
        pod.ips.iter().map(move |ip| {
            (
                *ip,
                Some(ObjectKind::Pod),
                format!("pod `{}/{}`", pod.namespace, pod.name),
                Problem::new(document.clone(), place!["status", "podIP"], ""),
            )
        })
    });
    let host_addresses = hosts.iter().map(|host| {
        (
            host.address.ip(),
            None,
            format!("host `{}`", host.name),
            Problem::in_lab(place!["spec", "hosts", &host.name, "address"], ""),
        )
    });
    let service_addresses = services.iter().flat_map(|service| {
        let document = DocumentRef::object(ObjectKind::Service, &service.namespace, &service.name);
        service.cluster_ips.iter().map(move |ip| {
            (
                *ip,
                Some(ObjectKind::Service),
                format!("the cluster IP of service `{}`", service.full_name()),
                Problem::new(document.clone(), place!["spec", "clusterIP"], ""),
            )
        })
    });
    let mut owners: HashMap<IpAddr, (Option<ObjectKind>, String)> = HashMap::new();
    for (address, kind, owner, mut problem) in node_addresses
        .chain(pod_addresses)
        .chain(host_addresses)
        .chain(service_addresses)
    {
        if let Some((existing_kind, existing_owner)) = owners.get(&address) {
            problem.message = format!("{address} is already the address of {existing_owner}");
            let host_network = match (existing_kind, kind) {
                (Some(ObjectKind::Node), Some(ObjectKind::Pod)) => {
                    ", or write `hostNetwork: true` if it uses the network of the node, as on EKS \
                     Fargate"
                }
                _ => "",
            };
            problem.help = Some(format!("give {owner} another address{host_network}"));
            problems.push(problem);
        } else {
            owners.insert(address, (kind, owner));
        }
    }
}

/// Returns a problem without a message at the address of a subnet's first member.
fn problem_at_subnet(subnet: &Subnet, nodes: &[Node], spec: &LabSpec) -> Problem {
    match subnet.members.first() {
        Some(Member::Host(index)) => {
            let name = spec.hosts.keys().nth(*index).map_or("", String::as_str);
            Problem::in_lab(place!["spec", "hosts", name, "address"], "")
        }
        Some(Member::Node(index)) => Problem::new(
            DocumentRef::object(ObjectKind::Node, "", &nodes[*index].name),
            place!["status", "addresses"],
            "",
        ),
        None => Problem::in_lab(place!["spec"], ""),
    }
}

/// Reports overlaps between subnets, pod networks and cluster IPs.
pub(super) fn check_disjoint_networks(
    nodes: &[Node],
    subnets: &[Subnet],
    spec: &LabSpec,
    services: &[Service],
    problems: &mut Vec<Problem>,
) {
    for (index, subnet) in subnets.iter().enumerate() {
        for earlier in &subnets[..index] {
            if has_overlap(subnet.network, earlier.network) {
                let mut problem = problem_at_subnet(subnet, nodes, spec);
                problem.message = format!(
                    "the subnets {} and {} overlap",
                    earlier.network, subnet.network
                );
                problems.push(problem.with_help("use subnets without common addresses".to_owned()));
            }
        }
    }
    for (index, node) in nodes.iter().enumerate() {
        for cidr in &node.pod_cidrs {
            let document = DocumentRef::object(ObjectKind::Node, "", &node.name);
            let mut add_overlap = |with: String| {
                problems.push(Problem::new(
                    document.clone(),
                    place!["spec", "podCIDR"],
                    format!("the podCIDR {cidr} of node `{}` overlaps {with}", node.name),
                ));
            };
            for earlier_node in &nodes[..index] {
                for earlier_cidr in earlier_node
                    .pod_cidrs
                    .iter()
                    .filter(|theirs| has_overlap(*cidr, **theirs))
                {
                    add_overlap(format!(
                        "{earlier_cidr}, the podCIDR of node `{}`",
                        earlier_node.name
                    ));
                }
            }
            for subnet in subnets
                .iter()
                .filter(|subnet| has_overlap(*cidr, subnet.network))
            {
                add_overlap(format!("the machines' subnet {}", subnet.network));
            }
        }
    }
    for service in services {
        for ip in service.cluster_ips.iter().copied() {
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
                        DocumentRef::object(ObjectKind::Service, &service.namespace, &service.name),
                        place!["spec", "clusterIP"],
                        format!("the cluster IP {ip} lies in {inside}"),
                    )
                    .with_help("use a separate network for cluster IPs".to_owned()),
                );
            }
        }
    }
}
