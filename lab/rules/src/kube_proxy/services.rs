//! Reads services as kube-proxy does, in every mode: one [`ServicePort`] for each port of each
//! service that kube-proxy serves in an IP family.
//!
//! Follows `newBaseServiceInfo` and `ServicePort` of kubernetes/kubernetes `pkg/proxy/service.go`
//! (v1.14.0 to v1.29.1) and `pkg/proxy/serviceport.go` (v1.30.3 to v1.36).

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::KubeProxyError;
use super::history::{
    ALL_ADDRESSES_RANGE_IGNORED, ANY_TOPOLOGY_ANNOTATION, HEADLESS_LABEL, HINTS_WITHOUT_ANNOTATION,
    INTERNAL_TRAFFIC_POLICY, LABELS_APPLY_TO_BOTH, LOAD_BALANCER_IP_MODE,
    LOCAL_FOR_CLUSTER_IP_TYPE, PROXY_NAME_LABEL, UNNAMED_PORT_HAS_COLON, ZONE_HINTS,
};
use super::version::Version;
use crate::objects::{CLUSTER_IP, PortSpec, Service, ServiceType};
use svclab_ruleset::{Family, Protocol};

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
pub fn ignore_reason(service: &Service, version: Version) -> Option<&'static str> {
    let headless = version.has(&HEADLESS_LABEL) && version.has(&LABELS_APPLY_TO_BOTH);
    if service.kind == ServiceType::ExternalName {
        Some("has type ExternalName")
    } else if service.labels.other_proxy && version.has(&PROXY_NAME_LABEL) {
        Some("is served by another proxy: label service.kubernetes.io/service-proxy-name")
    } else if service.is_headless {
        Some("is headless")
    } else if service.labels.headless && headless {
        Some("has the label service.kubernetes.io/headless")
    } else if service.cluster_ips.is_empty() && !has_invalid_cluster_ip(service) {
        // `ShouldSkipService` in `pkg/proxy/util`.
        Some("has no cluster IP")
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
/// rejects, if kube-proxy serves the service in the family.
pub fn service_ports(
    services: &[Service],
    version: Version,
    family: Family,
) -> Result<Vec<ServicePort>, KubeProxyError> {
    let mut ports = Vec::new();
    for service in services {
        if ignore_reason(service, version).is_some() {
            continue;
        }
        let mut cluster_ips = service.cluster_ips.iter();
        let cluster_ip = cluster_ips.find(|ip| Family::from_ip(**ip) == family);
        if let Some(invalid) = &service.invalid
            && (cluster_ip.is_some() || has_invalid_cluster_ip(service))
        {
            return Err(KubeProxyError::Service {
                service: service.full_name(),
                field: invalid.field,
                value: invalid.value.clone(),
            });
        }
        if let Some(ip) = cluster_ip {
            let service_ports = service.ports.iter();
            ports.extend(service_ports.map(|port| build_port(service, *ip, port, version)));
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

fn has_invalid_cluster_ip(service: &Service) -> bool {
    let invalid = service.invalid.as_ref();
    invalid.is_some_and(|invalid| invalid.field == CLUSTER_IP)
}

fn build_port(
    service: &Service,
    cluster_ip: IpAddr,
    port: &PortSpec,
    version: Version,
) -> ServicePort {
    let family = Family::from_ip(cluster_ip);
    let is_of_family = |ip: &IpAddr| Family::from_ip(*ip) == family;
    let colon = !port.name.is_empty() || version.has(&UNNAMED_PORT_HAS_COLON);
    let colon = if colon { ":" } else { "" };
    let external_local = is_external_local(service, version);
    let is_proxied = version.has(&LOAD_BALANCER_IP_MODE);
    let ingress = service.ingress.iter();
    ServicePort {
        namespace: service.namespace.clone(),
        service: service.name.clone(),
        port_name: port.name.clone(),
        name: format!("{}{colon}{}", service.full_name(), port.name),
        protocol: port.protocol,
        cluster_ip,
        port: port.port,
        node_port: port.node_port,
        external_ips: service
            .external_ips
            .iter()
            .copied()
            .filter(is_of_family)
            .collect(),
        load_balancer_ips: ingress
            .filter(|entry| !(is_proxied && entry.is_proxied))
            .map(|entry| entry.ip)
            .filter(is_of_family)
            .collect(),
        source_ranges: source_ranges(service, version, family),
        external_local,
        internal_local: service.internal_local && version.has(&INTERNAL_TRAFFIC_POLICY),
        affinity_seconds: service.affinity_seconds,
        health_check_node_port: service
            .health_check_node_port
            .filter(|_| service.kind == ServiceType::LoadBalancer && external_local),
        topology_hints: has_topology_hints(service, version),
    }
}

fn source_ranges(service: &Service, version: Version, family: Family) -> Vec<IpNetwork> {
    let ranges = service.source_ranges.iter().copied();
    let ranges: Vec<_> = ranges
        .filter(|range| Family::from_ip(range.ip()) == family)
        .collect();
    let admits_all = ranges.iter().any(|range| range.prefix() == 0);
    if admits_all && version.has(&ALL_ADDRESSES_RANGE_IGNORED) {
        return Vec::new();
    }
    ranges
}

fn is_external_local(service: &Service, version: Version) -> bool {
    let is_applicable = match service.kind {
        ServiceType::LoadBalancer | ServiceType::NodePort => true,
        ServiceType::ClusterIp | ServiceType::ExternalName => {
            version.has(&LOCAL_FOR_CLUSTER_IP_TYPE) && !service.external_ips.is_empty()
        }
    };
    is_applicable && service.external_local
}

fn has_topology_hints(service: &Service, version: Version) -> bool {
    let hints = service.topology_hints.as_deref();
    if version.has(&HINTS_WITHOUT_ANNOTATION) {
        true
    } else if version.has(&ANY_TOPOLOGY_ANNOTATION) {
        let mode = hints.or(service.topology_mode.as_deref());
        mode.is_some_and(|mode| !matches!(mode, "" | "disabled" | "Disabled"))
    } else {
        version.has(&ZONE_HINTS) && matches!(hints, Some("auto" | "Auto"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ports(spec: &Value, family: Family) -> Result<Vec<ServicePort>, KubeProxyError> {
        let service = json!({"metadata": {"namespace": "ns", "name": "svc"}, "spec": spec});
        let service = serde_json::from_value(service).unwrap();
        service_ports(&[service], "v1.30".parse().unwrap(), family)
    }

    #[test]
    fn service_ports_invalid_field_matters_only_if_served() {
        let invalid = |spec: Value| {
            let mut with_ip = json!({"externalIPs": ["10.0.0.x"], "ports": [{"port": 80}]});
            for (key, value) in spec.as_object().unwrap() {
                with_ip[key] = value.clone();
            }
            with_ip
        };
        for spec in [
            json!({"clusterIP": "None"}),
            json!({"type": "ExternalName", "externalName": "example.org"}),
            json!({}),
            json!({"clusterIP": ""}),
            json!({"clusterIP": "fd00::1"}),
        ] {
            assert_eq!(
                ports(&invalid(spec.clone()), Family::V4),
                Ok(Vec::new()),
                "{spec}"
            );
        }
        let error = |spec: Value, family| match ports(&invalid(spec), family) {
            Err(KubeProxyError::Service { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            error(json!({"clusterIP": "10.96.0.1"}), Family::V4),
            "externalIPs"
        );
        assert_eq!(
            error(json!({"clusterIP": "10.96.0.300"}), Family::V4),
            "clusterIP"
        );
        assert_eq!(
            error(json!({"clusterIP": "10.96.0.300"}), Family::V6),
            "clusterIP"
        );
    }
}
