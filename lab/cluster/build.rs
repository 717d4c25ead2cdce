//! From what a user wrote to a [`Cluster`], or to everything that is wrong with it.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::balancer::{Ground, balancer};
use super::names::{cluster_ips, name_of, namespace_of};
use super::pod::pod;
use super::problem::{Problem, place};
use super::serving::{Machines, serving};
use super::subnets::{Member, Subnet, first_free, network_of, overlap, usual};
use super::{Cluster, FABRIC, Fabric, Host, INTERNET, Node, Pod};
use crate::scenario::lab::{FabricKind, LabSpec};
use crate::scenario::reference::{DocumentRef, ObjectKind};
use crate::scenario::suggest::did_you_mean;

/// One case as it was written.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The lab document.
    pub spec: &'a LabSpec,
    /// `Node` objects.
    pub nodes: &'a [core::Node],
    /// `Pod` objects.
    pub pods: &'a [core::Pod],
    /// `Service` objects.
    pub services: &'a [core::Service],
    /// `EndpointSlice` objects, those that were derived among them.
    pub slices: &'a [EndpointSlice],
}

/// Builds the cluster of one case.
///
/// # Errors
///
/// Everything that is wrong, each with its place.
pub fn build(inputs: &Inputs<'_>) -> Result<Cluster, Vec<Problem>> {
    let mut problems = Vec::new();
    let nodes: Vec<Node> = inputs
        .nodes
        .iter()
        .filter_map(|object| node(inputs.spec, object, &mut problems))
        .collect();
    for name in inputs.spec.nodes.keys().filter(|name| {
        !inputs
            .nodes
            .iter()
            .any(|node| node.metadata.name.as_ref() == Some(name))
    }) {
        let known = nodes.iter().map(|node| node.name.as_str());
        problems.push(
            Problem::in_lab(
                place!["spec", "nodes", name],
                format!("there is no node `{name}`"),
            )
            .of_key()
            .help(did_you_mean(name, known)),
        );
    }
    let hosts: Vec<Host> = inputs
        .spec
        .hosts
        .iter()
        .map(|(name, host)| Host {
            name: name.clone(),
            address: host.address,
        })
        .collect();
    for host in &hosts {
        if [FABRIC, INTERNET].contains(&host.name.as_str())
            || nodes.iter().any(|node| node.name == host.name)
        {
            problems.push(
                Problem::in_lab(
                    place!["spec", "hosts", &host.name],
                    format!("the name `{}` is taken", host.name),
                )
                .of_key()
                .help(
                    "nodes, hosts, `fabric` and `internet` share their names; choose another"
                        .to_owned(),
                ),
            );
        }
    }
    // An unknown node has been told of; what hangs on it would only repeat it.
    let pods: Vec<Pod> = inputs
        .pods
        .iter()
        .filter_map(|object| pod(object, &nodes, &mut problems))
        .collect();
    unique_addresses(&nodes, &pods, &hosts, inputs.services, &mut problems);
    let subnets = subnets(inputs.spec, &nodes, &hosts, &mut problems);
    disjoint(&nodes, &subnets, inputs, &mut problems);
    components(inputs.spec, &nodes, &pods, &mut problems);
    let routes = routes(inputs.spec, &nodes, &mut problems);
    let ground = Ground {
        nodes: &nodes,
        services: inputs.services,
        slices: inputs.slices,
    };
    let balancers = inputs
        .spec
        .load_balancers
        .iter()
        .filter_map(|(name, spec)| balancer(name, spec, &ground, &mut problems))
        .collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let host_ports = inputs
        .spec
        .hosts
        .iter()
        .flat_map(|(name, host)| host.ports.iter().map(|port| (name.clone(), *port)));
    let machines = Machines {
        nodes: &nodes,
        pods: &pods,
        hosts: &hosts,
    };
    let serving = serving(&machines, inputs.pods, inputs.slices, host_ports);
    Ok(Cluster {
        serving,
        balancers,
        nodes,
        pods,
        hosts,
        services: inputs.services.to_vec(),
        slices: inputs.slices.to_vec(),
        fabric: Fabric {
            kind: inputs.spec.fabric.kind,
            subnets,
            foreign_sources: inputs.spec.fabric.foreign_sources,
            routes,
        },
        backend: inputs.spec.iptables,
        flannel: inputs.spec.flannel.clone(),
        calico: inputs.spec.calico.clone(),
        ip_masq_agent: inputs.spec.ip_masq_agent.clone(),
        docker: inputs.spec.docker.clone(),
    })
}

pub(super) fn object_of(
    kind: ObjectKind,
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> DocumentRef {
    DocumentRef::object(
        kind,
        metadata.namespace.as_deref().unwrap_or("default"),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

fn node(spec: &LabSpec, object: &core::Node, problems: &mut Vec<Problem>) -> Option<Node> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let document = object_of(ObjectKind::Node, &object.metadata);
    let said = spec.nodes.get(&name);
    let written = object
        .status
        .as_ref()
        .and_then(|status| status.addresses.as_ref())
        .into_iter()
        .flatten();
    let mut addresses: Vec<IpNetwork> = Vec::new();
    for (at, address) in written
        .enumerate()
        .filter(|(_, address)| address.type_ == "InternalIP")
    {
        let Ok(ip) = address.address.parse::<IpAddr>() else {
            problems.push(Problem::new(
                document.clone(),
                place!["status", "addresses", at, "address"],
                format!("`{}` is not an IP address", address.address),
            ));
            continue;
        };
        if addresses
            .iter()
            .any(|other| other.is_ipv4() == ip.is_ipv4())
        {
            // As kube-proxy does, the first of each family is the node's.
            continue;
        }
        let subnet = said
            .and_then(|said| said.subnet)
            .or(spec
                .fabric
                .subnet
                .filter(|_| spec.fabric.kind == FabricKind::Switched))
            .filter(|subnet| subnet.is_ipv4() == ip.is_ipv4())
            .unwrap_or_else(|| usual(ip));
        if !subnet.contains(ip) {
            let at_lab = said.and_then(|said| said.subnet).map_or_else(
                || Problem::in_lab(place!["spec", "fabric", "subnet"], format!("the address {ip} of node `{name}` is outside the fabric's subnet {subnet}")),
                |_| Problem::in_lab(place!["spec", "nodes", &name, "subnet"], format!("the node's address {ip} is outside its subnet {subnet}")),
            );
            problems
                .push(at_lab.help("give the subnet that holds the node's InternalIP".to_owned()));
        }
        addresses.push(IpNetwork::new(ip, subnet.prefix()).unwrap_or_else(|_| ip.into()));
    }
    if addresses.is_empty() {
        problems.push(
            Problem::new(document.clone(), place!["status", "addresses"], format!("node `{name}` has no InternalIP"))
                .help("write `status: {addresses: [{type: InternalIP, address: 10.0.0.1}]}`, as `kubectl get node -o yaml` does".to_owned()),
        );
        return None;
    }
    let pod_cidrs = pod_cidrs(object, &document, problems);
    Some(Node {
        name,
        object: object.clone(),
        addresses,
        pod_cidrs,
        sysctls: said
            .map(|said| {
                said.sysctls
                    .iter()
                    .map(|(key, value)| (key.clone(), value.0.clone()))
                    .collect()
            })
            .unwrap_or_default(),
        leftovers: said.map(|said| said.leftovers.clone()).unwrap_or_default(),
        kube_proxy: said
            .and_then(|said| said.kube_proxy.clone())
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
    let many = spec
        .pod_cidrs
        .iter()
        .flatten()
        .enumerate()
        .map(|(at, text)| (place!["spec", "podCIDRs", at].to_vec(), text));
    let one = spec
        .pod_cidr
        .iter()
        .map(|text| (place!["spec", "podCIDR"].to_vec(), text));
    let mut networks: Vec<IpNetwork> = Vec::new();
    for (path, text) in one.chain(many) {
        match text.parse::<IpNetwork>() {
            Ok(network) if network == network_of(network) => {
                if !networks.contains(&network) {
                    networks.push(network);
                }
            }
            Ok(network) => problems.push(Problem {
                at: super::At {
                    document: document.clone(),
                    path,
                },
                message: format!("`{text}` has bits set beyond its prefix"),
                help: Some(format!("write `{}`", network_of(network))),
                key: false,
            }),
            Err(_) => problems.push(Problem {
                at: super::At {
                    document: document.clone(),
                    path,
                },
                message: format!("`{text}` is not a network such as 10.244.1.0/24"),
                help: None,
                key: false,
            }),
        }
    }
    networks
}

/// No two machines, pods or cluster IPs may have one address.
fn unique_addresses(
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

fn subnets(
    spec: &LabSpec,
    nodes: &[Node],
    hosts: &[Host],
    problems: &mut Vec<Problem>,
) -> Vec<Subnet> {
    let mut subnets: Vec<(IpNetwork, Vec<Member>)> = Vec::new();
    let mut join = |network: IpNetwork, member: Member| match subnets
        .iter_mut()
        .find(|(known, _)| *known == network)
    {
        Some((_, members)) => members.push(member),
        None => subnets.push((network, vec![member])),
    };
    for (at, node) in nodes.iter().enumerate() {
        for address in &node.addresses {
            join(network_of(*address), Member::Node(at));
        }
    }
    for (at, host) in hosts.iter().enumerate() {
        join(network_of(host.address), Member::Host(at));
    }
    let address_of = |member: &Member, family_v4: bool| match member {
        Member::Node(at) => nodes[*at]
            .addresses
            .iter()
            .find(|address| address.is_ipv4() == family_v4)
            .map(IpNetwork::ip),
        Member::Host(at) => Some(hosts[*at].address.ip()),
    };
    let shares = |members: &[Member]| -> Vec<usize> {
        members
            .iter()
            .filter_map(|member| {
                if let Member::Node(at) = member {
                    Some(*at)
                } else {
                    None
                }
            })
            .collect()
    };
    if spec.fabric.kind == FabricKind::Routed {
        for (network, members) in &subnets {
            if let [first, second, ..] = shares(members).as_slice() {
                problems.push(
                    Problem::new(
                        DocumentRef::object(ObjectKind::Node, "", &nodes[*second].name),
                        place!["status", "addresses"],
                        format!(
                            "nodes `{}` and `{}` share the subnet {network}, and a routed fabric has each node in its own",
                            nodes[*first].name, nodes[*second].name
                        ),
                    )
                    .help("write `fabric: {type: switched}`, or give the nodes narrower subnets under `nodes`".to_owned()),
                );
            }
        }
    } else {
        for v4 in [true, false] {
            let of_nodes: Vec<IpNetwork> = subnets
                .iter()
                .filter(|(network, members)| network.is_ipv4() == v4 && !shares(members).is_empty())
                .map(|(network, _)| *network)
                .collect();
            if let [first, second, ..] = of_nodes.as_slice() {
                problems.push(
                    Problem::in_lab(
                        place!["spec", "fabric"],
                        format!("the nodes of a switched fabric share one subnet, and these lie in {first} and {second}"),
                    )
                    .help("name the subnet that holds them all: `fabric: {type: switched, subnet: …}`".to_owned()),
                );
            }
        }
    }
    subnets
        .into_iter()
        .filter_map(|(network, members)| {
            let taken = |address| {
                members
                    .iter()
                    .any(|member| address_of(member, network.is_ipv4()) == Some(address))
            };
            let Some(gateway) = first_free(network, taken) else {
                problems.push(
                    Problem::in_lab(
                        place!["spec"],
                        format!("the subnet {network} has no address left for its router"),
                    )
                    .help("give it a shorter prefix".to_owned()),
                );
                return None;
            };
            Some(Subnet {
                network,
                gateway,
                members,
            })
        })
        .collect()
}

/// Where a subnet's first member says its address.
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

/// Subnets, pod networks and cluster IPs may not overlap.
fn disjoint(nodes: &[Node], subnets: &[Subnet], inputs: &Inputs<'_>, problems: &mut Vec<Problem>) {
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

/// What components need of the nodes.
fn components(spec: &LabSpec, nodes: &[Node], pods: &[Pod], problems: &mut Vec<Problem>) {
    for (at, node) in nodes.iter().enumerate() {
        let document = || DocumentRef::object(ObjectKind::Node, "", &node.name);
        let cidr = node.pod_cidrs.iter().find_map(|network| match network {
            IpNetwork::V4(network) => Some(*network),
            IpNetwork::V6(_) => None,
        });
        let has_pods = pods.iter().any(|pod| pod.node == at && !pod.host_network);
        if node.pod_cidrs.is_empty()
            && (has_pods && spec.calico.is_none() || spec.flannel.is_some())
        {
            problems.push(
                Problem::new(
                    document(),
                    place!["spec"],
                    format!("node `{}` has no podCIDR", node.name),
                )
                .help(
                    "write `spec: {podCIDR: 10.244.1.0/24}`; its pods' addresses come from there"
                        .to_owned(),
                ),
            );
        }
        if let (Some(flannel), Some(cidr)) = (&spec.flannel, cidr)
            && let Err(error) = flannel.check(cidr)
        {
            problems.push(Problem::in_lab(
                place!["spec", "flannel"],
                format!("on node `{}`: {error}", node.name),
            ));
        }
    }
}

fn routes(spec: &LabSpec, nodes: &[Node], problems: &mut Vec<Problem>) -> Vec<(IpNetwork, usize)> {
    let mut routes = Vec::new();
    for (at, route) in spec.fabric.routes.iter().enumerate() {
        match nodes.iter().position(|node| node.name == route.via) {
            Some(node) => routes.push((network_of(route.to), node)),
            None => problems.push(
                Problem::in_lab(
                    place!["spec", "fabric", "routes", at, "via"],
                    format!("there is no node `{}`", route.via),
                )
                .help(did_you_mean(
                    &route.via,
                    nodes.iter().map(|node| node.name.as_str()),
                )),
            ),
        }
    }
    routes
}
