//! A service that tells that a kube-proxy has seen all that came before it.

use libtest_mimic::Failed;
use serde_json::json;

use crate::cluster::Cluster;
use crate::differences::Texts;

/// An address that no other service has.
const SERVICE: &str = "10.96.255.254";
/// An address that no other endpoint has.
const ENDPOINT: &str = "198.18.0.1";

/// A service and its only endpoint, each the last of its kind that is served. A
/// kube-proxy learns of services in their order, and of endpoints in theirs.
#[derive(Debug, Default)]
pub struct Marker {
    turn: u16,
}

impl Marker {
    /// Turns it into one that was never seen.
    pub fn next(&mut self) {
        self.turn += 1;
    }

    fn port(&self) -> u16 {
        10_000 + self.turn
    }

    /// Adds it to a cluster.
    pub fn add(&self, cluster: &mut Cluster) -> Result<(), Failed> {
        let port = self.port();
        cluster.services.push(serde_json::from_value(json!({
            "metadata": {"name": "marker", "namespace": "svclab"},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": SERVICE,
                "sessionAffinity": "None",
                "ports": [{"protocol": "TCP", "port": port, "targetPort": port}],
            },
        }))?);
        cluster.slices.push(serde_json::from_value(json!({
            "metadata": {
                "name": "marker",
                "namespace": "svclab",
                "labels": {"kubernetes.io/service-name": "marker"},
            },
            "addressType": "IPv4",
            "ports": [{"name": "", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [ENDPOINT], "conditions": {"ready": true}}],
        }))?);
        Ok(())
    }

    /// Whether a kube-proxy has written it.
    pub fn is_in(&self, texts: &Texts) -> bool {
        let port = self.port();
        let of_ipvs = format!("-a -t {SERVICE}:{port} -r {ENDPOINT}:{port} ");
        let service = format!("-d {SERVICE}/32 -p tcp ");
        let service_port = format!("--dport {port} -j KUBE-SVC");
        let endpoint = format!("--to-destination {ENDPOINT}:{port}");
        let lines = || texts.rules.lines();
        texts.servers.lines().any(|line| line.starts_with(&of_ipvs))
            || (lines().any(|line| line.contains(&service) && line.contains(&service_port))
                && lines().any(|line| line.ends_with(&endpoint)))
    }
}

/// Whether a line of sets, virtual servers or addresses is about a marker.
pub fn names(line: &str) -> bool {
    [SERVICE, ENDPOINT].iter().any(|address| {
        line.match_indices(address).any(|(at, _)| {
            !line[at + address.len()..].starts_with(|next: char| next.is_ascii_digit())
        })
    })
}
