//! Derives the `EndpointSlice`s that the controller of a cluster would write for a service. Used
//! for services without slices in the lab.
//!
//! The source is `k8s.io/endpointslice` v0.36.0: `utils.go` (`podToEndpoint`, `getEndpointPorts`,
//! `FindPort`, `getAddressTypesForService`), `reconciler.go` (`reconcileByAddressType`),
//! `util/controller_utils.go` (`ShouldPodBeInEndpoints`) and `trafficdist/trafficdist.go`. Two
//! differences are intentional:
//!
//! - The names of slices are not random.
//! - A pod without `status.conditions` counts as ready unless its phase is `Pending`, because the
//!   status of a lab's pod has only the fields that its author wrote.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use indexmap::IndexMap;
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, Node, ObjectReference, Pod, Service, ServicePort,
};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::objects::defaults::family_name;
use crate::objects::selector::has_labels;

/// Label with the name of the service that a slice belongs to.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Label with the name of the component that wrote a slice.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// Label with the zone of a node.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Maximum number of endpoints in one slice of the controller (default of
/// `--max-endpoints-per-slice`).
const MAX_ENDPOINTS_PER_SLICE: usize = 100;

/// Pods by label, for a fast selection among thousands of pods.
pub(crate) struct PodIndex<'o> {
    by_label: HashMap<(&'o str, &'o str, &'o str), Vec<&'o Pod>>,
}

impl<'o> PodIndex<'o> {
    /// Indexes the pods that can be endpoints.
    pub(crate) fn new(pods: impl Iterator<Item = &'o Pod>) -> Self {
        let mut by_label: HashMap<_, Vec<&Pod>> = HashMap::new();
        for pod in pods.filter(|pod| can_be_endpoint(pod)) {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            for (key, value) in pod.metadata.labels.iter().flatten() {
                let label = (namespace, key.as_str(), value.as_str());
                by_label.entry(label).or_default().push(pod);
            }
        }
        Self { by_label }
    }

    /// Returns the pods of a Kubernetes namespace with all of these labels; no pods if `labels` is
    /// empty.
    fn select(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<&'o Pod> {
        let with_each = labels.iter().map(|(key, value)| {
            let label = (namespace, key.as_str(), value.as_str());
            self.by_label.get(&label).map_or(&[][..], Vec::as_slice)
        });
        let fewest = with_each.min_by_key(|pods| pods.len());
        let has_all = |pod: &&&Pod| has_labels(pod.metadata.labels.as_ref(), labels);
        fewest
            .into_iter()
            .flatten()
            .filter(has_all)
            .copied()
            .collect()
    }
}

/// Derives the slices of a service. The result is empty for a service without selector and for an
/// `ExternalName`. The objects must have their defaults filled in.
///
/// The slices of an address family are grouped by ports. Ports differ between pods if a
/// `targetPort` is a name that the pods give to different numbers.
pub(crate) fn derive_slices(
    service: &Service,
    pods: &PodIndex<'_>,
    nodes: &BTreeMap<&str, &Node>,
) -> Vec<EndpointSlice> {
    let Some(spec) = &service.spec else {
        return Vec::new();
    };
    let Some(selector) = &spec.selector else {
        return Vec::new();
    };
    if spec.type_.as_deref() == Some("ExternalName") {
        return Vec::new();
    }
    let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
    let selected = pods.select(namespace, selector);
    let publish = spec.publish_not_ready_addresses == Some(true);
    let mut slices = Vec::new();
    for address_type in address_types(service) {
        let mut groups: IndexMap<PortKey, (Vec<EndpointPort>, Vec<Endpoint>)> = IndexMap::new();
        for &pod in &selected {
            let node = pod_node(pod).and_then(|name| nodes.get(name).copied());
            if node.is_none() && !publish {
                continue;
            }
            let Some(endpoint) = build_endpoint(pod, node, service, address_type) else {
                continue;
            };
            let ports = endpoint_ports(service, pod);
            let (_, endpoints) = groups
                .entry(port_key(&ports))
                .or_insert_with(|| (ports, Vec::new()));
            endpoints.push(endpoint);
        }
        for (ports, endpoints) in groups.into_values() {
            for chunk in endpoints.chunks(MAX_ENDPOINTS_PER_SLICE) {
                let number = slices.len() + 1;
                slices.push(build_slice(service, address_type, number, &ports, chunk));
            }
        }
    }
    slices
}

/// Key for grouping endpoints with equal ports.
type PortKey = Vec<(Option<String>, Option<i32>, Option<String>)>;

fn port_key(ports: &[EndpointPort]) -> PortKey {
    ports
        .iter()
        .map(|port| (port.name.clone(), port.port, port.protocol.clone()))
        .collect()
}

fn build_slice(
    service: &Service,
    address_type: &str,
    number: usize,
    ports: &[EndpointPort],
    endpoints: &[Endpoint],
) -> EndpointSlice {
    let name = service.metadata.name.clone().unwrap_or_default();
    let labels = [(SERVICE_NAME, name.as_str()), (MANAGED_BY, "svclab")];
    EndpointSlice {
        address_type: address_type.to_owned(),
        endpoints: Some(endpoints.to_vec()),
        metadata: ObjectMeta {
            name: Some(format!("{name}-{number}")),
            namespace: service.metadata.namespace.clone(),
            labels: Some(
                labels
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
            ),
            ..ObjectMeta::default()
        },
        ports: Some(ports.to_vec()),
    }
}

/// Returns the address families for which a service has slices.
fn address_types(service: &Service) -> Vec<&'static str> {
    let spec = service.spec.as_ref();
    let named = spec
        .and_then(|spec| spec.ip_families.as_deref())
        .unwrap_or_default();
    let types: Vec<_> = ["IPv4", "IPv6"]
        .into_iter()
        .filter(|family| named.iter().any(|name| name == family))
        .collect();
    if !types.is_empty() {
        return types;
    }
    match spec.and_then(|spec| spec.cluster_ip.as_deref()) {
        Some(ip) if !ip.is_empty() && ip != "None" => match ip.parse() {
            Ok(ip) => vec![family_name(ip)],
            Err(_) => vec!["IPv4"],
        },
        _ => vec!["IPv4", "IPv6"],
    }
}

/// Whether a pod can be an endpoint: it has an address and has not ended.
fn can_be_endpoint(pod: &Pod) -> bool {
    !has_ended(pod) && pod_ips(pod).next().is_some()
}

/// Whether a pod has ended: its phase is `Failed` or `Succeeded`.
pub(crate) fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), Some("Failed" | "Succeeded"))
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// Returns the containers that serve while a pod runs. Init containers with `restartPolicy: Always`
/// are sidecars and keep running.
pub(crate) fn serving_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let sidecars = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    pod.spec.iter().flat_map(move |spec| {
        let init = spec.init_containers.iter().flatten().filter(sidecars);
        spec.containers.iter().chain(init)
    })
}

/// Returns the ports that a pod's containers declare, with their protocols. A pod that declares no
/// ports may serve any port.
pub fn declared_ports(pod: &Pod) -> impl Iterator<Item = (i32, &str)> {
    let ports = serving_containers(pod).flat_map(|container| container.ports.iter().flatten());
    ports.map(|port| {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        (port.container_port, protocol)
    })
}

fn pod_ips(pod: &Pod) -> impl Iterator<Item = IpAddr> {
    pod.status
        .iter()
        .flat_map(|status| status.pod_ips.iter().flatten())
        .filter_map(|ip| ip.ip.parse().ok())
}

fn pod_node(pod: &Pod) -> Option<&str> {
    pod.spec
        .as_ref()?
        .node_name
        .as_deref()
        .filter(|name| !name.is_empty())
}

/// Whether a pod is ready: its `Ready` condition is true (`IsPodReady` in
/// `util/controller_utils.go`). Without any conditions, a pod is ready unless it is `Pending`: the
/// kubelet sets the condition to false until all containers are ready (kubernetes v1.36.0
/// `pkg/kubelet/status/generate.go`, `GeneratePodReadyCondition`).
fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    match conditions {
        None | Some([]) => phase(pod) != Some("Pending"),
        Some(conditions) => conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
    }
}

fn build_endpoint(
    pod: &Pod,
    node: Option<&Node>,
    service: &Service,
    address_type: &str,
) -> Option<Endpoint> {
    let addresses: Vec<String> = pod_ips(pod)
        .filter(|ip| family_name(*ip) == address_type)
        .map(|ip| ip.to_string())
        .collect();
    if addresses.is_empty() {
        return None;
    }
    let spec = service.spec.as_ref();
    let publish = spec.is_some_and(|spec| spec.publish_not_ready_addresses == Some(true));
    let serving = is_ready(pod);
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let hostname = pod.spec.as_ref().and_then(|pod_spec| {
        let hostname = pod_spec.hostname.clone().filter(|name| !name.is_empty())?;
        (pod_spec.subdomain == service.metadata.name).then_some(hostname)
    });
    let zone = node.and_then(|node| node.metadata.labels.as_ref()?.get(ZONE).cloned());
    let zone = zone.filter(|zone| !zone.is_empty());
    let ready = publish || (serving && !terminating);
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname,
        node_name: pod_node(pod).map(str::to_owned),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        hints: endpoint_hints(service, pod_node(pod), zone.as_deref()).filter(|_| ready),
        zone,
        ..Endpoint::default()
    })
}

/// Whether the service requests zone hints in proportion to the CPUs of the zones. This overrides
/// `trafficDistribution`. (`k8s.io/endpointslice` v0.36.0 `utils.go`, `hintsEnabled`;
/// `reconciler.go`, `reconcileByAddressType`.)
pub(crate) fn has_proportional_hints(service: &Service) -> bool {
    let annotations = service.metadata.annotations.as_ref();
    let value = |name: &str| annotations.and_then(|annotations| annotations.get(name));
    let mode = value("service.kubernetes.io/topology-aware-hints")
        .or_else(|| value("service.kubernetes.io/topology-mode"));
    mode.is_some_and(|mode| matches!(mode.as_str(), "Auto" | "auto"))
}

/// Returns the hints of a ready endpoint for `trafficDistribution`: its own zone, and with
/// `PreferSameNode` its own node. (`k8s.io/endpointslice` v0.36.0 `reconciler.go`,
/// `validTrafficDistribution`; `trafficdist/trafficdist.go`, `preferCloseHeuristic.update`.)
fn endpoint_hints(
    service: &Service,
    node: Option<&str>,
    zone: Option<&str>,
) -> Option<EndpointHints> {
    let distribution = service.spec.as_ref()?.traffic_distribution.as_deref()?;
    let zones = zone.map(|name| {
        vec![ForZone {
            name: name.to_owned(),
        }]
    });
    let for_nodes = match distribution {
        _ if has_proportional_hints(service) => return None,
        "PreferClose" | "PreferSameZone" => None,
        "PreferSameNode" => node.map(|name| {
            vec![ForNode {
                name: name.to_owned(),
            }]
        }),
        _ => return None,
    };
    (zones.is_some() || for_nodes.is_some()).then_some(EndpointHints {
        for_nodes,
        for_zones: zones,
    })
}

/// Returns the ports of a service as one pod serves them. A named target that the pod does not
/// declare is omitted.
fn endpoint_ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let service_ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref());
    service_ports
        .unwrap_or_default()
        .iter()
        .filter_map(|port| {
            Some(EndpointPort {
                app_protocol: port.app_protocol.clone(),
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(target_port(port, pod)?),
                protocol: port.protocol.clone(),
            })
        })
        .collect()
}

/// Returns the port number of a service port's target in a pod.
fn target_port(port: &ServicePort, pod: &Pod) -> Option<i32> {
    match port.target_port.as_ref()? {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let is_target = |candidate: &&ContainerPort| {
                candidate.name.as_deref() == Some(name) && candidate.protocol == port.protocol
            };
            serving_containers(pod)
                .flat_map(|container| container.ports.iter().flatten())
                .find(is_target)
                .map(|found| found.container_port)
        }
    }
}
