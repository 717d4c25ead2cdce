//! Faults in fields of Kubernetes objects, with generated rules and with a real kube-proxy that
//! reads the wrong objects.

use serde_json::{Value, json};

use super::components::{cluster_cidr, patched};
use super::{IPTABLES_OR_IPVS, Kind, kind};
use crate::draw::{Draw, Drawn};
use crate::fault::{Change, Culprit, Fault, Shown};
use crate::mode::Mode;

const AREA: &str = "object fields";

pub(super) const KINDS: [Kind; 20] = [
    kind("field-external-policy", AREA, Mode::ALL, external_policy),
    kind("field-internal-policy", AREA, Mode::ALL, internal_policy),
    kind("field-session-affinity", AREA, Mode::ALL, affinity),
    kind("field-source-ranges", AREA, Mode::ALL, source_ranges),
    kind("field-target-port", AREA, Mode::ALL, target_port),
    kind("field-port", AREA, Mode::ALL, port),
    kind("field-node-port", AREA, Mode::ALL, node_port),
    kind("field-protocol", AREA, Mode::ALL, protocol),
    kind("field-selector", AREA, Mode::ALL, selector),
    kind("field-type", AREA, Mode::ALL, service_type),
    kind("field-balancer-address", AREA, Mode::ALL, balancer_address),
    kind("field-proxy-name", AREA, Mode::ALL, proxy_name),
    kind("field-container-port", AREA, Mode::ALL, container_port),
    kind("field-pod-labels", AREA, Mode::ALL, pod_labels),
    kind("field-pod-not-ready", AREA, Mode::ALL, not_ready),
    kind("field-slice-address", AREA, Mode::ALL, slice_address),
    real("real-proxy-target-port", target_port),
    real("real-proxy-external-policy", external_policy),
    real("real-proxy-slice-address", slice_address),
    real("real-proxy-cluster-cidr", |_| {
        Ok(cluster_cidr(&json!("10.77.0.0/16")))
    }),
];

const fn real(name: &'static str, draw: fn(&mut Draw<'_>) -> Drawn) -> Kind {
    Kind {
        real_proxy: true,
        ..kind(name, "real kube-proxy", IPTABLES_OR_IPVS, draw)
    }
}

fn name(object: &Value) -> String {
    let part = |field: &str| {
        object["metadata"][field]
            .as_str()
            .unwrap_or("default")
            .to_owned()
    };
    format!("{}/{}", part("namespace"), part("name"))
}

/// Chooses a service with a property.
fn service(draw: &mut Draw<'_>, wanted: fn(&Value) -> bool) -> Result<Value, String> {
    let services = draw
        .state
        .objects("Service")
        .filter(|object| wanted(&object["spec"]));
    draw.pick(services.cloned().collect(), "such service")
}

/// Adds the addresses and node ports of a service, which are its only names in dumps of ipvs mode.
fn or_addresses(fault: Fault, service: &Value) -> Fault {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let ingress = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
    let addresses = [&service["spec"]["clusterIP"], ingress];
    let mut names: Vec<String> = addresses.into_iter().filter_map(text).collect();
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    names.extend(
        ports
            .filter_map(|port| port["nodePort"].as_u64())
            .map(|port| port.to_string()),
    );
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    fault.in_rules(&names)
}

/// Changes a field of a service. Answers may also name its rules by the service's name.
fn service_field(object: &Value, names: &[&str], spec: &Value) -> Fault {
    let owner = name(object);
    let summary = format!("Service {owner}: {spec}");
    let culprit = Culprit::field(&owner, names);
    let fault = patched(
        &format!("Service/{owner}"),
        &json!({"spec": spec}),
        &summary,
        culprit,
    );
    or_addresses(fault, object)
}

/// Changes a field of the only port of a service.
fn port_field(object: &Value, field: &str, value: &Value) -> Fault {
    let mut ports = object["spec"]["ports"].clone();
    ports[0][field] = value.clone();
    let text = value.to_string();
    service_field(
        object,
        &[field, text.trim_matches('"')],
        &json!({"ports": ports}),
    )
}

fn external_policy(draw: &mut Draw<'_>) -> Drawn {
    let object = service(draw, |spec| spec["type"] == "NodePort")?;
    Ok(service_field(
        &object,
        &["externalTrafficPolicy", "no local endpoints"],
        &json!({"externalTrafficPolicy": "Local"}),
    ))
}

fn internal_policy(draw: &mut Draw<'_>) -> Drawn {
    let object = service(draw, |_| true)?;
    Ok(service_field(
        &object,
        &["internalTrafficPolicy", "no local endpoints"],
        &json!({"internalTrafficPolicy": "Local"}),
    ))
}

fn affinity(draw: &mut Draw<'_>) -> Drawn {
    let object = service(draw, |spec| spec["selector"]["app"] == "web")?;
    Ok(service_field(
        &object,
        &["sessionAffinity", "affinity"],
        &json!({"sessionAffinity": "ClientIP"}),
    ))
}

fn source_ranges(draw: &mut Draw<'_>) -> Drawn {
    let object = service(draw, |spec| spec["type"] == "LoadBalancer")?;
    let range = format!("198.18.{}.0/24", draw.random.below(250));
    Ok(service_field(
        &object,
        &[
            "loadBalancerSourceRanges",
            "source range*",
            &range,
            // Set of kube-proxy in ipvs mode (kubernetes v1.34, `pkg/proxy/ipvs/ipset.go`).
            "KUBE-LOAD-BALANCER-SOURCE-CIDR",
        ],
        &json!({"loadBalancerSourceRanges": [range]}),
    ))
}

fn target_port(draw: &mut Draw<'_>) -> Drawn {
    let object = service(draw, |_| true)?;
    Ok(port_field(
        &object,
        "targetPort",
        &json!(9000 + draw.random.below(900)),
    ))
}

fn port(draw: &mut Draw<'_>) -> Drawn {
    let object = service(draw, |spec| spec["type"].is_null())?;
    Ok(port_field(
        &object,
        "port",
        &json!(7000 + draw.random.below(900)),
    ))
}

fn node_port(draw: &mut Draw<'_>) -> Drawn {
    let object = service(draw, |spec| spec["type"] == "NodePort")?;
    Ok(port_field(
        &object,
        "nodePort",
        &json!(31_000 + draw.random.below(900)),
    ))
}

fn protocol(draw: &mut Draw<'_>) -> Drawn {
    let object = service(draw, |spec| spec["type"].is_null())?;
    let other = match object["spec"]["ports"][0]["protocol"].as_str() {
        Some("UDP") => "TCP",
        _ => "UDP",
    };
    Ok(port_field(&object, "protocol", &json!(other)))
}

fn selector(draw: &mut Draw<'_>) -> Drawn {
    let object = service(draw, |_| true)?;
    Ok(service_field(
        &object,
        &["selector", "no endpoints", "has no endpoints"],
        &json!({"selector": {"app": "nothing"}}),
    ))
}

fn service_type(draw: &mut Draw<'_>) -> Drawn {
    let object = service(draw, |spec| spec["type"] == "NodePort")?;
    let mut ports = object["spec"]["ports"].clone();
    if let Some(port) = ports[0].as_object_mut() {
        port.remove("nodePort");
    }
    Ok(service_field(
        &object,
        &["type", "nodePort", "node port"],
        &json!({"type": "ClusterIP", "ports": ports}),
    ))
}

fn balancer_address(draw: &mut Draw<'_>) -> Drawn {
    let object = service(draw, |spec| spec["type"] == "LoadBalancer")?;
    let owner = name(&object);
    // Probes of `lb/NAME` use the address of the status. With this mode, kube-proxy leaves the
    // address to the balancer.
    let ip = object["status"]["loadBalancer"]["ingress"][0]["ip"].clone();
    let merge = json!({"status": {"loadBalancer": {"ingress": [{"ip": ip, "ipMode": "Proxy"}]}}});
    let culprit = Culprit::field(&owner, &["ipMode", "status.loadBalancer"]);
    let fault = patched(
        &format!("Service/{owner}"),
        &merge,
        &format!("Service {owner}: ipMode: Proxy"),
        culprit,
    );
    Ok(or_addresses(fault, &object))
}

fn proxy_name(draw: &mut Draw<'_>) -> Drawn {
    let object = service(draw, |_| true)?;
    let owner = name(&object);
    let label = "service.kubernetes.io/service-proxy-name";
    let merge = json!({"metadata": {"labels": {label: "other"}}});
    let culprit = Culprit::field(&owner, &["service-proxy-name", "labels"]);
    let fault = patched(
        &format!("Service/{owner}"),
        &merge,
        &format!("Service {owner}: label {label}"),
        culprit,
    );
    Ok(or_addresses(fault, &object))
}

/// Chooses a pod that serves a port.
fn server(draw: &mut Draw<'_>) -> Result<Value, String> {
    let pods = draw
        .state
        .objects("Pod")
        .filter(|object| object["metadata"]["labels"].is_object());
    draw.pick(pods.cloned().collect(), "pod that serves")
}

fn pod_address(pod: &Value) -> &str {
    pod["status"]["podIP"].as_str().unwrap_or_default()
}

fn container_port(draw: &mut Draw<'_>) -> Drawn {
    let object = server(draw)?;
    let owner = name(&object);
    let mut containers = object["spec"]["containers"].clone();
    let port = 9000 + draw.random.below(900);
    containers[0]["ports"][0]["containerPort"] = json!(port);
    let culprit = Culprit::field(
        &owner,
        &[
            "containerPort",
            "containers",
            &port.to_string(),
            "does not listen",
            "no server",
        ],
    );
    let summary = format!("Pod {owner}: containerPort: {port}");
    Ok(patched(
        &format!("Pod/{owner}"),
        &json!({"spec": {"containers": containers}}),
        &summary,
        culprit,
    )
    .outside_dumps())
}

fn pod_labels(draw: &mut Draw<'_>) -> Drawn {
    let object = server(draw)?;
    let owner = name(&object);
    let culprit = Culprit::field(&owner, &["labels", "no endpoints"]);
    let culprit = culprit.or_exact([&format!("label the pod {owner}")]);
    let address = pod_address(&object);
    let merge = json!({"metadata": {"labels": {"app": "other"}}});
    Ok(patched(
        &format!("Pod/{owner}"),
        &merge,
        &format!("Pod {owner}: other label"),
        culprit,
    )
    .in_rules(&[address, &format!("*{address}")]))
}

fn not_ready(draw: &mut Draw<'_>) -> Drawn {
    let object = server(draw)?;
    let owner = name(&object);
    let culprit = Culprit::field(&owner, &["conditions", "Ready", "no endpoints"]);
    let merge = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    Ok(patched(
        &format!("Pod/{owner}"),
        &merge,
        &format!("Pod {owner}: not ready"),
        culprit,
    )
    .in_rules(&[pod_address(&object)]))
}

/// Replaces the endpoints of a service by a slice with a wrong address.
fn slice_address(draw: &mut Draw<'_>) -> Drawn {
    let object = service(draw, |spec| {
        spec["selector"]["app"] == "db" || spec["selector"]["app"] == "echo"
    })?;
    let owner = name(&object);
    let service = object["metadata"]["name"].clone();
    let wrong = format!("10.244.2.{}", 100 + draw.random.below(100));
    let port = &object["spec"]["ports"][0];
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "stale", "namespace": object["metadata"]["namespace"],
            "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": port["name"], "port": port["targetPort"], "protocol": "TCP"}],
        "endpoints": [{"addresses": [wrong], "nodeName": "node-2", "conditions": {"ready": true}}],
    });
    let fault = Fault {
        summary: format!("EndpointSlice of {owner}: address {wrong}"),
        change: Change::Patches(vec![
            json!({"patch": format!("Service/{owner}"), "merge": {"spec": {"selector": null}}}),
            json!({"add": slice}),
        ]),
        culprits: vec![
            Culprit::field(&owner, &[wrong.as_str(), "EndpointSlice"])
                .or_exact([&wrong, "EndpointSlice"]),
        ],
        shown: Shown::InDump,
    };
    Ok(or_addresses(fault, &object))
}
