//! Warns about service ports whose target ports the pods do not declare: the pods refuse those
//! connections.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::objects::endpoints::{SERVICE_NAME, declared_ports};
use crate::objects::{Object, Objects};
use crate::sink::Sink;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::suggest::format_list;

/// Warns once for each service port that a pod does not declare.
pub(crate) fn check_ports(objects: &Objects, sink: &mut Sink) {
    warn_unresolved_ports(objects, sink);
    let pods = PodLookup::new(objects);
    for slice in &objects.endpoint_slices {
        let ports = slice.value.ports.iter().flatten();
        // No server answers over SCTP, whether or not a pod declares the port.
        for port in ports.filter(|port| port.protocol.as_deref() != Some("SCTP")) {
            let endpoints = slice.value.endpoints.iter().flatten();
            let refusing: Vec<&Object<Pod>> = endpoints
                .filter_map(|endpoint| pods.find_pod(&slice.namespace, endpoint))
                .filter(|pod| !has_port(&pod.value, port))
                .collect();
            if let Some(first) = refusing.first() {
                sink.push(mismatch(objects, slice, port, first, refusing.len()));
            }
        }
    }
}

/// Warns about each service port whose `targetPort` is a name that no port of its pods has. The
/// endpoint slice controller leaves such a port out of the slices.
fn warn_unresolved_ports(objects: &Objects, sink: &mut Sink) {
    for service in &objects.services {
        let ports = service
            .value
            .spec
            .as_ref()
            .and_then(|spec| spec.ports.as_ref());
        for (index, port) in ports.into_iter().flatten().enumerate() {
            let Some(IntOrString::String(target)) = &port.target_port else {
                continue;
            };
            let name = port.name.as_deref().unwrap_or_default();
            let lacks = |slice: &Object<EndpointSlice>| {
                let mut ports = slice.value.ports.iter().flatten();
                slice.tree.is_none() && !ports.any(|port| port.name.as_deref() == Some(name))
            };
            if !objects
                .slices_of(&service.namespace, &service.name)
                .any(lacks)
            {
                continue;
            }
            let warning = Diagnostic::warning(format!(
                "port {} of service `{}/{}` has target port `{target}`, which selected pods do not \
                 declare",
                port.port, service.namespace, service.name
            ))
            .with_help("write the name of a container port, or the port number");
            let span = service.tree.as_ref().and_then(|tree| {
                let port = tree.node_at(crate::path!["spec", "ports", index])?;
                Some(port.key_span("targetPort").unwrap_or(port.head_span()))
            });
            sink.push(match span {
                Some(span) => warning.with_position(span, "no such port"),
                None => warning,
            });
        }
    }
}

/// Pods by name, and by the addresses that neither a node nor another pod has.
struct PodLookup<'o> {
    by_name: HashMap<(&'o str, &'o str), &'o Object<Pod>>,
    by_address: HashMap<&'o str, &'o Object<Pod>>,
}

impl<'o> PodLookup<'o> {
    fn new(objects: &'o Objects) -> Self {
        let mut pods = Self {
            by_name: HashMap::new(),
            by_address: HashMap::new(),
        };
        for pod in &objects.pods {
            pods.by_name.insert((&pod.namespace, &pod.name), pod);
            let on_host = pod.value.spec.as_ref().and_then(|spec| spec.host_network);
            if on_host != Some(true) {
                let status = pod.value.status.iter();
                let ips = status.flat_map(|status| status.pod_ips.iter().flatten());
                pods.by_address.extend(ips.map(|ip| (ip.ip.as_str(), pod)));
            }
        }
        pods
    }

    /// Returns the pod of an endpoint: the target of its reference, otherwise the pod with its
    /// address.
    fn find_pod(&self, namespace: &str, endpoint: &Endpoint) -> Option<&'o Object<Pod>> {
        let target = endpoint.target_ref.as_ref();
        let target = target.filter(|target| target.kind.as_deref() == Some("Pod"));
        let named = target
            .and_then(|target| target.name.as_deref())
            .and_then(|name| self.by_name.get(&(namespace, name)));
        let mut addresses = endpoint.addresses.iter();
        named
            .or_else(|| addresses.find_map(|address| self.by_address.get(address.as_str())))
            .copied()
    }
}

/// Whether a pod serves the port of a slice. The pod must declare the port, or declare no port at
/// all.
fn has_port(pod: &Pod, port: &EndpointPort) -> bool {
    let slice_port = (
        port.port.unwrap_or(0),
        port.protocol.as_deref().unwrap_or("TCP"),
    );
    let mut declared = declared_ports(pod).peekable();
    declared.peek().is_none() || declared.any(|declared| declared == slice_port)
}

fn mismatch(
    objects: &Objects,
    slice: &Object<EndpointSlice>,
    port: &EndpointPort,
    pod: &Object<Pod>,
    pod_count: usize,
) -> Diagnostic {
    let name = port.name.as_deref().unwrap_or_default();
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let number = port.port.unwrap_or(0);
    let labels = slice.value.metadata.labels.as_ref();
    let service = labels.and_then(|labels| labels.get(SERVICE_NAME));
    let service = service.and_then(|service| objects.service(&slice.namespace, service));
    let ports = service.and_then(|service| service.value.spec.as_ref()?.ports.as_ref());
    let index = ports.into_iter().flatten().position(|port| {
        port.name.as_deref().unwrap_or_default() == name
            && port.protocol.as_deref().unwrap_or("TCP") == protocol
    });
    let from = match (service, ports.zip(index)) {
        (Some(service), Some((ports, index))) => format!(
            "port {} of service `{}/{}` forwards",
            ports[index].port, service.namespace, service.name
        ),
        _ => format!(
            "EndpointSlice `{}/{}` forwards",
            slice.namespace, slice.name
        ),
    };
    let more = match pod_count {
        1 => String::new(),
        many => format!(" and {} more", many - 1),
    };
    let declared: Vec<String> = declared_ports(&pod.value)
        .map(|(port, protocol)| format!("{port}/{protocol}"))
        .collect();
    let declared = format_list(declared.iter().map(String::as_str));
    let warning = Diagnostic::warning(format!(
        "{from} to {number}/{protocol}, which pod `{}/{}`{more} does not declare; the pod refuses it",
        pod.namespace, pod.name
    ))
    .with_help(format!(
        "the pod declares {declared}; a pod without declared ports serves every port"
    ));
    let slice_span = slice
        .tree
        .as_ref()
        .map(|tree| tree.nearest(crate::path!["ports"]).head_span());
    let service_span = service.zip(index).and_then(|(service, index)| {
        let port = service
            .tree
            .as_ref()?
            .node_at(crate::path!["spec", "ports", index])?;
        Some(port.key_span("targetPort").unwrap_or(port.head_span()))
    });
    let pod_span = pod.tree.as_ref();
    let pod_span =
        pod_span.map(|tree| tree.nearest(crate::path!["spec", "containers"]).head_span());
    let warning = match slice_span.or(service_span) {
        Some(span) => warning.with_position(span, "forwards to this port"),
        None => warning,
    };
    match pod_span {
        Some(span) => warning.with_related(span, "the pod's containers"),
        None => warning,
    }
}
