//! Reports fields of Kubernetes objects that affect packets in a cluster but that svclab ignores.
//! Each gives an error, or a warning that the field has no effect.
//!
//! `run/fields_tests` tests the treatment of every field of these objects.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};

use crate::lab::LabSpec;
use crate::objects::defaults::family_name;
use crate::objects::endpoints::{MANAGED_BY, SERVICE_NAME, has_proportional_hints};
use crate::objects::{Object, Objects};
use crate::sink::Sink;
use crate::yaml::tree::{PathSegment, Tree};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;
use svclab_rules::objects::NODE_PORTS;

/// Name for `hostPort` of pods in `notModelled`.
const HOST_PORT: &str = "hostPort";

pub(crate) fn check_fields(spec: &LabSpec, objects: &Objects, sink: &mut Sink) {
    for node in &objects.nodes {
        self::check_node(node, sink);
    }
    // Pods of a workload have the same specification.
    let mut known = HashSet::new();
    for pod in &objects.pods {
        let written = pod.tree.as_ref().and_then(|tree| tree.get("spec"));
        if written.is_some_and(|written| !known.insert(written.span)) {
            continue;
        }
        check_host_ports(spec, pod, sink);
        self::check_pod(pod, sink);
    }
    let has_v6 = has_v6_address(objects);
    for service in &objects.services {
        self::check_service(service, has_v6, sink);
        if has_proportional_hints(&service.value) && has_derived_slices(objects, service) {
            warn(
                service,
                crate::path!["metadata", "annotations"],
                &format!(
                    "the endpoints of service `{}` get no zone hints: svclab does not assign \
                     endpoints to zones",
                    full_name(service)
                ),
                "add the EndpointSlices of the cluster, with their hints",
                sink,
            );
        }
    }
    warn_external_names(objects, sink);
    check_slices(objects, sink);
}

/// Warns once about all services of type `ExternalName`: they are DNS names without addresses.
fn warn_external_names(objects: &Objects, sink: &mut Sink) {
    let mut services = objects.services.iter().filter(|service| {
        let spec = service.value.spec.as_ref();
        spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName")
    });
    let Some(first) = services.next() else {
        return;
    };
    let more = match services.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    warn(
        first,
        crate::path!["spec", "type"],
        &format!(
            "no address for service `{}`{more}: an `ExternalName` service is a DNS name; its \
             endpoints are ignored",
            full_name(first)
        ),
        "add the machine that the name resolves to under `hosts`, and probe its address",
        sink,
    );
}

/// Returns `NAMESPACE/NAME`.
pub(crate) fn full_name<T>(object: &Object<T>) -> String {
    format!("{}/{}", object.namespace, object.name)
}

/// Returns the span of an object's field, or of its nearest written ancestor.
pub(crate) fn field_span<T>(object: &Object<T>, path: &[PathSegment]) -> Option<Span> {
    let tree: &Tree = object.tree.as_ref()?;
    let node = tree.nearest(path);
    Some(match (tree.node_at(path), path.split_last()) {
        (Some(_), Some((PathSegment::Key(key), parent))) => {
            let key = tree.nearest(parent).key_span(key);
            key.unwrap_or_else(|| node.head_span())
        }
        _ => node.head_span(),
    })
}

pub(crate) fn with_field_span<T>(
    diagnostic: Diagnostic,
    object: &Object<T>,
    path: &[PathSegment],
) -> Diagnostic {
    match field_span(object, path) {
        Some(span) => diagnostic.with_position(span, ""),
        None => diagnostic,
    }
}

fn warn<T>(object: &Object<T>, path: &[PathSegment], message: &str, help: &str, sink: &mut Sink) {
    sink.push(with_field_span(
        Diagnostic::warning(message).with_help(help),
        object,
        path,
    ));
}

fn check_node(node: &Object<k8s_openapi::api::core::v1::Node>, sink: &mut Sink) {
    let status = node.value.status.as_ref();
    let mut conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    if conditions.any(|condition| condition.type_ == "Ready" && condition.status != "True") {
        warn(
            node,
            crate::path!["status", "conditions"],
            &format!(
                "node `{}` is not ready, but svclab builds it as a running node",
                node.name
            ),
            "remove everything that does not run on the node",
            sink,
        );
    }
    let mut families = BTreeSet::new();
    let addresses = status.and_then(|status| status.addresses.as_ref());
    for (index, address) in addresses.into_iter().flatten().enumerate() {
        let Some(ip) = address.address.parse::<IpAddr>().ok() else {
            continue;
        };
        if address.type_ == "InternalIP" && !families.insert(family_name(ip)) {
            warn(
                node,
                crate::path!["status", "addresses", index],
                &format!(
                    "node `{}` does not get its additional {} address {ip}",
                    node.name,
                    family_name(ip)
                ),
                "svclab uses the first InternalIP of each family, like kube-proxy",
                sink,
            );
        }
    }
}

/// Reports the host ports of a pod (`hostPort`), which the `portmap` plugin would forward to the
/// pod.
fn check_host_ports(spec: &LabSpec, pod: &Object<Pod>, sink: &mut Sink) {
    let Some(pod_spec) = &pod.value.spec else {
        return;
    };
    // For a pod on the node's network, the host port is the container's port.
    if pod_spec.host_network == Some(true) {
        return;
    }
    let init = pod_spec.init_containers.iter().flatten();
    let lists = [
        (
            "containers",
            pod_spec.containers.iter().enumerate().collect::<Vec<_>>(),
        ),
        ("initContainers", init.enumerate().collect()),
    ];
    for (list, containers) in lists {
        for (container_index, container) in containers {
            for (port_index, port) in container.ports.iter().flatten().enumerate() {
                let Some(number) = port.host_port.filter(|number| *number != 0) else {
                    continue;
                };
                let message = format!(
                    "`hostPort: {number}` of pod `{}` is not modelled: no rule forwards the node's port to the pod",
                    full_name(pod)
                );
                let is_listed = spec.not_modelled.iter().any(|listed| listed == HOST_PORT);
                let diagnostic = if is_listed {
                    Diagnostic::warning(message)
                } else {
                    Diagnostic::error(message).with_help(format!(
                        "remove it, write the rule under `nodes: {{NODE: {{byHand: {{iptables: \
                         …}}}}}}`, or write `notModelled: [{HOST_PORT}]` in the lab's spec"
                    ))
                };
                let path = crate::path![
                    "spec",
                    list,
                    container_index,
                    "ports",
                    port_index,
                    "hostPort"
                ];
                sink.push(with_field_span(diagnostic, pod, path));
            }
        }
    }
}

fn check_pod(pod: &Object<Pod>, sink: &mut Sink) {
    let context = pod
        .value
        .spec
        .as_ref()
        .and_then(|spec| spec.security_context.as_ref());
    let sysctls = context.and_then(|context| context.sysctls.as_ref());
    if sysctls.is_some_and(|sysctls| !sysctls.is_empty()) {
        warn(
            pod,
            crate::path!["spec", "securityContext", "sysctls"],
            &format!(
                "svclab does not set the sysctls of pod `{}`",
                full_name(pod)
            ),
            "svclab sets only sysctls of nodes, under `nodes` in the lab's spec",
            sink,
        );
    }
    let annotations = pod.value.metadata.annotations.as_ref();
    let networks = "k8s.v1.cni.cncf.io/networks";
    if annotations.is_some_and(|annotations| annotations.contains_key(networks)) {
        warn(
            pod,
            crate::path!["metadata", "annotations", networks],
            &format!(
                "pod `{}` gets no interface for its additional networks",
                full_name(pod)
            ),
            "svclab builds only the first interface of a pod",
            sink,
        );
    }
}

fn check_service(service: &Object<Service>, has_v6: bool, sink: &mut Sink) {
    let Some(spec) = &service.value.spec else {
        return;
    };
    let name = full_name(service);
    let field = |name: &str| crate::path!["spec", name].to_vec();
    let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
    if kind == "ExternalName" {
        return;
    }
    let listed = spec.cluster_ips.iter().flatten();
    let addresses: Vec<&String> = spec
        .cluster_ip
        .iter()
        .chain(listed)
        .filter(|address| !address.is_empty())
        .collect();
    if addresses.is_empty() {
        warn(
            service,
            &field("clusterIP"),
            &format!("service `{name}` has no `clusterIP`, so kube-proxy ignores it"),
            "write the address that the API server assigned, or `clusterIP: None`",
            sink,
        );
        return;
    }
    if spec.cluster_ip.as_deref() == Some("None") {
        return;
    }
    let families: BTreeSet<&str> = addresses
        .iter()
        .filter_map(|address| address.parse().ok())
        .map(family_name)
        .collect();
    let wanted = spec.ip_families.iter().flatten();
    let known = wanted.filter(|wanted| matches!(wanted.as_str(), "IPv4" | "IPv6"));
    for lacking in known.filter(|wanted| !families.contains(wanted.as_str())) {
        warn(
            service,
            &field("ipFamilies"),
            &format!("service `{name}` gets no {lacking} address: `clusterIPs` contains none"),
            "write the addresses of both families in `clusterIPs`",
            sink,
        );
    }
    if families.contains("IPv6") && !has_v6 {
        warn(
            service,
            &field("clusterIPs"),
            &format!("service `{name}` has an IPv6 address, but no node or pod of the lab has one"),
            "add IPv6 addresses and podCIDRs to the nodes",
            sink,
        );
    }
    if spec
        .load_balancer_ip
        .as_ref()
        .is_some_and(|ip| !ip.is_empty())
        && svclab_rules::objects::Service::from(service.value.as_ref())
            .ingress
            .is_empty()
    {
        warn(
            service,
            &field("loadBalancerIP"),
            &format!(
                "`loadBalancerIP` of service `{name}` has no effect: it is a request to the cloud \
                 provider"
            ),
            "write the address in `status: {loadBalancer: {ingress: [{ip: …}]}}`",
            sink,
        );
    }
    let has_external_ips = spec.external_ips.iter().flatten().next().is_some();
    if kind == "ClusterIP" && !has_external_ips && spec.external_traffic_policy.is_some() {
        // The API server refuses it (Kubernetes v1.36, `pkg/apis/core/validation/validation.go`,
        // `validateServiceExternalTrafficPolicy`), and drops it when a patch changes the type.
        warn(
            service,
            &field("externalTrafficPolicy"),
            &format!(
                "`externalTrafficPolicy` of service `{name}` has no effect: a service of type \
                 ClusterIP is reachable from outside only by `externalIPs`"
            ),
            "use `internalTrafficPolicy`, or type NodePort or LoadBalancer",
            sink,
        );
    }
    let has_node_ports = kind == "NodePort"
        || kind == "LoadBalancer" && spec.allocate_load_balancer_node_ports != Some(false);
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        self::check_port(service, index, port, (kind, has_node_ports), sink);
    }
}

fn check_port(
    service: &Object<Service>,
    index: usize,
    port: &ServicePort,
    (kind, has_node_ports): (&str, bool),
    sink: &mut Sink,
) {
    let number = port.port;
    let name = full_name(service);
    if port.protocol.as_deref() == Some("SCTP") {
        warn(
            service,
            crate::path!["spec", "ports", index, "protocol"],
            &format!(
                "port {number} of service `{name}` uses SCTP, which the servers and probes of \
                 svclab do not support"
            ),
            "use TCP, UDP or ping",
            sink,
        );
    }
    let node_port = port.node_port.filter(|node_port| *node_port != 0);
    let path = crate::path!["spec", "ports", index, "nodePort"];
    if let Some(node_port) = node_port {
        // kube-proxy serves any node port. The API server refuses these (Kubernetes v1.36,
        // `pkg/apis/core/validation/validation.go`, `ValidateService`;
        // `pkg/registry/core/service/portallocator/allocator.go`, `Allocate`).
        if kind == "ClusterIP" {
            warn(
                service,
                path,
                &format!("service `{name}` has a `nodePort`, but its type is ClusterIP"),
                "add `type: NodePort`; the API server refuses this service",
                sink,
            );
        } else if u16::try_from(node_port).is_ok_and(|number| !NODE_PORTS.contains(&number)) {
            warn(
                service,
                path,
                &format!(
                    "nodePort {node_port} of service `{name}` is outside {} to {}",
                    NODE_PORTS.start(),
                    NODE_PORTS.end()
                ),
                "the API server refuses it, unless its flag --service-node-port-range permits it",
                sink,
            );
        }
    }
    if has_node_ports && node_port.is_none() {
        warn(
            service,
            crate::path!["spec", "ports", index, "nodePort"],
            &format!("port {number} of service `{name}` has no `nodePort`, so no node forwards it"),
            "write the port that the API server assigned, or `allocateLoadBalancerNodePorts: \
             false`",
            sink,
        );
    }
}

/// Warns about slices that belong to no service of the lab.
fn check_slices(objects: &Objects, sink: &mut Sink) {
    for slice in &objects.endpoint_slices {
        let labels = slice.value.metadata.labels.as_ref();
        let service = labels.and_then(|labels| labels.get(SERVICE_NAME));
        let message = match service {
            None => format!(
                "EndpointSlice `{}` belongs to no service: it has no label `{SERVICE_NAME}`",
                full_name(slice)
            ),
            Some(service) if objects.service(&slice.namespace, service).is_none() => format!(
                "EndpointSlice `{}` belongs to service `{}/{service}`, which does not exist",
                full_name(slice),
                slice.namespace
            ),
            Some(_) => continue,
        };
        warn(
            slice,
            crate::path!["metadata", "labels"],
            &message,
            "remove it, or name a service of the lab; its endpoints receive no packets",
            sink,
        );
    }
}

/// Whether svclab derived the slices of a service, instead of reading them from the lab.
fn has_derived_slices(objects: &Objects, service: &Object<Service>) -> bool {
    objects
        .slices_of(&service.namespace, &service.name)
        .any(|slice| {
            let labels = slice.value.metadata.labels.as_ref();
            labels
                .and_then(|labels| labels.get(MANAGED_BY))
                .is_some_and(|by| by == "svclab")
        })
}

fn has_v6_address(objects: &Objects) -> bool {
    let is_v6 = |text: &String| text.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
    let nodes = objects
        .nodes
        .iter()
        .filter_map(|node| node.value.status.as_ref());
    let mut node_addresses = nodes.flat_map(|status| status.addresses.iter().flatten());
    let pods = objects
        .pods
        .iter()
        .filter_map(|pod| pod.value.status.as_ref());
    let mut pod_addresses = pods.flat_map(|status| status.pod_ips.iter().flatten());
    node_addresses.any(|address| is_v6(&address.address)) || pod_addresses.any(|ip| is_v6(&ip.ip))
}
