//! Creates endpoints without a service, as a marker. A kube-proxy syncs when it receives the
//! marker, counts it once the rules are written, and writes no rule for it.
//!
//! kube-proxy counts endpoints whose trigger time is later than its own start
//! (`EndpointSliceUpdate` and `getLastChangeTriggerTime` of `pkg/proxy/endpointschangetracker.go`,
//! v1.36; `pkg/proxy/endpoints.go`, v1.16 to v1.30), in the sync that processes them.

use std::time::SystemTime;

use serde_json::{Value, json};

/// Namespace and name of the marker. Its service label has the same name.
pub(crate) const NAMESPACE: &str = "svclab";
pub(crate) const NAME: &str = "svclab-sync-marker";

/// Address that no lab may use (RFC 5737).
const ADDRESS: &str = "192.0.2.1";

/// Returns the marker as an `EndpointSlice`, and as the `Endpoints` that v1.18 and earlier watch. A
/// kube-proxy ignores unchanged endpoints, so that each `number` results in a different port.
pub(crate) fn marker(number: u64, time: SystemTime) -> Vec<Value> {
    let port = 1 + number % 65_535;
    let time = humantime::format_rfc3339_nanos(time).to_string();
    let metadata = json!({
        "name": NAME,
        "namespace": NAMESPACE,
        "labels": {"kubernetes.io/service-name": NAME},
        "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": time},
    });
    let ports = json!([{"name": "", "port": port, "protocol": "TCP"}]);
    vec![
        json!({
            "kind": "EndpointSlice",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": metadata,
            "addressType": "IPv4",
            "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": true}}],
            "ports": ports,
        }),
        json!({
            "kind": "Endpoints",
            "apiVersion": "v1",
            "metadata": metadata,
            "subsets": [{"addresses": [{"ip": ADDRESS}], "ports": ports}],
        }),
    ]
}
