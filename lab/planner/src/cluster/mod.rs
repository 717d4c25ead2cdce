//! What exists in one case: nodes, pods, services, outside hosts, and what lies
//! between them. Checked: whoever holds a [`Cluster`] need not ask again whether
//! an address overlaps another or a pod's node is there.

mod addresses;
mod balancer;
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
use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;

use svclab_model::plan::Backend;
use svclab_rules::calico::Calico;
use svclab_rules::docker::Docker;
use svclab_rules::flannel::Flannel;
use svclab_rules::ip_masq_agent::IpMasqAgent;
use svclab_rules::kube_proxy::KubeProxy;
use svclab_scenario::lab::{ByHand, FabricKind, ForeignSources, Leftovers};

pub use balancer::{Backend as BalancerBackend, Balancer, BalancerPort};
pub use build::{Inputs, build};
pub use names::{Name, NameError, Reference};
pub use problem::place;
pub use problem::{At, Problem};
pub use serving::Serving;
pub use subnets::{Member, Subnet};

/// The namespace of the fabric, in plans and in what users read.
pub const FABRIC: &str = "fabric";

/// The namespace of what is public: the balancers beyond address translation.
pub const INTERNET: &str = "internet";

/// A cluster and what is around it.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// The nodes, in the order they were written.
    pub nodes: Vec<Node>,
    /// The pods that run, in the order they were written.
    pub pods: Vec<Pod>,
    /// Machines outside.
    pub hosts: Vec<Host>,
    /// The services.
    pub services: Vec<core::Service>,
    /// Their endpoints.
    pub slices: Vec<EndpointSlice>,
    /// The networks that cluster IPs are taken from.
    pub service_cidrs: Vec<ServiceCIDR>,
    /// Who serves which port, pods and hosts alike.
    pub serving: Vec<Serving>,
    /// Load balancers.
    pub balancers: Vec<Balancer>,
    /// What lies between.
    pub fabric: Fabric,
    /// Which iptables the nodes have.
    pub backend: Backend,
    /// flannel, on every node.
    pub flannel: Option<Flannel>,
    /// calico, on every node.
    pub calico: Option<Calico>,
    /// ip-masq-agent, on every node.
    pub ip_masq_agent: Option<IpMasqAgent>,
    /// Docker, on every node.
    pub docker: Option<Docker>,
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The object as it was written.
    pub object: core::Node,
    /// Its internal addresses with their subnets' lengths; at least one, at most
    /// one a family.
    pub addresses: Vec<IpNetwork>,
    /// The addresses its pods have, at most one network a family.
    pub pod_cidrs: Vec<IpNetwork>,
    /// Kernel settings on top of a node's own, by dotted name.
    pub sysctls: IndexMap<String, String>,
    /// What an earlier life of the machine left on it.
    pub leftovers: Leftovers,
    /// What somebody did on it by hand.
    pub by_hand: ByHand,
    /// Its kube-proxy, if it runs one.
    pub kube_proxy: Option<KubeProxy>,
}

impl Node {
    /// Whether a program writes rules on it that svclab does not know.
    #[must_use]
    pub fn writes_itself(&self) -> bool {
        self.kube_proxy.is_some() && self.generated_proxy().is_none()
    }

    /// Its kube-proxy, if its rules are generated.
    #[must_use]
    pub fn generated_proxy(&self) -> Option<&KubeProxy> {
        self.kube_proxy
            .as_ref()
            .filter(|proxy| proxy.binary.is_none())
    }
}

/// A pod that runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    /// Its Kubernetes namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its node, by index.
    pub node: usize,
    /// Its addresses, at most one a family; its node's on the host's network.
    pub ips: Vec<IpAddr>,
    /// Whether it shares its node's network.
    pub host_network: bool,
    /// Whether its containers declare ports. A pod that declares none serves every port that
    /// it is sent traffic to.
    pub declares_ports: bool,
}

/// A machine outside the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its address with its subnet's length.
    pub address: IpNetwork,
}

/// What lies between nodes and hosts: one router, with a switch for each subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fabric {
    /// Whether nodes share a subnet.
    pub kind: FabricKind,
    /// The subnets, each with its members.
    pub subnets: Vec<Subnet>,
    /// What becomes of a packet whose source is not its sender's.
    pub foreign_sources: ForeignSources,
    /// Routes to what nobody's subnet holds, such as an address that a node
    /// announces: the network, and the node by index.
    pub routes: Vec<(IpNetwork, usize)>,
}

impl Pod {
    /// `pod/NAMESPACE/NAME`, as users write it.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("pod/{}/{}", self.namespace, self.name)
    }
}

impl Cluster {
    /// The namespace a pod's packets start in: its own, or its node's.
    #[must_use]
    pub fn netns(&self, pod: &Pod) -> String {
        if pod.host_network {
            self.nodes[pod.node].name.clone()
        } else {
            pod.reference()
        }
    }

    /// Whether anything here has an IPv6 address.
    #[must_use]
    pub fn speaks_v6(&self) -> bool {
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
