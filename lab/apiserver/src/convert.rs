//! Converts objects between API versions: endpoint slices of v1beta1, and the `Endpoints` that the
//! endpoints controller would create.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

/// Topology label with the node of an endpoint, in versions without `nodeName`.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Topology label with the zone of an endpoint, in versions without `zone`.
const ZONE: &str = "topology.kubernetes.io/zone";
/// Label of a slice with the name of its service.
const SERVICE: &str = "kubernetes.io/service-name";

/// Converts a stored endpoint slice to an `api_version` of discovery.k8s.io.
///
/// A v1beta1 endpoint has its node and zone in `topology` (kubernetes v1.24.0,
/// `pkg/apis/discovery/v1beta1/conversion.go`). v1beta1 has `nodeName` from v1.20 on, but behind a
/// feature gate that was off. `topology` has the same value.
pub(super) fn to_version(object: &Value, api_version: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = json!(api_version);
    if api_version != "discovery.k8s.io/v1" {
        for_each_endpoint(&mut object, |endpoint| {
            let mut topology = match endpoint.remove("deprecatedTopology") {
                Some(Value::Object(topology)) => topology,
                _ => Map::new(),
            };
            for (field, label) in [("nodeName", HOSTNAME), ("zone", ZONE)] {
                if let Some(value) = endpoint.remove(field) {
                    topology.insert(label.to_owned(), value);
                }
            }
            if !topology.is_empty() {
                endpoint.insert("topology".to_owned(), Value::Object(topology));
            }
        });
    }
    object
}

/// Returns the name of the service that a slice belongs to. `None` without the label.
pub(super) fn service_name(slice: &Value) -> Option<&str> {
    slice["metadata"]["labels"][SERVICE].as_str()
}

/// Converts a slice of v1beta1 to v1, the version in which the store keeps slices.
pub(super) fn to_v1(object: &mut Value) {
    for_each_endpoint(object, |endpoint| {
        let Some(Value::Object(mut topology)) = endpoint.remove("topology") else {
            return;
        };
        for (field, label) in [("nodeName", HOSTNAME), ("zone", ZONE)] {
            if let Some(value) = topology.remove(label) {
                endpoint.entry(field).or_insert(value);
            }
        }
        if !topology.is_empty() {
            endpoint.insert("deprecatedTopology".to_owned(), Value::Object(topology));
        }
    });
}

fn for_each_endpoint(object: &mut Value, change: impl FnMut(&mut Map<String, Value>)) {
    let endpoints = object.get_mut("endpoints").and_then(Value::as_array_mut);
    endpoints
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
        .for_each(change);
}

/// Makes the `Endpoints` of services. Addresses of the slices are grouped by ports, and ready
/// addresses are separate from others.
///
/// A terminating endpoint is omitted, unless the service publishes addresses that are not ready
/// (kubernetes v1.18.2, `pkg/controller/endpoint/endpoints_controller.go`, `syncService`).
/// `Endpoints` have the labels of their service.
pub(super) fn make_endpoints<'a>(
    services: impl Iterator<Item = &'a Value>,
    slices: impl Iterator<Item = &'a Value>,
) -> Vec<Value> {
    let mut by_service: HashMap<(&str, &str), Vec<&Value>> = HashMap::new();
    for slice in slices {
        let namespace = slice["metadata"]["namespace"].as_str();
        if let (Some(namespace), Some(service)) = (namespace, service_name(slice)) {
            by_service
                .entry((namespace, service))
                .or_default()
                .push(slice);
        }
    }
    services
        .filter(|service| service.pointer("/spec/type") != Some(&json!("ExternalName")))
        .filter_map(|service| {
            let metadata_in = service.get("metadata")?;
            let (name, namespace) = (metadata_in.get("name")?, metadata_in.get("namespace")?);
            let service_slices = by_service.get(&(namespace.as_str()?, name.as_str()?));
            let service_slices = service_slices.into_iter().flatten().copied();
            let mut metadata = json!({"name": name, "namespace": namespace});
            if let Some(labels) = metadata_in.get("labels") {
                metadata["labels"] = labels.clone();
            }
            Some(json!({
                "kind": "Endpoints",
                "apiVersion": "v1",
                "metadata": metadata,
                "subsets": make_subsets(service_slices),
            }))
        })
        .collect()
}

fn make_subsets<'a>(slices: impl Iterator<Item = &'a Value>) -> Vec<Value> {
    /// Ready addresses, and other addresses.
    type Addresses = (Vec<Value>, Vec<Value>);
    let mut by_ports: BTreeMap<String, (Value, Addresses)> = BTreeMap::new();
    for slice in slices {
        let ports = slice.get("ports").cloned().unwrap_or(json!([]));
        let (_, (ready, not_ready)) = by_ports
            .entry(ports.to_string())
            .or_insert_with(|| (ports, Addresses::default()));
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let condition = |name: &str, default| {
                let value = endpoint.pointer(&format!("/conditions/{name}"));
                value.and_then(Value::as_bool).unwrap_or(default)
            };
            if condition("terminating", false) {
                continue;
            }
            let Some(ip) = endpoint.pointer("/addresses/0") else {
                continue;
            };
            let mut address = json!({"ip": ip});
            for field in ["nodeName", "targetRef"] {
                if let Some(value) = endpoint.get(field) {
                    address[field] = value.clone();
                }
            }
            if condition("ready", true) {
                ready.push(address);
            } else {
                not_ready.push(address);
            }
        }
    }
    by_ports
        .into_values()
        .map(|(ports, (ready, not_ready))| {
            let mut subset = json!({"ports": ports});
            for (field, addresses) in [("addresses", ready), ("notReadyAddresses", not_ready)] {
                if !addresses.is_empty() {
                    subset[field] = Value::Array(addresses);
                }
            }
            subset
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web_slice() -> Value {
        json!({
            "kind": "EndpointSlice",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"name": "web-1", "namespace": "ns", "labels": {SERVICE: "web"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [
                {"addresses": ["10.0.0.1"], "nodeName": "node-a", "zone": "z"},
                {"addresses": ["10.0.0.2"], "nodeName": "node-b", "conditions": {"ready": false}},
                {"addresses": ["10.0.0.3"], "conditions": {"ready": false, "terminating": true}},
            ],
        })
    }

    #[test]
    fn convert_slice_v1beta1_has_topology() {
        let older = to_version(&web_slice(), "discovery.k8s.io/v1beta1");
        assert_eq!(older["apiVersion"], "discovery.k8s.io/v1beta1");
        assert_eq!(
            older["endpoints"][0],
            json!({"addresses": ["10.0.0.1"], "topology": {HOSTNAME: "node-a", ZONE: "z"}})
        );
        assert!(older["endpoints"][2].get("topology").is_none());
        let mut back = older;
        to_v1(&mut back);
        assert_eq!(back["endpoints"], web_slice()["endpoints"]);
        assert_eq!(to_version(&web_slice(), "discovery.k8s.io/v1"), web_slice());
    }

    #[test]
    fn make_endpoints_groups_slice_addresses() {
        let service = json!({
            "kind": "Service",
            "metadata": {"name": "web", "namespace": "ns", "labels": {"app": "web"}},
            "spec": {"clusterIP": "10.96.0.1"},
        });
        let mut second = web_slice();
        second["endpoints"] = json!([{"addresses": ["10.0.0.9"]}]);
        let mut other_namespace = web_slice();
        other_namespace["metadata"]["namespace"] = json!("other");
        let slices = [web_slice(), second, other_namespace];
        let endpoints = make_endpoints([&service].into_iter(), slices.iter());
        assert_eq!(
            endpoints,
            [json!({
                "kind": "Endpoints",
                "apiVersion": "v1",
                "metadata": {"name": "web", "namespace": "ns", "labels": {"app": "web"}},
                "subsets": [{
                    "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                    "addresses": [{"ip": "10.0.0.1", "nodeName": "node-a"}, {"ip": "10.0.0.9"}],
                    "notReadyAddresses": [{"ip": "10.0.0.2", "nodeName": "node-b"}],
                }],
            })]
        );
    }
}
