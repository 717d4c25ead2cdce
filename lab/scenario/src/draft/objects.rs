//! Renders the objects of a cluster with the fields that svclab uses.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::flow_style::flow;
use crate::lab::reference::ObjectKind;
use crate::objects::endpoints::{declared_ports, serving_containers};
use crate::objects::{Object, Objects, has_address};
use svclab_rules::objects::EndpointSlice;
use svclab_ruleset::Protocol;

/// Pod with its addresses and ports.
#[derive(Debug, Clone)]
pub(super) struct ImportedPod {
    pub namespace: String,
    pub name: String,
    pub node: String,
    pub ips: Vec<IpAddr>,
    pub host_network: bool,
    labels: Option<BTreeMap<String, String>>,
    is_terminating: bool,
    is_ready: bool,
    /// Ports of the containers, in the format of the API.
    ports: Vec<Value>,
}

impl ImportedPod {
    /// Returns the name of the pod as the source of a probe.
    pub(super) fn reference(&self) -> String {
        format!("pod/{}/{}", self.namespace, self.name)
    }
}

/// Returns the pods that run on one of the nodes, and adds notes about the others.
pub(super) fn imported_pods(objects: &Objects, notes: &mut Vec<String>) -> Vec<ImportedPod> {
    let slices: Vec<EndpointSlice> = objects
        .endpoint_slices
        .iter()
        .map(|slice| EndpointSlice::from(&*slice.value))
        .collect();
    let mut pods = Vec::new();
    let (mut without_address, mut without_node, mut host_ports) = (0_usize, 0_usize, 0_usize);
    for object in &objects.pods {
        let Some(mut pod) = import_pod(object) else {
            without_address += 1;
            continue;
        };
        let Some(node) = objects.node(&pod.node) else {
            without_node += 1;
            continue;
        };
        // The pod of a Fargate node has the address of the node.
        pod.host_network |= pod.ips.iter().any(|ip| has_address(&node.value, *ip));
        let has_host_port = |port: &&core::ContainerPort| port.host_port.is_some();
        let containers = object.value.spec.iter().flat_map(|spec| &spec.containers);
        let ports = containers.flat_map(|container| container.ports.iter().flatten());
        host_ports +=
            usize::from(!pod.host_network && ports.clone().any(|port| has_host_port(&port)));
        add_endpoint_ports(&mut pod, &object.value, &slices);
        pods.push(pod);
    }
    for (count, reason) in [
        (without_address, "not running, or without an address"),
        (without_node, "on a node that is not among the objects"),
    ] {
        if count > 0 {
            notes.push(format!("not used: {count} of kind Pod: {reason}"));
        }
    }
    if host_ports > 0 {
        notes.push(format!(
            "not modelled: hostPort, of {host_ports} of kind Pod"
        ));
    }
    pods
}

/// Returns a pod with the fields that svclab uses. `None` if the pod does not run or has no address.
fn import_pod(object: &Object<core::Pod>) -> Option<ImportedPod> {
    let pod = &*object.value;
    let status = pod.status.as_ref()?;
    if status
        .phase
        .as_deref()
        .is_some_and(|phase| phase != "Running")
    {
        return None;
    }
    let spec = pod.spec.as_ref()?;
    let listed = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
    let mut ips = Vec::new();
    for ip in status.pod_ip.as_deref().into_iter().chain(listed) {
        if let Ok(ip) = ip.parse()
            && !ips.contains(&ip)
        {
            ips.push(ip);
        }
    }
    if ips.is_empty() {
        return None;
    }
    let ready = status.conditions.iter().flatten();
    let mut ready = ready.filter(|condition| condition.type_ == "Ready");
    let ports = serving_containers(pod).flat_map(|container| container.ports.iter().flatten());
    Some(ImportedPod {
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        node: spec.node_name.clone()?,
        ips,
        host_network: spec.host_network == Some(true),
        labels: pod.metadata.labels.clone(),
        is_terminating: pod.metadata.deletion_timestamp.is_some(),
        is_ready: ready.all(|condition| condition.status == "True"),
        ports: ports.map(container_port).collect(),
    })
}

fn container_port(port: &core::ContainerPort) -> Value {
    let mut value = Map::new();
    if let Some(name) = &port.name {
        value.insert("name".to_owned(), json!(name));
    }
    value.insert("containerPort".to_owned(), json!(port.container_port));
    if let Some(protocol) = port
        .protocol
        .as_deref()
        .filter(|protocol| *protocol != "TCP")
    {
        value.insert("protocol".to_owned(), json!(protocol));
    }
    Value::Object(value)
}

/// Adds the ports of a pod's endpoints that its containers do not declare. Kubernetes does not
/// require the declaration, but in a lab, a pod with declared ports serves no other port.
fn add_endpoint_ports(pod: &mut ImportedPod, object: &core::Pod, slices: &[EndpointSlice]) {
    if pod.ports.is_empty() {
        return;
    }
    let mut declared: Vec<(i32, String)> = declared_ports(object)
        .map(|(port, protocol)| (port, protocol.to_owned()))
        .collect();
    let own = slices.iter().filter(|slice| {
        let mut addresses = slice
            .endpoints
            .iter()
            .flat_map(|endpoint| &endpoint.addresses);
        slice.namespace == pod.namespace && addresses.any(|address| pod.ips.contains(address))
    });
    for port in own.flat_map(|slice| &slice.ports) {
        let protocol = protocol_name(port.protocol);
        let key = (i32::from(port.port), protocol.to_owned());
        if !declared.contains(&key) {
            pod.ports.push(match port.protocol {
                Protocol::Tcp => json!({"containerPort": port.port}),
                _ => json!({"containerPort": port.port, "protocol": protocol}),
            });
            declared.push(key);
        }
    }
}

/// Returns the name of a protocol in objects.
fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    }
}

/// Appends all objects to the text of a lab.
pub(super) fn render_objects(text: &mut String, objects: &Objects, pods: &[ImportedPod]) {
    for node in &objects.nodes {
        append(text, ObjectKind::Node, &node_fields(&node.value));
    }
    for pod in pods {
        append(text, ObjectKind::Pod, &pod_fields(pod));
    }
    for service in &objects.services {
        append(text, ObjectKind::Service, &service_fields(&service.value));
    }
    for slice in objects
        .endpoint_slices
        .iter()
        .filter(|slice| slice.tree.is_some())
    {
        let whole = to_map(&*slice.value);
        let mut fields = Map::new();
        fields.insert(
            "metadata".to_owned(),
            metadata(&slice.value.metadata, |_| true),
        );
        for field in ["addressType", "ports", "endpoints"] {
            copy(&whole, field, &mut fields);
        }
        append(text, ObjectKind::EndpointSlice, &fields);
    }
    for cidr in &objects.service_cidrs {
        let mut fields = Map::new();
        fields.insert(
            "metadata".to_owned(),
            metadata(&cidr.value.metadata, |_| false),
        );
        copy(&to_map(&*cidr.value), "spec", &mut fields);
        append(text, ObjectKind::ServiceCidr, &fields);
    }
}

/// Appends one object, with one line for each field.
fn append(text: &mut String, kind: ObjectKind, fields: &Map<String, Value>) {
    let _ = write!(
        text,
        "---\napiVersion: {}\nkind: {kind}\n",
        kind.api_version()
    );
    for (field, value) in fields {
        let _ = writeln!(text, "{field}: {}", flow(value));
    }
}

fn to_map(value: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn copy(from: &Map<String, Value>, field: &str, to: &mut Map<String, Value>) {
    if let Some(value) = from.get(field) {
        to.insert(field.to_owned(), value.clone());
    }
}

/// Returns name, namespace, and the labels that are used.
fn metadata(metadata: &ObjectMeta, is_used: impl Fn(&str) -> bool) -> Value {
    let mut fields = Map::new();
    fields.insert("name".to_owned(), json!(metadata.name));
    if let Some(namespace) = &metadata.namespace {
        fields.insert("namespace".to_owned(), json!(namespace));
    }
    let labels = metadata.labels.iter().flatten();
    let labels: Map<String, Value> = labels
        .filter(|(label, _)| is_used(label))
        .map(|(label, value)| (label.clone(), json!(value)))
        .collect();
    if !labels.is_empty() {
        fields.insert("labels".to_owned(), Value::Object(labels));
    }
    Value::Object(fields)
}

fn node_fields(node: &core::Node) -> Map<String, Value> {
    let mut fields = Map::new();
    let is_used = |label: &str| label.starts_with("topology.kubernetes.io/");
    fields.insert("metadata".to_owned(), metadata(&node.metadata, is_used));
    let whole = node.spec.as_ref().map(to_map).unwrap_or_default();
    let mut spec = Map::new();
    let networks = ["podCIDRs", "podCIDR"];
    if let Some(field) = networks
        .into_iter()
        .find(|field| whole.contains_key(*field))
    {
        copy(&whole, field, &mut spec);
        fields.insert("spec".to_owned(), Value::Object(spec));
    }
    let addresses = node
        .status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten());
    let addresses: Vec<Value> = addresses
        .filter(|address| address.type_ == "InternalIP")
        .map(|address| json!({"type": address.type_, "address": address.address}))
        .collect();
    fields.insert("status".to_owned(), json!({"addresses": addresses}));
    fields
}

fn pod_fields(pod: &ImportedPod) -> Map<String, Value> {
    let mut meta = json!({"name": pod.name, "namespace": pod.namespace});
    if let Some(labels) = pod.labels.as_ref().filter(|labels| !labels.is_empty()) {
        meta["labels"] = json!(labels);
    }
    if pod.is_terminating {
        meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    let mut container = json!({"name": "main"});
    if !pod.ports.is_empty() {
        container["ports"] = json!(pod.ports);
    }
    let mut spec = json!({"nodeName": pod.node, "containers": [container]});
    if pod.host_network {
        spec["hostNetwork"] = json!(true);
    }
    let mut status = json!({"podIP": pod.ips[0]});
    if pod.ips.len() > 1 {
        let ips: Vec<Value> = pod.ips.iter().map(|ip| json!({"ip": ip})).collect();
        status["podIPs"] = json!(ips);
    }
    if !pod.is_ready {
        status["conditions"] = json!([{"type": "Ready", "status": "False"}]);
    }
    let parts = [("metadata", meta), ("spec", spec), ("status", status)];
    parts
        .map(|(field, value)| (field.to_owned(), value))
        .into_iter()
        .collect()
}

fn service_fields(service: &core::Service) -> Map<String, Value> {
    let mut fields = Map::new();
    let is_used = |label: &str| label.starts_with("service.kubernetes.io/");
    let mut meta = metadata(&service.metadata, is_used);
    let annotations = service.metadata.annotations.iter().flatten();
    let annotations: Map<String, Value> = annotations
        .filter(|(annotation, _)| is_used(annotation))
        .map(|(annotation, value)| (annotation.clone(), json!(value)))
        .collect();
    if !annotations.is_empty() {
        meta["annotations"] = Value::Object(annotations);
    }
    fields.insert("metadata".to_owned(), meta);
    let mut spec = service.spec.as_ref().map(to_map).unwrap_or_default();
    // Defaults of the API server are not repeated.
    for (field, default) in [
        ("sessionAffinity", json!("None")),
        ("internalTrafficPolicy", json!("Cluster")),
        ("externalTrafficPolicy", json!("Cluster")),
        ("ipFamilyPolicy", json!("SingleStack")),
        ("allocateLoadBalancerNodePorts", json!(true)),
        ("clusterIPs", json!([spec.get("clusterIP")])),
        ("ipFamilies", json!(["IPv4"])),
        ("type", json!("ClusterIP")),
    ] {
        if spec.get(field) == Some(&default) {
            spec.remove(field);
        }
    }
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(port) = port.as_object_mut()
            && port.get("protocol") == Some(&json!("TCP"))
        {
            port.remove("protocol");
        }
    }
    fields.insert("spec".to_owned(), Value::Object(spec));
    let status = service.status.as_ref().map(to_map).unwrap_or_default();
    let balancer = status.get("loadBalancer");
    if let Some(balancer) = balancer.filter(|balancer| balancer.get("ingress").is_some()) {
        fields.insert("status".to_owned(), json!({"loadBalancer": balancer}));
    }
    fields
}
