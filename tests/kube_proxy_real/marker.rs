//! A service that tells that a kube-proxy has seen all that came before it.

use libtest_mimic::Failed;
use serde_json::json;

use crate::cluster::Cluster;

/// Where the addresses begin that no other services have.
const SERVICES: &str = "10.96.255.";
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

    /// The address of its service.
    pub fn address(&self) -> String {
        format!("{SERVICES}{}", self.turn + 1)
    }

    fn name(&self) -> String {
        format!("marker-{}", self.turn)
    }

    /// Adds it to a cluster.
    pub fn add(&self, cluster: &mut Cluster) -> Result<(), Failed> {
        let (name, port) = (self.name(), self.port());
        cluster.services.push(serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "svclab"},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": self.address(),
                "sessionAffinity": "None",
                "ports": [{"protocol": "TCP", "port": port, "targetPort": port}],
            },
        }))?);
        cluster.slices.push(serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "namespace": "svclab",
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4",
            "ports": [{"name": "", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [ENDPOINT], "conditions": {"ready": true}}],
        }))?);
        Ok(())
    }

    /// Whether it is among rules.
    pub fn is_in(&self, rules: &str) -> bool {
        let port = self.port();
        let service = format!("-d {}/32 -p tcp ", self.address());
        let service_port = format!("--dport {port} -j KUBE-SVC");
        let endpoint = format!("--to-destination {ENDPOINT}:{port}");
        let known = |line: &str| line.contains(&service) && line.contains(&service_port);
        rules.lines().any(known) && rules.lines().any(|line| line.ends_with(&endpoint))
    }

    /// Whether it is among virtual servers.
    pub fn is_among(&self, servers: &str) -> bool {
        let port = self.port();
        let service = self.address();
        let server = format!("-a -t {service}:{port} -r {ENDPOINT}:{port} ");
        servers.lines().any(|line| line.starts_with(&server))
    }
}

/// Whether an address is that of a marker's service.
pub fn is_marker(address: &str) -> bool {
    address.starts_with(SERVICES)
}

/// Whether a line of sets, virtual servers or addresses is about a marker.
pub fn names(line: &str) -> bool {
    line.contains(SERVICES) || line.contains(&format!("{ENDPOINT}:"))
}
