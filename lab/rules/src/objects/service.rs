//! Converts services.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;

use super::{FieldReader, InvalidField, ProxyLabels, deduplicate, name_of, namespace_of};
use svclab_ruleset::Protocol;

/// Default timeout of client affinity in the API server, in seconds
/// (`DefaultClientIPServiceAffinitySeconds`).
const DEFAULT_AFFINITY_SECONDS: i32 = 10_800;

/// Longest timeout of client affinity that the API server accepts, in seconds.
/// (`validateAffinityTimeout` of kubernetes/kubernetes `pkg/apis/core/validation/validation.go`)
const MAX_AFFINITY_SECONDS: u32 = 86_400;

/// Name of the field with the cluster IPs in [`InvalidField`].
pub(crate) const CLUSTER_IP: &str = "clusterIP";

/// Service.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "core::Service")]
pub struct Service {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Field `type`.
    pub kind: ServiceType,
    /// Labels of services that some versions of kube-proxy do not watch.
    pub labels: ProxyLabels,
    /// Whether the cluster IP is `None`.
    pub is_headless: bool,
    /// Cluster IPs, each once.
    pub cluster_ips: Vec<IpAddr>,
    /// External IPs, which other systems route to the nodes.
    pub external_ips: Vec<IpAddr>,
    /// Load balancer addresses of the status.
    pub ingress: Vec<IngressIp>,
    /// Source networks that may use the load balancer addresses; empty means any source.
    pub source_ranges: Vec<IpNetwork>,
    /// Ports of the service.
    pub ports: Vec<PortSpec>,
    /// Labels of the pods that the service selects.
    pub selector: BTreeMap<String, String>,
    /// Whether `externalTrafficPolicy` is `Local`.
    pub external_local: bool,
    /// Whether `internalTrafficPolicy` is `Local`.
    pub internal_local: bool,
    /// Timeout of client affinity in seconds; `None` without affinity.
    pub affinity_seconds: Option<u32>,
    /// Port at which a load balancer checks whether a node has local endpoints.
    pub health_check_node_port: Option<u16>,
    /// Annotation `service.kubernetes.io/topology-aware-hints`.
    pub topology_hints: Option<String>,
    /// Annotation `service.kubernetes.io/topology-mode`.
    pub topology_mode: Option<String>,
    /// First invalid field; `None` if all are valid.
    pub invalid: Option<InvalidField>,
}

/// Type of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceType {
    /// Cluster IP only, the default.
    ClusterIp,
    /// Also a port on each node.
    NodePort,
    /// Also an external load balancer.
    LoadBalancer,
    /// Alias of a DNS name.
    ExternalName,
}

/// Load balancer address of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngressIp {
    /// Address.
    pub ip: IpAddr,
    /// Whether `ipMode` is `Proxy`: packets arrive at the node with another destination.
    pub is_proxied: bool,
}

/// Port of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSpec {
    /// Name; empty if the port has none.
    pub name: String,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port on cluster IP, external IPs and load balancer addresses.
    pub port: u16,
    /// Port on the node's addresses; `None` without a node port.
    pub node_port: Option<u16>,
}

/// Range of node ports without the flag `--service-node-port-range` of the API server (kubernetes
/// v1.30, `pkg/kubeapiserver/options/options.go`, `DefaultServiceNodePortRange`).
pub const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

impl Service {
    /// Returns the load balancer addresses, each once.
    #[must_use]
    pub fn ingress_ips(&self) -> Vec<IpAddr> {
        deduplicate(self.ingress.iter().map(|ingress| ingress.ip))
    }

    /// Whether an address is a cluster IP, an external IP or a load balancer address of the
    /// service.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.cluster_ips.contains(&address)
            || self.external_ips.contains(&address)
            || self.ingress.iter().any(|ingress| ingress.ip == address)
    }

    /// Returns `NAMESPACE/NAME`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl From<core::Service> for Service {
    fn from(object: core::Service) -> Self {
        Self::from(&object)
    }
}

impl From<&core::Service> for Service {
    fn from(object: &core::Service) -> Self {
        let default_spec = core::ServiceSpec::default();
        let spec = object.spec.as_ref().unwrap_or(&default_spec);
        let mut reader = FieldReader::default();
        let cluster_ip_texts = || {
            let listed = spec.cluster_ips.iter().flatten();
            spec.cluster_ip.iter().chain(listed)
        };
        let is_address = |text: &&String| !matches!(text.as_str(), "" | "None");
        let cluster_ips =
            deduplicate(reader.ips(CLUSTER_IP, cluster_ip_texts().filter(is_address)));
        let mut ports = Vec::new();
        for port in spec.ports.iter().flatten() {
            ports.extend(read_port(port, &mut reader));
        }
        let annotation = |name: &str| object.metadata.annotations.as_ref()?.get(name).cloned();
        let is_local = |policy: &Option<String>| policy.as_deref() == Some("Local");
        Self {
            namespace: namespace_of(&object.metadata),
            name: name_of(&object.metadata),
            kind: match spec.type_.as_deref() {
                Some("NodePort") => ServiceType::NodePort,
                Some("LoadBalancer") => ServiceType::LoadBalancer,
                Some("ExternalName") => ServiceType::ExternalName,
                _ => ServiceType::ClusterIp,
            },
            labels: ProxyLabels::new(&object.metadata),
            is_headless: cluster_ip_texts().any(|text| text == "None"),
            cluster_ips,
            ports,
            external_ips: reader.ips("externalIPs", spec.external_ips.iter().flatten()),
            ingress: read_ingress(object.status.as_ref(), &mut reader),
            source_ranges: read_source_ranges(spec, &mut reader),
            selector: spec.selector.clone().unwrap_or_default(),
            external_local: is_local(&spec.external_traffic_policy),
            internal_local: is_local(&spec.internal_traffic_policy),
            affinity_seconds: read_affinity(spec, &mut reader),
            health_check_node_port: reader.port("healthCheckNodePort", spec.health_check_node_port),
            topology_hints: annotation("service.kubernetes.io/topology-aware-hints"),
            topology_mode: annotation("service.kubernetes.io/topology-mode"),
            invalid: reader.invalid,
        }
    }
}

fn read_port(port: &core::ServicePort, reader: &mut FieldReader) -> Option<PortSpec> {
    let protocol = reader.protocol(port.protocol.as_deref());
    let number = reader.port("port", Some(port.port));
    if number.is_none() {
        reader.reject("port", &port.port);
    }
    let node_port = reader.port("nodePort", port.node_port);
    Some(PortSpec {
        name: port.name.clone().unwrap_or_default(),
        protocol: protocol?,
        port: number?,
        node_port,
    })
}

fn read_ingress(status: Option<&core::ServiceStatus>, reader: &mut FieldReader) -> Vec<IngressIp> {
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    let entries = balancer.and_then(|balancer| balancer.ingress.as_deref());
    let mut ingress = Vec::new();
    for entry in entries.unwrap_or_default() {
        let text = entry.ip.iter().filter(|text| !text.is_empty());
        let ips = reader.ips("status.loadBalancer.ingress.ip", text);
        ingress.extend(ips.into_iter().map(|ip| IngressIp {
            ip,
            is_proxied: entry.ip_mode.as_deref() == Some("Proxy"),
        }));
    }
    ingress
}

fn read_source_ranges(spec: &core::ServiceSpec, reader: &mut FieldReader) -> Vec<IpNetwork> {
    let mut ranges = Vec::new();
    for text in spec.load_balancer_source_ranges.iter().flatten() {
        match text.trim().parse() {
            Ok(range) => ranges.push(range),
            Err(_) => reader.reject("loadBalancerSourceRanges", text),
        }
    }
    ranges
}

fn read_affinity(spec: &core::ServiceSpec, reader: &mut FieldReader) -> Option<u32> {
    if spec.session_affinity.as_deref() != Some("ClientIP") {
        return None;
    }
    let config = spec.session_affinity_config.as_ref();
    let seconds = config
        .and_then(|config| config.client_ip.as_ref()?.timeout_seconds)
        .unwrap_or(DEFAULT_AFFINITY_SECONDS);
    let valid = u32::try_from(seconds).ok();
    let valid = valid.filter(|seconds| (1..=MAX_AFFINITY_SECONDS).contains(seconds));
    if valid.is_none() {
        reader.reject("timeoutSeconds", &seconds);
    }
    valid
}
