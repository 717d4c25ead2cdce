//! kube-proxy's view of services: one [`ServicePort`] for each port of each
//! service that it serves in an IP family. The same for every mode.
//!
//! Follows `newBaseServiceInfo` and `ServicePort` of kubernetes/kubernetes
//! `pkg/proxy/service.go` (v1.14.0 to v1.29.1) and `pkg/proxy/serviceport.go`
//! (v1.30.3 to v1.36).

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1 as core;

use super::KubeProxyError;
use super::family::Family;
use super::history::{
    ANY_TOPOLOGY_ANNOTATION, COLON_OF_UNNAMED_PORT, HEADLESS_LABEL, HINTS_WITHOUT_ANNOTATION,
    INTERNAL_TRAFFIC_POLICY, LABELS_OF_BOTH, LOAD_BALANCER_IP_MODE, LOCAL_FOR_CLUSTER_IP_TYPE,
    PROXY_NAME_LABEL, ZERO_RANGE_IS_NO_RANGE, ZONE_HINTS,
};
use super::version::Version;

/// How long the API server lets client affinity last unless told otherwise, in
/// seconds (`DefaultClientIPServiceAffinitySeconds`).
const DEFAULT_AFFINITY_SECONDS: u32 = 10_800;

/// The longest client affinity that the API server takes, in seconds.
/// (`validateAffinityTimeout` of kubernetes/kubernetes
/// `pkg/apis/core/validation/validation.go`)
const MAX_AFFINITY_SECONDS: u32 = 86_400;

/// Services labelled so are another proxy's.
pub(super) const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Services labelled so, and their endpoints, have nothing to be proxied.
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP, what a port has that says nothing.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Its name in iptables and in the hashes of chain names: `tcp`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Reads the name that objects use; none means TCP.
    pub(super) fn of(name: Option<&str>) -> Option<Self> {
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

/// A port of a service, in one IP family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// The service's namespace.
    pub namespace: String,
    /// The service's name.
    pub service: String,
    /// The port's name; empty when it has none.
    pub port_name: String,
    /// What rules call it, and what is hashed into chain names:
    /// `namespace/name:port`.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// The service's cluster IP.
    pub cluster_ip: IpAddr,
    /// The port on cluster, external and load balancer IPs.
    pub port: u16,
    /// The port on the node's addresses.
    pub node_port: Option<u16>,
    /// Addresses somebody outside routes to the nodes.
    pub external_ips: Vec<IpAddr>,
    /// Addresses of the load balancer that packets still carry when they
    /// arrive.
    pub load_balancer_ips: Vec<IpAddr>,
    /// Who may use the load balancer's addresses; empty means anyone.
    pub source_ranges: Vec<IpNetwork>,
    /// Whether traffic from outside meets local endpoints only.
    pub external_local: bool,
    /// Whether traffic to the cluster IP meets local endpoints only.
    pub internal_local: bool,
    /// For how many seconds a client stays with its endpoint, if it does.
    pub affinity_seconds: Option<u32>,
    /// Where the load balancer asks whether this node has local endpoints.
    pub health_check_node_port: Option<u16>,
    /// Whether topology hints of its endpoints may be obeyed.
    pub topology_hints: bool,
}

impl ServicePort {
    /// Whether anything but the cluster IP leads to it.
    #[must_use]
    pub fn externally_accessible(&self) -> bool {
        self.node_port.is_some()
            || !self.load_balancer_ips.is_empty()
            || !self.external_ips.is_empty()
    }

    /// Whether any of its traffic meets endpoints of all nodes. With the policy
    /// `Local` for outside traffic, pods and the node itself still do.
    #[must_use]
    pub fn uses_cluster_endpoints(&self) -> bool {
        !self.internal_local || self.externally_accessible()
    }

    /// Whether any of its traffic meets local endpoints only.
    #[must_use]
    pub fn uses_local_endpoints(&self) -> bool {
        self.internal_local || (self.external_local && self.externally_accessible())
    }
}

/// Why kube-proxy of `version` passes a service by, in words that follow its name;
/// none if it serves it.
#[must_use]
pub fn passed_by(service: &core::Service, version: Version) -> Option<&'static str> {
    let spec = service.spec.as_ref()?;
    let labels = service.metadata.labels.as_ref();
    let labelled = |label| labels.is_some_and(|labels| labels.contains_key(label));
    let headless = version.has(&HEADLESS_LABEL) && version.has(&LABELS_OF_BOTH);
    let listed = spec.cluster_ips.iter().flatten();
    if spec.type_.as_deref() == Some("ExternalName") {
        Some("is an ExternalName")
    } else if labelled(PROXY_NAME) && version.has(&PROXY_NAME_LABEL) {
        Some("is another proxy's, by its label service.kubernetes.io/service-proxy-name")
    } else if spec.cluster_ip.iter().chain(listed).any(|ip| ip == "None") {
        Some("is headless")
    } else if labelled(HEADLESS) && headless {
        Some("is labelled service.kubernetes.io/headless")
    } else {
        None
    }
}

/// The service ports that kube-proxy serves in `family`, sorted by namespace,
/// service, port name and protocol. (kube-proxy itself takes them in the random
/// order of a Go map; sorted, the same cluster always gets the same rules.)
///
/// Headless and `ExternalName` services, those whose labels say so ([`passed_by`])
/// and those without an address in the family are left out.
///
/// # Errors
///
/// An address, network, port or protocol that the API server would not have
/// accepted.
pub fn service_ports(
    services: &[core::Service],
    version: Version,
    family: Family,
) -> Result<Vec<ServicePort>, KubeProxyError> {
    let mut ports = Vec::new();
    for service in services {
        let view = View {
            service,
            version,
            family,
        };
        if let Some(cluster_ip) = view.cluster_ip()? {
            for port in view.spec().and_then(|s| s.ports.as_deref()).unwrap_or(&[]) {
                ports.push(view.port(cluster_ip, port)?);
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

/// One service, as read by one version for one family.
struct View<'a> {
    service: &'a core::Service,
    version: Version,
    family: Family,
}

impl View<'_> {
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

    fn wrong(&self, field: &'static str, value: &(impl ToString + ?Sized)) -> KubeProxyError {
        KubeProxyError::Service {
            service: format!("{}/{}", self.namespace(), self.name()),
            field,
            value: value.to_string(),
        }
    }

    /// The cluster IP in the family; none if kube-proxy does not serve this
    /// service there.
    fn cluster_ip(&self) -> Result<Option<IpAddr>, KubeProxyError> {
        let Some(spec) = self.spec() else {
            return Ok(None);
        };
        if passed_by(self.service, self.version).is_some() {
            return Ok(None);
        }
        let listed = spec.cluster_ips.as_deref().unwrap_or(&[]);
        for text in spec.cluster_ip.iter().chain(listed) {
            if text.is_empty() {
                continue;
            }
            let ip = self.ip("clusterIP", text)?;
            if Family::of(ip) == self.family {
                return Ok(Some(ip));
            }
        }
        Ok(None)
    }

    fn ip(&self, field: &'static str, text: &str) -> Result<IpAddr, KubeProxyError> {
        text.parse().map_err(|_| self.wrong(field, text))
    }

    /// Those of `texts` that are addresses of the family.
    fn ips<'t>(
        &self,
        field: &'static str,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> Result<Vec<IpAddr>, KubeProxyError> {
        let mut ips = Vec::new();
        for text in texts {
            let ip = self.ip(field, text)?;
            if Family::of(ip) == self.family {
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
        let colon = !port_name.is_empty() || self.version.has(&COLON_OF_UNNAMED_PORT);
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
            protocol: Protocol::of(port.protocol.as_deref()).ok_or_else(|| {
                self.wrong("protocol", port.protocol.as_deref().unwrap_or_default())
            })?,
            cluster_ip,
            port: self
                .number("port", port.port)?
                .ok_or_else(|| self.wrong("port", &port.port))?,
            node_port: self.number("nodePort", port.node_port.unwrap_or(0))?,
            external_ips: self.external_ips()?,
            load_balancer_ips: self.load_balancer_ips()?,
            source_ranges: self.source_ranges()?,
            external_local: self.external_local(),
            internal_local: self.internal_local(),
            affinity_seconds: self.affinity_seconds()?,
            health_check_node_port: self.health_check_node_port()?,
            topology_hints: self.topology_hints(),
        })
    }

    /// A port number; none for 0.
    fn number(&self, field: &'static str, number: i32) -> Result<Option<u16>, KubeProxyError> {
        let number = u16::try_from(number).map_err(|_| self.wrong(field, &number))?;
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
        let proxied = |entry: &core::LoadBalancerIngress| {
            self.version.has(&LOAD_BALANCER_IP_MODE) && entry.ip_mode.as_deref() == Some("Proxy")
        };
        let texts = ingress
            .iter()
            .filter(|entry| !proxied(entry))
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
                .map_err(|_| self.wrong("loadBalancerSourceRanges", text))?;
            if Family::of(range.ip()) == self.family {
                ranges.push(range);
            }
        }
        if self.version.has(&ZERO_RANGE_IS_NO_RANGE)
            && ranges.iter().any(|range| range.prefix() == 0)
        {
            ranges.clear();
        }
        Ok(ranges)
    }

    fn external_local(&self) -> bool {
        let Some(spec) = self.spec() else {
            return false;
        };
        let meant = match spec.type_.as_deref() {
            Some("LoadBalancer" | "NodePort") => true,
            _ => {
                self.version.has(&LOCAL_FOR_CLUSTER_IP_TYPE)
                    && spec
                        .external_ips
                        .as_ref()
                        .is_some_and(|ips| !ips.is_empty())
            }
        };
        meant && spec.external_traffic_policy.as_deref() == Some("Local")
    }

    fn internal_local(&self) -> bool {
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
                .ok_or_else(|| self.wrong("timeoutSeconds", &seconds)),
        }
    }

    fn health_check_node_port(&self) -> Result<Option<u16>, KubeProxyError> {
        let Some(spec) = self.spec() else {
            return Ok(None);
        };
        if spec.type_.as_deref() == Some("LoadBalancer") && self.external_local() {
            self.number(
                "healthCheckNodePort",
                spec.health_check_node_port.unwrap_or(0),
            )
        } else {
            Ok(None)
        }
    }

    fn topology_hints(&self) -> bool {
        if self.version.has(&HINTS_WITHOUT_ANNOTATION) {
            return true;
        }
        let said = |name: &str| {
            let annotations = self.service.metadata.annotations.as_ref()?;
            annotations.get(name).map(String::as_str)
        };
        let hints = said("service.kubernetes.io/topology-aware-hints");
        if self.version.has(&ANY_TOPOLOGY_ANNOTATION) {
            let mode = hints.or_else(|| said("service.kubernetes.io/topology-mode"));
            mode.is_some_and(|mode| !matches!(mode, "" | "disabled" | "Disabled"))
        } else {
            self.version.has(&ZONE_HINTS) && matches!(hints, Some("auto" | "Auto"))
        }
    }
}
