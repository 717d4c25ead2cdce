//! Derives the topology of a plan: outside hosts, routers with load balancers, nodes with their
//! pods, and the interfaces of all of them.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_model::plan::{Link, LinkKind, Namespace, Plan};
use svclab_planner::cluster::{Cluster, FABRIC, INTERNET, Pod};

/// Places of a lab by layer. Every namespace of the plan is one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Hosts outside of the cluster.
    pub hosts: Vec<Place>,
    /// Routers between hosts and nodes: the internet, if the lab has one, and the fabric.
    pub routers: Vec<Router>,
    /// Nodes in document order.
    pub nodes: Vec<Node>,
}

/// Namespace of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// Name of the namespace.
    pub namespace: String,
    /// Name for people: that of the pod without `pod/`.
    pub title: String,
    /// Interfaces in order of creation, without `lo`.
    pub interfaces: Vec<Interface>,
}

/// Router between machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Router {
    /// Namespace of the router.
    pub place: Place,
    /// Load balancers in the router.
    pub balancers: Vec<LoadBalancer>,
}

/// Load balancer of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancer {
    /// Name in the lab.
    pub name: String,
    /// Addresses of the service.
    pub addresses: Vec<IpAddr>,
}

/// Node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Namespace of the node.
    pub place: Place,
    /// Pods with a namespace of their own, and namespaces behind interfaces with an unknown peer.
    pub pods: Vec<Place>,
    /// Names of the pods on the node's network.
    pub host_pods: Vec<String>,
}

/// Interface of a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Interface name.
    pub name: String,
    /// Type of the interface.
    pub kind: InterfaceKind,
    /// Addresses, without prefix lengths.
    pub addresses: Vec<IpAddr>,
    /// Bridge that the interface is a port of.
    pub bridge: Option<String>,
    /// Whether the interface is down.
    pub is_down: bool,
}

/// Type of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum InterfaceKind {
    /// End of a veth pair, with the namespace and interface of the other end.
    Veth {
        /// Namespace of the other end.
        namespace: String,
        /// Interface of the other end.
        interface: String,
    },
    /// Bridge.
    Bridge,
    /// Dummy interface.
    Dummy,
    /// VXLAN device.
    Tunnel,
}

impl Topology {
    /// Derives the topology of the plan of a cluster.
    #[must_use]
    pub fn new(plan: &Plan, cluster: &Cluster) -> Self {
        let nodes: Vec<Node> = cluster
            .nodes
            .iter()
            .enumerate()
            .filter_map(|(index, node)| {
                let place = Place::new(plan.namespace(&node.name)?);
                let is_on_network = |pod: &&Pod| pod.node == index && pod.host_network;
                let host_pods = cluster.pods.iter().filter(is_on_network);
                Some(Node {
                    pods: pods_of(plan, cluster, &node.name),
                    place,
                    host_pods: host_pods.map(title_of_pod).collect(),
                })
            })
            .collect();
        let routers = [INTERNET, FABRIC].into_iter().filter_map(|name| {
            let balancers = cluster.balancers.iter();
            let own = balancers.filter(|own| own.spec.public.is_some() == (name == INTERNET));
            let balancers = own.map(|balancer| LoadBalancer {
                name: balancer.name.clone(),
                addresses: balancer.addresses.clone(),
            });
            Some(Router {
                place: Place::new(plan.namespace(name)?),
                balancers: balancers.collect(),
            })
        });
        let hosts = cluster.hosts.iter();
        Self {
            hosts: hosts
                .filter_map(|host| plan.namespace(&host.name).map(Place::new))
                .collect(),
            routers: routers.collect(),
            nodes,
        }
    }

    /// Returns all places.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        let routers = self.routers.iter().map(|router| &router.place);
        let nodes = self.nodes.iter();
        let nodes = nodes.flat_map(|node| std::iter::once(&node.place).chain(&node.pods));
        self.hosts.iter().chain(routers).chain(nodes)
    }

    /// Whether packets can pass through a place: routers and nodes.
    #[must_use]
    pub fn forwards(&self, namespace: &str) -> bool {
        let routers = self.routers.iter().map(|router| &router.place);
        let mut places = routers.chain(self.nodes.iter().map(|node| &node.place));
        places.any(|place| place.namespace == namespace)
    }

    /// Returns the place of a namespace.
    #[must_use]
    pub fn place(&self, namespace: &str) -> Option<&Place> {
        self.places().find(|place| place.namespace == namespace)
    }
}

/// Returns the places behind the veth pairs of a node that are neither routers, hosts nor nodes.
fn pods_of(plan: &Plan, cluster: &Cluster, node: &str) -> Vec<Place> {
    let is_machine = |name: &str| {
        [FABRIC, INTERNET].contains(&name)
            || cluster.nodes.iter().any(|node| node.name == name)
            || cluster.hosts.iter().any(|host| host.name == name)
    };
    let behind = plan.namespaces.iter().filter(|namespace| {
        !is_machine(&namespace.name) && namespace.links.iter().any(|link| link.is_veth_to(node))
    });
    behind.map(Place::new).collect()
}

fn title_of_pod(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}

impl Place {
    fn new(namespace: &Namespace) -> Self {
        let name = &namespace.name;
        Self {
            namespace: name.clone(),
            title: name.strip_prefix("pod/").unwrap_or(name).to_owned(),
            interfaces: namespace.links.iter().map(Interface::new).collect(),
        }
    }

    /// Returns the interface with this name.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|own| own.name == name)
    }

    /// Returns the first address of an interface that is no dummy.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        let interfaces = self.interfaces.iter();
        let mut real = interfaces.filter(|own| own.kind != InterfaceKind::Dummy);
        real.find_map(|own| own.addresses.first().copied())
    }

    /// Returns the interface with a veth pair to the namespace.
    #[must_use]
    pub fn interface_to(&self, other: &str) -> Option<&Interface> {
        let leads = |own: &&Interface| matches!(&own.kind, InterfaceKind::Veth { namespace, .. } if namespace == other);
        self.interfaces.iter().find(leads)
    }
}

impl Interface {
    fn new(link: &Link) -> Self {
        Self {
            name: link.name.clone(),
            kind: match &link.kind {
                LinkKind::Veth { namespace, peer } => InterfaceKind::Veth {
                    namespace: namespace.clone(),
                    interface: peer.clone(),
                },
                LinkKind::Bridge => InterfaceKind::Bridge,
                LinkKind::Dummy => InterfaceKind::Dummy,
                LinkKind::Vxlan { .. } => InterfaceKind::Tunnel,
            },
            addresses: link.addresses.iter().map(IpNetwork::ip).collect(),
            bridge: link.bridge.clone(),
            is_down: link.down,
        }
    }
}
