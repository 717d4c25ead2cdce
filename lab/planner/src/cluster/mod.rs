//! Describes the objects of one case: nodes, pods, services, external hosts and the fabric between
//! them. Input: the documents of the case. Output: a validated [`Cluster`], in which no addresses
//! overlap and every pod has a node.

mod addresses;
mod balancer;
mod bridge_ports;
mod build;
mod kube_proxy;
mod names;
mod node;
mod pod;
mod problem;
mod serving;
mod subnets;

use std::net::IpAddr;

use indexmap::IndexMap;
use ipnetwork::{IpNetwork, Ipv4Network};
use serde_json::Value;

use svclab_model::plan::Backend;
use svclab_rules::calico::Calico;
use svclab_rules::docker::Docker;
use svclab_rules::flannel::Flannel;
use svclab_rules::ip_masq_agent::IpMasqAgent;
use svclab_rules::kube_proxy::KubeProxy;
use svclab_rules::objects::{self, EndpointSlice, Service, ServiceCidr};
use svclab_scenario::lab::{ByHand, FabricKind, ForeignSources, Leftovers};

pub use balancer::{Backend as BalancerBackend, Balancer, BalancerPort};
pub use build::{ClusterInputs, build};
pub use names::{NameError, ObjectName, Reference};
pub use problem::place;
pub use problem::{DocumentPath, Problem};
pub use serving::ServedPort;
pub(crate) use subnets::first_host;
pub use subnets::{Member, Subnet};

/// Namespace of the fabric, in plans and in output for users.
pub const FABRIC: &str = "fabric";

/// Namespace of public load balancers, beyond source NAT.
pub const INTERNET: &str = "internet";

/// A cluster and its environment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cluster {
    /// Nodes, in document order.
    pub nodes: Vec<Node>,
    /// Running pods, in document order.
    pub pods: Vec<Pod>,
    /// External hosts.
    pub hosts: Vec<Host>,
    /// Objects of kind `Service`.
    pub services: Vec<Service>,
    /// Objects of kind `EndpointSlice`.
    pub slices: Vec<EndpointSlice>,
    /// Objects of kind `ServiceCIDR`: the networks of cluster IPs.
    pub service_cidrs: Vec<ServiceCidr>,
    /// Objects of the API server, as JSON. Empty if no node runs a real kube-proxy.
    pub api_objects: Vec<Value>,
    /// Served ports of pods, nodes and hosts.
    pub serving: Vec<ServedPort>,
    /// Load balancers of the lab.
    pub balancers: Vec<Balancer>,
    /// Whether nodes have a route for each pod, instead of a bridge with the podCIDR.
    pub routes_pods: bool,
    /// Whether dumps replace nodes, whose rules are then not those of the objects.
    pub has_dumps: bool,
    /// Network between nodes and hosts.
    pub fabric: Fabric,
    /// Iptables backend of the nodes.
    pub backend: Backend,
    /// Configuration of flannel, which runs on every node; `None` without flannel.
    pub flannel: Option<Flannel>,
    /// Configuration of calico, which runs on every node; `None` without calico.
    pub calico: Option<Calico>,
    /// Configuration of ip-masq-agent, which runs on every node; `None` without ip-masq-agent.
    pub ip_masq_agent: Option<IpMasqAgent>,
    /// Configuration of Docker, which runs on every node; `None` without Docker.
    pub docker: Option<Docker>,
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Name of the `Node` object.
    pub name: String,
    /// `Node` object.
    pub object: objects::Node,
    /// Internal addresses with the prefix length of their subnets: at least one, at most one for
    /// each family.
    pub addresses: Vec<IpNetwork>,
    /// Networks of the node's pods, at most one for each family.
    pub pod_cidrs: Vec<IpNetwork>,
    /// Additional sysctls of the lab, by dotted name.
    pub sysctls: IndexMap<String, String>,
    /// State that earlier components left on the machine.
    pub leftovers: Leftovers,
    /// Manual changes on the node.
    pub by_hand: ByHand,
    /// The node's kube-proxy; `None` if the node runs none.
    pub kube_proxy: Option<KubeProxy>,
}

impl Node {
    /// Whether a real kube-proxy writes rules on the node that svclab does not generate.
    #[must_use]
    pub fn has_real_kube_proxy(&self) -> bool {
        self.kube_proxy.is_some() && self.generated_proxy().is_none()
    }

    /// Returns the IPv4 pod network of the node, which is its lease of flannel.
    #[must_use]
    pub fn ipv4_pod_cidr(&self) -> Option<Ipv4Network> {
        self.pod_cidrs.iter().find_map(|cidr| match cidr {
            IpNetwork::V4(cidr) => Some(*cidr),
            IpNetwork::V6(_) => None,
        })
    }

    /// Returns the kube-proxy whose rules svclab generates. `None` if the node runs a real
    /// kube-proxy or none.
    #[must_use]
    pub fn generated_proxy(&self) -> Option<&KubeProxy> {
        self.kube_proxy
            .as_ref()
            .filter(|proxy| proxy.binary.is_none())
    }
}

/// A running pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    /// Kubernetes namespace of the pod.
    pub namespace: String,
    /// Name of the `Pod` object.
    pub name: String,
    /// Index of the pod's node.
    pub node: usize,
    /// Addresses of the pod, at most one for each family. A pod on the host network has its node's
    /// addresses.
    pub ips: Vec<IpAddr>,
    /// Whether the pod shares its node's network.
    pub host_network: bool,
    /// Whether the containers declare ports. A pod without declared ports serves every port to
    /// which a service sends traffic.
    pub declares_ports: bool,
}

/// An external host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name of the host in the lab.
    pub name: String,
    /// Address with the prefix length of the subnet.
    pub address: IpNetwork,
}

/// Network between nodes and hosts: one router, with a bridge for each subnet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fabric {
    /// Whether nodes share a subnet.
    pub kind: FabricKind,
    /// Subnets with their members.
    pub subnets: Vec<Subnet>,
    /// Treatment of packets whose source address does not belong to the sender.
    pub foreign_sources: ForeignSources,
    /// Routes to networks outside of all subnets, such as an address that a node announces. Each
    /// has the network and the index of the node.
    pub routes: Vec<(IpNetwork, usize)>,
}

impl Pod {
    /// Returns the name of the pod in the notation of users, `pod/NAMESPACE/NAME`.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("pod/{}/{}", self.namespace, self.name)
    }
}

impl Cluster {
    /// Returns the network namespace of a pod: its own, or its node's.
    #[must_use]
    pub fn netns(&self, pod: &Pod) -> String {
        if pod.host_network {
            self.nodes[pod.node].name.clone()
        } else {
            pod.reference()
        }
    }

    /// Returns the addresses of a node's pods outside the node's podCIDRs. The other machines have
    /// a route for each.
    pub fn pod_addresses_outside(&self, node: usize) -> impl Iterator<Item = IpAddr> + '_ {
        let cidrs = &self.nodes[node].pod_cidrs;
        let pods = self.pods.iter();
        let own = pods.filter(move |pod| pod.node == node && !pod.host_network);
        let addresses = own.flat_map(|pod| pod.ips.iter().copied());
        addresses.filter(|ip| !cidrs.iter().any(|cidr| cidr.contains(*ip)))
    }

    /// Whether any node, host or pod has an IPv6 address.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.nodes
            .iter()
            .flat_map(|node| &node.addresses)
            .any(IpNetwork::is_ipv6)
            || self.hosts.iter().any(|host| host.address.is_ipv6())
            || self
                .pods
                .iter()
                .flat_map(|pod| &pod.ips)
                .any(IpAddr::is_ipv6)
    }
}
