//! Generates random flags of a kube-proxy and random objects that an API server would accept.

use std::collections::BTreeSet;

use libtest_mimic::Failed;
use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::{Value, json};
use svclab_rules::kube_proxy::{KubeProxy, Mode};

use crate::VERSION;
use crate::bench::ADDRESS;
use crate::cluster::{Cluster, NODE};

/// Source ranges of a load balancer. One has host bits, as users write them.
const RANGES: [&str; 6] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "192.168.50.0/24",
    "192.168.50.10/32",
    "203.0.113.0/24",
    "10.244.1.7/16",
];

/// Values of `nodePortAddresses` that select at most one address of the node, or all.
const NODE_PORT_ADDRESSES: [&[&str]; 5] = [
    &[],
    &["0.0.0.0/0"],
    &["192.168.50.0/24"],
    &["127.0.0.0/8"],
    &["172.16.0.0/12"],
];

/// Schedulers that are loaded in a guest.
const SCHEDULERS: [&str; 6] = ["", "rr", "wrr", "lc", "sh", "dh"];

/// Default client affinity timeout of the API server in seconds.
const DEFAULT_AFFINITY: u32 = 10_800;

/// Flags of a kube-proxy, and successive sets of services.
#[derive(Debug, Clone)]
pub struct Case {
    flags: Flags,
    sets: Vec<ServiceSet>,
}

/// Services at one time.
#[derive(Debug, Clone)]
struct ServiceSet {
    /// Whether the kube-proxy is killed and restarted before.
    restart: bool,
    services: Vec<Service>,
}

#[derive(Debug, Clone)]
struct Flags {
    cluster_cidr: bool,
    masquerade_all: bool,
    masquerade_bit: u8,
    node_port_addresses: &'static [&'static str],
    scheduler: &'static str,
    strict_arp: bool,
}

#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the properties of a service vary independently"
)]
struct Service {
    kind: Kind,
    ports: Vec<Protocol>,
    /// Whether all ports have the same number, if their protocols differ.
    one_number: bool,
    /// Whether a single port has a name.
    named: bool,
    /// Timeout of client affinity in seconds; `None` without affinity.
    affinity: Option<u32>,
    local: bool,
    external: Vec<External>,
    ingress: usize,
    ranges: Vec<&'static str>,
    /// Whether a load balancer service has node ports.
    node_ports: bool,
    slices: Vec<Slice>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName,
    Headless,
    OtherProxy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum External {
    Routed,
    NodeAddress,
}

#[derive(Debug, Clone)]
struct Slice {
    endpoints: Vec<Endpoint>,
    /// Whether the endpoints serve a named port on another number than other slices.
    on_other_port: bool,
    /// Whether the slice lacks the service's first port.
    lacks_first: bool,
}

#[derive(Debug, Clone, Copy)]
struct Endpoint {
    location: EndpointLocation,
    number: u8,
    ready: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndpointLocation {
    NodeA,
    NodeB,
    HostA,
    HostB,
    Nowhere,
}

/// Generates any case of a mode.
pub fn cases(mode: Mode) -> impl Strategy<Value = Case> {
    // A change of services and endpoints takes two syncs, a start one. A sync takes seconds in a
    // guest without KVM.
    let restart = prop::bool::weighted(if mode == Mode::Ipvs { 0.7 } else { 0.0 });
    let services = prop::collection::vec(service(), 1..=8);
    let set = (restart, services).prop_map(|(restart, services)| ServiceSet { restart, services });
    (flags(mode), prop::collection::vec(set, 1..=4)).prop_map(|(flags, sets)| Case { flags, sets })
}

fn flags(mode: Mode) -> impl Strategy<Value = Flags> {
    let ipvs = mode == Mode::Ipvs;
    (
        any::<bool>(),
        prop::bool::weighted(0.3),
        prop_oneof![3 => Just(14_u8), 1 => 0_u8..32],
        prop_oneof![2 => Just(0), 1 => 0..NODE_PORT_ADDRESSES.len()],
        0..if ipvs { SCHEDULERS.len() } else { 1 },
        prop::bool::weighted(if ipvs { 0.3 } else { 0.0 }),
    )
        .prop_map(
            |(cluster_cidr, masquerade_all, masquerade_bit, addresses, scheduler, strict_arp)| {
                Flags {
                    cluster_cidr,
                    masquerade_all,
                    masquerade_bit,
                    node_port_addresses: NODE_PORT_ADDRESSES[addresses],
                    scheduler: SCHEDULERS[scheduler],
                    strict_arp,
                }
            },
        )
}

fn service() -> impl Strategy<Value = Service> {
    let kind = prop_oneof![
        6 => Just(Kind::ClusterIp),
        6 => Just(Kind::NodePort),
        8 => Just(Kind::LoadBalancer),
        1 => Just(Kind::ExternalName),
        1 => Just(Kind::Headless),
        1 => Just(Kind::OtherProxy),
    ];
    let protocol = prop_oneof![
        4 => Just(Protocol::Tcp),
        2 => Just(Protocol::Udp),
        1 => Just(Protocol::Sctp),
    ];
    let affinity = prop::option::weighted(0.3, prop_oneof![Just(DEFAULT_AFFINITY), 1_u32..=86_400]);
    let external = prop_oneof![3 => Just(External::Routed), 1 => Just(External::NodeAddress)];
    let ranges = prop_oneof![
        2 => Just(Vec::new()),
        1 => subsequence(RANGES.to_vec(), 1..=3),
    ];
    let first = (
        kind,
        prop::collection::vec(protocol, 1..=3),
        any::<bool>(),
        any::<bool>(),
        affinity,
        any::<bool>(),
    );
    let second = (
        prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(external, 1..=2)],
        0_usize..=2,
        ranges,
        prop::bool::weighted(0.8),
        prop::collection::vec(slice(), 0..=3),
    );
    (first, second).prop_map(
        |(
            (kind, ports, one_number, named, affinity, local),
            (external, ingress, ranges, node_ports, slices),
        )| Service {
            kind,
            ports,
            one_number,
            named,
            affinity,
            local,
            external,
            ingress,
            ranges,
            node_ports,
            slices,
        },
    )
}

fn slice() -> impl Strategy<Value = Slice> {
    let place = prop_oneof![
        4 => Just(EndpointLocation::NodeA),
        4 => Just(EndpointLocation::NodeB),
        1 => Just(EndpointLocation::HostA),
        1 => Just(EndpointLocation::HostB),
        1 => Just(EndpointLocation::Nowhere),
    ];
    let ready = prop_oneof![
        4 => Just(Some(true)),
        2 => Just(Some(false)),
        1 => Just(None),
    ];
    let endpoint = (place, 1_u8..=6, ready).prop_map(|(place, number, ready)| Endpoint {
        location: place,
        number,
        ready,
    });
    (
        prop::collection::vec(endpoint, 0..=4),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(endpoints, elsewhere, lacks_first)| Slice {
            endpoints,
            on_other_port: elsewhere,
            lacks_first,
        })
}

impl Case {
    /// Returns the kube-proxy with its flags.
    pub fn proxy(&self, mode: Mode) -> Result<KubeProxy, Failed> {
        let mut proxy = KubeProxy::new(VERSION.parse()?);
        proxy.mode = mode;
        if self.flags.cluster_cidr {
            proxy.cluster_cidr = Some("10.244.0.0/16".parse()?);
        }
        proxy.masquerade_all = self.flags.masquerade_all;
        proxy.masquerade_bit = self.flags.masquerade_bit;
        for network in self.flags.node_port_addresses {
            let network = (*network).to_owned().try_into()?;
            proxy.node_port_addresses.push(network);
        }
        self.flags.scheduler.clone_into(&mut proxy.ipvs_scheduler);
        proxy.strict_arp = self.flags.strict_arp;
        Ok(proxy)
    }

    /// Returns the clusters in order, and whether the kube-proxy is restarted before each.
    pub fn clusters(&self, mode: Mode) -> Result<Vec<(bool, Cluster)>, Failed> {
        let sets = self.sets.iter();
        sets.map(|set| Ok((set.restart, cluster(&set.services, mode)?)))
            .collect()
    }
}

fn cluster(services: &[Service], mode: Mode) -> Result<Cluster, Failed> {
    let node_ports = services.iter().any(Service::has_node_ports);
    // See the module documentation of this test.
    let allows_node_address = !(mode == Mode::Ipvs && node_ports);
    let mut cluster = Cluster::with_two_nodes()?;
    for (index, service) in services.iter().enumerate() {
        cluster.services.push(serde_json::from_value(
            service.to_object(index, allows_node_address),
        )?);
        for (number, slice) in service.slices.iter().enumerate() {
            let object = service.slice(index, number, slice);
            cluster.slices.push(serde_json::from_value(object)?);
        }
    }
    Ok(cluster)
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

impl Service {
    fn has_node_ports(&self) -> bool {
        self.kind == Kind::NodePort || (self.kind == Kind::LoadBalancer && self.node_ports)
    }

    fn is_external(&self) -> bool {
        matches!(self.kind, Kind::NodePort | Kind::LoadBalancer)
    }

    /// A port has a name if several ports must be distinguished.
    fn port_name(&self, port: usize) -> String {
        if self.ports.len() > 1 || self.named {
            format!("p{port}")
        } else {
            String::new()
        }
    }

    fn port_number(&self, index: usize, port: usize) -> usize {
        let protocols: BTreeSet<_> = self.ports.iter().map(|port| port.name()).collect();
        let has_one_number = self.one_number && protocols.len() == self.ports.len();
        1000 * (index + 1) + if has_one_number { 0 } else { port }
    }

    /// Renders the service at that index of its set.
    fn to_object(&self, index: usize, allows_node_address: bool) -> Value {
        let ports: Vec<Value> = self
            .ports
            .iter()
            .enumerate()
            .map(|(port, protocol)| {
                let mut object = json!({
                    "protocol": protocol.name(),
                    "port": self.port_number(index, port),
                    "targetPort": 8080 + port,
                });
                let name = self.port_name(port);
                if !name.is_empty() {
                    object["name"] = json!(name);
                }
                if self.has_node_ports() {
                    object["nodePort"] = json!(30_000 + 100 * index + port);
                }
                object
            })
            .collect();
        let mut spec = json!({"ports": ports, "sessionAffinity": "None"});
        let mut metadata = json!({"name": format!("svc-{index}"), "namespace": "default"});
        let mut status = json!({});
        let address = json!(format!("10.96.1.{}", index + 1));
        match self.kind {
            Kind::ExternalName => {
                spec["type"] = json!("ExternalName");
                spec["externalName"] = json!("example.org");
                return json!({"metadata": metadata, "spec": spec});
            }
            Kind::Headless => {
                spec["type"] = json!("ClusterIP");
                spec["clusterIP"] = json!("None");
                metadata["labels"] = json!({"service.kubernetes.io/headless": ""});
                return json!({"metadata": metadata, "spec": spec});
            }
            Kind::OtherProxy => {
                spec["type"] = json!("ClusterIP");
                spec["clusterIP"] = address;
                metadata["labels"] = json!({"service.kubernetes.io/service-proxy-name": "other"});
            }
            Kind::ClusterIp => {
                spec["type"] = json!("ClusterIP");
                spec["clusterIP"] = address;
            }
            Kind::NodePort => {
                spec["type"] = json!("NodePort");
                spec["clusterIP"] = address;
            }
            Kind::LoadBalancer => {
                spec["type"] = json!("LoadBalancer");
                spec["clusterIP"] = address;
                if !self.ranges.is_empty() {
                    spec["loadBalancerSourceRanges"] = json!(self.ranges);
                }
                let ingress = (0..self.ingress)
                    .map(|number| json!({"ip": format!("198.51.100.{}", 10 * index + number + 1)}));
                let ingress: Vec<Value> = ingress.collect();
                status = json!({"loadBalancer": {"ingress": ingress}});
            }
        }
        if self.is_external() {
            let policy = if self.local { "Local" } else { "Cluster" };
            spec["externalTrafficPolicy"] = json!(policy);
            if self.local && self.kind == Kind::LoadBalancer {
                spec["healthCheckNodePort"] = json!(32_000 + index);
            }
        }
        if let Some(seconds) = self.affinity {
            spec["sessionAffinity"] = json!("ClientIP");
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
        }
        let external: BTreeSet<String> = self
            .external
            .iter()
            .enumerate()
            .map(|(number, external)| match external {
                External::NodeAddress if allows_node_address => ADDRESS.to_owned(),
                _ => format!("203.0.113.{}", 10 * index + number + 1),
            })
            .collect();
        if !external.is_empty() {
            spec["externalIPs"] = json!(external);
        }
        json!({"metadata": metadata, "spec": spec, "status": status})
    }

    /// Renders one of the endpoint slices.
    fn slice(&self, index: usize, number: usize, slice: &Slice) -> Value {
        let base = if slice.on_other_port { 9080 } else { 8080 };
        let ports: Vec<Value> = self
            .ports
            .iter()
            .enumerate()
            .skip(usize::from(slice.lacks_first))
            .map(|(port, protocol)| {
                json!({
                    "name": self.port_name(port),
                    "protocol": protocol.name(),
                    "port": base + port,
                })
            })
            .collect();
        let mut seen = BTreeSet::new();
        let endpoints: Vec<Value> = slice
            .endpoints
            .iter()
            .filter(|endpoint| seen.insert(endpoint.address(slice.on_other_port)))
            .map(|endpoint| endpoint.object(slice.on_other_port))
            .collect();
        json!({
            "metadata": {
                "name": format!("svc-{index}-{number}"),
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": format!("svc-{index}")},
            },
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": endpoints,
        })
    }
}

impl Endpoint {
    /// Returns the address; endpoints that serve elsewhere are other pods.
    fn address(self, elsewhere: bool) -> String {
        let number = self.number + if elsewhere { 100 } else { 0 };
        match self.location {
            EndpointLocation::NodeA => format!("10.244.1.{number}"),
            EndpointLocation::NodeB => format!("10.244.2.{number}"),
            EndpointLocation::Nowhere => format!("172.31.0.{number}"),
            // Each node has one address, so another pod serves elsewhere.
            EndpointLocation::HostA if !elsewhere => ADDRESS.to_owned(),
            EndpointLocation::HostA => "10.244.1.200".to_owned(),
            EndpointLocation::HostB if !elsewhere => "192.168.50.11".to_owned(),
            EndpointLocation::HostB => "10.244.2.200".to_owned(),
        }
    }

    fn object(self, elsewhere: bool) -> Value {
        let mut object = json!({"addresses": [self.address(elsewhere)]});
        match self.location {
            EndpointLocation::NodeA | EndpointLocation::HostA => {
                object["nodeName"] = json!(NODE);
            }
            EndpointLocation::NodeB | EndpointLocation::HostB => {
                object["nodeName"] = json!("node-b");
            }
            EndpointLocation::Nowhere => {}
        }
        if let Some(ready) = self.ready {
            object["conditions"] = json!({"ready": ready});
        }
        object
    }
}
