//! Converts endpoint slices from `discovery.k8s.io/v1beta1`, which clusters before 1.21 print, to
//! `v1`.
//!
//! The versions differ in an endpoint's `topology` (kubernetes v1.24.0,
//! `pkg/apis/discovery/v1beta1/conversion.go`). Its `kubernetes.io/hostname` is the node, unless
//! `nodeName` is set. Its `topology.kubernetes.io/zone` is the zone. This conversion keeps the
//! whole topology in `deprecatedTopology`.

use std::sync::Arc;

use crate::yaml::tree::{Map, Scalar, ScalarKind, Tree, Value};

/// Value of `apiVersion` before the conversion.
pub(crate) const API_VERSION: &str = "discovery.k8s.io/v1beta1";

/// Keys of a topology and the `v1` fields that replaced them.
const TOPOLOGY_FIELDS: [(&str, &str); 2] = [
    ("kubernetes.io/hostname", "nodeName"),
    ("topology.kubernetes.io/zone", "zone"),
];

/// Converts a slice to `discovery.k8s.io/v1`. Every value keeps its span.
pub(crate) fn upgrade_slice(tree: &Tree) -> Tree {
    let Some(map) = tree.as_map() else {
        return tree.clone();
    };
    let mut map = map.clone();
    if let Some(version) = map.get_mut("apiVersion") {
        version.value.value = Value::Scalar(Scalar {
            text: "discovery.k8s.io/v1".into(),
            kind: ScalarKind::String,
        });
    }
    if let Some(endpoints) = map.get_mut("endpoints")
        && let Some(items) = endpoints.value.as_sequence()
    {
        let items = items.iter().map(upgrade_endpoint).collect();
        endpoints.value.value = Value::Sequence(Arc::new(items));
    }
    Tree {
        span: tree.span,
        value: Value::Map(Arc::new(map)),
    }
}

fn upgrade_endpoint(tree: &Tree) -> Tree {
    let Some(map) = tree.as_map() else {
        return tree.clone();
    };
    let Some(topology) = map.get("topology").cloned() else {
        return tree.clone();
    };
    let mut map: Map = map
        .iter()
        .filter(|(key, _)| key.as_ref() != "topology")
        .map(|(key, entry)| (Arc::clone(key), entry.clone()))
        .collect();
    for (label, field) in TOPOLOGY_FIELDS {
        if !map.contains_key(field)
            && let Some(moved) = topology.value.as_map().and_then(|t| t.get(label))
        {
            map.insert(field.into(), moved.clone());
        }
    }
    map.insert("deprecatedTopology".into(), topology);
    Tree {
        span: tree.span,
        value: Value::Map(Arc::new(map)),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::discovery::v1::EndpointSlice;

    use super::*;
    use crate::decode::lenient;
    use crate::yaml;
    use svclab_diagnostic::source::{FileId, Source};

    #[test]
    fn v1beta1_hostname_is_node_unless_node_name_is_set() {
        let text = "
            apiVersion: discovery.k8s.io/v1beta1
            kind: EndpointSlice
            metadata: {name: a}
            addressType: IPv4
            endpoints:
            - addresses: [10.0.0.1]
              topology: {kubernetes.io/hostname: node-1, topology.kubernetes.io/zone: z, x: y}
            - addresses: [10.0.0.2]
              nodeName: node-2
              topology: {kubernetes.io/hostname: other}
            - addresses: [10.0.0.3]";
        let source = Source::from_bytes("x", text.into()).expect("a source");
        let trees = yaml::parse(&source, FileId::default()).expect("YAML");
        let (slice, ignored) =
            lenient::<EndpointSlice>(&upgrade_slice(&trees[0])).expect("a slice");
        assert_eq!(ignored, []);
        let endpoints = slice.endpoints.expect("endpoints");
        let seen: Vec<_> = endpoints
            .iter()
            .map(|e| (e.node_name.as_deref(), e.zone.as_deref()))
            .collect();
        assert_eq!(
            seen,
            [
                (Some("node-1"), Some("z")),
                (Some("node-2"), None),
                (None, None)
            ]
        );
    }
}
