//! Reads services as kube-proxy does, in every mode: one [`ServicePort`] for each port of each
//! service that kube-proxy serves in an IP family.
//!
//! Follows `newBaseServiceInfo` and `ServicePort` of kubernetes/kubernetes `pkg/proxy/service.go`
//! (v1.14.0 to v1.29.1) and `pkg/proxy/serviceport.go` (v1.30.3 to v1.36).

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1 as core;

use super::KubeProxyError;
use super::family::Family;
use super::history::{
    ALL_ADDRESSES_RANGE_IGNORED, ANY_TOPOLOGY_ANNOTATION, HEADLESS_LABEL, HINTS_WITHOUT_ANNOTATION,
    INTERNAL_TRAFFIC_POLICY, LABELS_APPLY_TO_BOTH, LOAD_BALANCER_IP_MODE,
    LOCAL_FOR_CLUSTER_IP_TYPE, PROXY_NAME_LABEL, UNNAMED_PORT_HAS_COLON, ZONE_HINTS,
};
use super::version::Version;

/// Default timeout of client affinity in the API server, in seconds
/// (`DefaultClientIPServiceAffinitySeconds`).
const DEFAULT_AFFINITY_SECONDS: u32 = 10_800;

/// Longest timeout of client affinity that the API server accepts, in seconds.
/// (`validateAffinityTimeout` of kubernetes/kubernetes `pkg/apis/core/validation/validation.go`)
const MAX_AFFINITY_SECONDS: u32 = 86_400;

/// Label of services that another proxy serves.
pub(super) const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Label of headless services and of their endpoints, for which no proxy writes rules.
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";

/// Transport protocol of a service port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP, the default of a port without a protocol.
    Tcp,
    /// UDP, `udp` in rules.
    Udp,
    /// SCTP, `sctp` in rules.
    Sctp,
}

impl Protocol {
    /// Returns the name in iptables and in the hashes of chain names: `tcp`, `udp` or `sctp`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Parses the name that Kubernetes objects use; no name means TCP. Returns `None` for an
    /// unknown name.
    pub(super) fn from_name(name: Option<&str>) -> Option<Self> {
        match name {
            None | Some("TCP" | "") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Port of a service, in one IP family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Kubernetes namespace of the service.
    pub namespace: String,
    /// Name of the service.
    pub service: String,
    /// Name of the port; empty if the port has no name.
    pub port_name: String,
    /// Identifier `namespace/name:port`, used in comments of rules and hashed into chain names.
    pub name: String,
    /// Transport protocol of the port.
    pub protocol: Protocol,
    /// Cluster IP of the service in this family.
    pub cluster_ip: IpAddr,
    /// Port on cluster IP, external IPs and load balancer addresses.
    pub port: u16,
    /// Port on the node's addresses; `None` without a node port.
    pub node_port: Option<u16>,
    /// External IPs of the service, which other systems route to the nodes.
    pub external_ips: Vec<IpAddr>,
    /// Load balancer addresses that packets still have as their destination when they arrive at the
    /// node.
    pub load_balancer_ips: Vec<IpAddr>,
    /// Source networks that may use the load balancer addresses; empty means any source.
    pub source_ranges: Vec<IpNetwork>,
    /// Whether traffic from outside reaches local endpoints only.
    pub external_local: bool,
    /// Whether traffic to the cluster IP reaches local endpoints only.
    pub internal_local: bool,
    /// Timeout of client affinity in seconds; `None` without affinity.
    pub affinity_seconds: Option<u32>,
    /// Port at which the load balancer checks whether this node has local endpoints.
    pub health_check_node_port: Option<u16>,
    /// Whether kube-proxy may use topology hints of the endpoints.
    pub topology_hints: bool,
}

impl ServicePort {
    /// Whether the service has any address other than the cluster IP.
    #[must_use]
    pub fn is_externally_accessible(&self) -> bool {
        self.node_port.is_some()
            || !self.load_balancer_ips.is_empty()
            || !self.external_ips.is_empty()
    }

    /// Whether any traffic of the port reaches endpoints of all nodes. With `externalTrafficPolicy:
    /// Local`, traffic from pods and from the node itself still does.
    #[must_use]
    pub fn has_cluster_traffic(&self) -> bool {
        !self.internal_local || self.is_externally_accessible()
    }

    /// Whether any traffic of the port reaches local endpoints only.
    #[must_use]
    pub fn has_local_traffic(&self) -> bool {
        self.internal_local || (self.external_local && self.is_externally_accessible())
    }
}

/// Returns the reason for which kube-proxy of `version` ignores a service, or `None` if kube-proxy
/// serves it. The reason is a predicate that follows the service's name.
#[must_use]
pub fn ignore_reason(service: &core::Service, version: Version) -> Option<&'static str> {
    let spec = service.spec.as_ref()?;
    let labels = service.metadata.labels.as_ref();
    let has_label = |label| labels.is_some_and(|labels| labels.contains_key(label));
    let headless = version.has(&HEADLESS_LABEL) && version.has(&LABELS_APPLY_TO_BOTH);
    let listed = spec.cluster_ips.iter().flatten();
    if spec.type_.as_deref() == Some("ExternalName") {
        Some("has type ExternalName")
    } else if has_label(PROXY_NAME) && version.has(&PROXY_NAME_LABEL) {
        Some("is served by another proxy: label service.kubernetes.io/service-proxy-name")
    } else if spec.cluster_ip.iter().chain(listed).any(|ip| ip == "None") {
        Some("is headless")
    } else if has_label(HEADLESS) && headless {
        Some("has the label service.kubernetes.io/headless")
    } else {
        None
    }
}

/// Returns the service ports that kube-proxy serves in `family`, sorted by namespace, service, port
/// name and protocol. (kube-proxy itself iterates in the random order of a Go map. The sort gives a
/// cluster the same rules every time.)
///
/// The result omits headless and `ExternalName` services, services that kube-proxy ignores by their
/// labels ([`ignore_reason`]), and services without an address in the family.
///
/// # Errors
///
/// Returns a [`KubeProxyError`] for an address, network, port or protocol that the API server
/// rejects.
pub fn service_ports(
    services: &[core::Service],
    version: Version,
    family: Family,
) -> Result<Vec<ServicePort>, KubeProxyError> {
    let mut ports = Vec::new();
    for service in services {
        let reader = ServiceReader {
            service,
            version,
            family,
        };
        if let Some(cluster_ip) = reader.cluster_ip()? {
            for port in reader
                .spec()
                .and_then(|s| s.ports.as_deref())
                .unwrap_or(&[])
            {
                ports.push(reader.port(cluster_ip, port)?);
            }
        }
    }
    ports.sort_by(|a, b| {
        (&a.namespace, &a.service, &a.port_name, a.protocol).cmp(&(
            &b.namespace,
            &b.service,
            &b.port_name,
            b.protocol,
        ))
    });
    Ok(ports)
}

/// Service as one version reads it for one family.
struct ServiceReader<'a> {
    service: &'a core::Service,
    version: Version,
    family: Family,
}

impl ServiceReader<'_> {
    fn spec(&self) -> Option<&core::ServiceSpec> {
        self.service.spec.as_ref()
    }

    fn namespace(&self) -> &str {
        self.service
            .metadata
            .namespace
            .as_deref()
            .unwrap_or("default")
    }

    fn name(&self) -> &str {
        self.service.metadata.name.as_deref().unwrap_or_default()
    }

    fn invalid_field(
        &self,
        field: &'static str,
        value: &(impl ToString + ?Sized),
    ) -> KubeProxyError {
        KubeProxyError::Service {
            service: format!("{}/{}", self.namespace(), self.name()),
            field,
            value: value.to_string(),
        }
    }

    /// Returns the cluster IP in the family, or `None` if kube-proxy does not serve the service in
    /// this family.
    fn cluster_ip(&self) -> Result<Option<IpAddr>, KubeProxyError> {
        let Some(spec) = self.spec() else {
            return Ok(None);
        };
        if ignore_reason(self.service, self.version).is_some() {
            return Ok(None);
        }
        let listed = spec.cluster_ips.as_deref().unwrap_or(&[]);
        for text in spec.cluster_ip.iter().chain(listed) {
            if text.is_empty() {
                continue;
            }
            let ip = self.ip("clusterIP", text)?;
            if Family::from_ip(ip) == self.family {
                return Ok(Some(ip));
            }
        }
        Ok(None)
    }

    fn ip(&self, field: &'static str, text: &str) -> Result<IpAddr, KubeProxyError> {
        text.parse().map_err(|_| self.invalid_field(field, text))
    }

    /// Parses `texts` and returns the addresses of the family.
    fn ips<'t>(
        &self,
        field: &'static str,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> Result<Vec<IpAddr>, KubeProxyError> {
        let mut ips = Vec::new();
        for text in texts {
            let ip = self.ip(field, text)?;
            if Family::from_ip(ip) == self.family {
                ips.push(ip);
            }
        }
        Ok(ips)
    }

    fn port(
        &self,
        cluster_ip: IpAddr,
        port: &core::ServicePort,
    ) -> Result<ServicePort, KubeProxyError> {
        let port_name = port.name.clone().unwrap_or_default();
        let colon = !port_name.is_empty() || self.version.has(&UNNAMED_PORT_HAS_COLON);
        Ok(ServicePort {
            namespace: self.namespace().to_owned(),
            service: self.name().to_owned(),
            name: format!(
                "{}/{}{}{port_name}",
                self.namespace(),
                self.name(),
                if colon { ":" } else { "" },
            ),
            port_name,
            protocol: Protocol::from_name(port.protocol.as_deref()).ok_or_else(|| {
                self.invalid_field("protocol", port.protocol.as_deref().unwrap_or_default())
            })?,
            cluster_ip,
            port: self
                .number("port", port.port)?
                .ok_or_else(|| self.invalid_field("port", &port.port))?,
            node_port: self.number("nodePort", port.node_port.unwrap_or(0))?,
            external_ips: self.external_ips()?,
            load_balancer_ips: self.load_balancer_ips()?,
            source_ranges: self.source_ranges()?,
            external_local: self.is_external_local(),
            internal_local: self.is_internal_local(),
            affinity_seconds: self.affinity_seconds()?,
            health_check_node_port: self.health_check_node_port()?,
            topology_hints: self.has_topology_hints(),
        })
    }

    /// Parses a port number; 0 gives `None`.
    fn number(&self, field: &'static str, number: i32) -> Result<Option<u16>, KubeProxyError> {
        let number = u16::try_from(number).map_err(|_| self.invalid_field(field, &number))?;
        Ok((number != 0).then_some(number))
    }

    fn external_ips(&self) -> Result<Vec<IpAddr>, KubeProxyError> {
        let ips = self.spec().and_then(|spec| spec.external_ips.as_ref());
        self.ips("externalIPs", ips.into_iter().flatten().map(String::as_str))
    }

    fn load_balancer_ips(&self) -> Result<Vec<IpAddr>, KubeProxyError> {
        let status = self.service.status.as_ref();
        let ingress = status
            .and_then(|status| status.load_balancer.as_ref())
            .and_then(|balancer| balancer.ingress.as_deref())
            .unwrap_or(&[]);
        let is_proxied = |entry: &core::LoadBalancerIngress| {
            self.version.has(&LOAD_BALANCER_IP_MODE) && entry.ip_mode.as_deref() == Some("Proxy")
        };
        let texts = ingress
            .iter()
            .filter(|entry| !is_proxied(entry))
            .filter_map(|entry| entry.ip.as_deref())
            .filter(|text| !text.is_empty());
        self.ips("status.loadBalancer.ingress.ip", texts)
    }

    fn source_ranges(&self) -> Result<Vec<IpNetwork>, KubeProxyError> {
        let texts = self
            .spec()
            .and_then(|spec| spec.load_balancer_source_ranges.as_deref())
            .unwrap_or(&[]);
        let mut ranges = Vec::new();
        for text in texts {
            let range: IpNetwork = text
                .trim()
                .parse()
                .map_err(|_| self.invalid_field("loadBalancerSourceRanges", text))?;
            if Family::from_ip(range.ip()) == self.family {
                ranges.push(range);
            }
        }
        if self.version.has(&ALL_ADDRESSES_RANGE_IGNORED)
            && ranges.iter().any(|range| range.prefix() == 0)
        {
            ranges.clear();
        }
        Ok(ranges)
    }

    fn is_external_local(&self) -> bool {
        let Some(spec) = self.spec() else {
            return false;
        };
        let is_applicable = match spec.type_.as_deref() {
            Some("LoadBalancer" | "NodePort") => true,
            _ => {
                self.version.has(&LOCAL_FOR_CLUSTER_IP_TYPE)
                    && spec
                        .external_ips
                        .as_ref()
                        .is_some_and(|ips| !ips.is_empty())
            }
        };
        is_applicable && spec.external_traffic_policy.as_deref() == Some("Local")
    }

    fn is_internal_local(&self) -> bool {
        let policy = self
            .spec()
            .and_then(|spec| spec.internal_traffic_policy.as_deref());
        self.version.has(&INTERNAL_TRAFFIC_POLICY) && policy == Some("Local")
    }

    fn affinity_seconds(&self) -> Result<Option<u32>, KubeProxyError> {
        let Some(spec) = self.spec() else {
            return Ok(None);
        };
        if spec.session_affinity.as_deref() != Some("ClientIP") {
            return Ok(None);
        }
        let seconds = spec
            .session_affinity_config
            .as_ref()
            .and_then(|config| config.client_ip.as_ref())
            .and_then(|client| client.timeout_seconds);
        match seconds {
            None => Ok(Some(DEFAULT_AFFINITY_SECONDS)),
            Some(seconds) => u32::try_from(seconds)
                .ok()
                .filter(|seconds| (1..=MAX_AFFINITY_SECONDS).contains(seconds))
                .map(Some)
                .ok_or_else(|| self.invalid_field("timeoutSeconds", &seconds)),
        }
    }

    fn health_check_node_port(&self) -> Result<Option<u16>, KubeProxyError> {
        let Some(spec) = self.spec() else {
            return Ok(None);
        };
        if spec.type_.as_deref() == Some("LoadBalancer") && self.is_external_local() {
            self.number(
                "healthCheckNodePort",
                spec.health_check_node_port.unwrap_or(0),
            )
        } else {
            Ok(None)
        }
    }

    fn has_topology_hints(&self) -> bool {
        if self.version.has(&HINTS_WITHOUT_ANNOTATION) {
            return true;
        }
        let annotation = |name: &str| {
            let annotations = self.service.metadata.annotations.as_ref()?;
            annotations.get(name).map(String::as_str)
        };
        let hints = annotation("service.kubernetes.io/topology-aware-hints");
        if self.version.has(&ANY_TOPOLOGY_ANNOTATION) {
            let mode = hints.or_else(|| annotation("service.kubernetes.io/topology-mode"));
            mode.is_some_and(|mode| !matches!(mode, "" | "disabled" | "Disabled"))
        } else {
            self.version.has(&ZONE_HINTS) && matches!(hints, Some("auto" | "Auto"))
        }
    }
}
