//! A service whose rules show that a kube-proxy has processed all earlier objects.

use libtest_mimic::Failed;
use serde_json::json;

use crate::cluster::Cluster;

/// Prefix of the addresses of marker services, which no other service has.
const SERVICES: &str = "10.96.255.";
/// Address of the marker's endpoint, which no other endpoint has.
const ENDPOINT: &str = "198.18.0.1";

/// A service with one endpoint, each served as the last of its kind. kube-proxy receives services
/// in order, and endpoints in order.
#[derive(Debug, Default)]
pub struct Marker {
    number: u16,
}

impl Marker {
    /// Changes the marker to a new one.
    pub fn advance(&mut self) {
        self.number += 1;
    }

    fn port(&self) -> u16 {
        10_000 + self.number
    }

    /// Returns the address of the marker's service.
    pub fn address(&self) -> String {
        format!("{SERVICES}{}", self.number + 1)
    }

    fn name(&self) -> String {
        format!("marker-{}", self.number)
    }

    /// Adds the marker to a cluster.
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

    /// Whether rules contain the marker.
    pub fn is_in_rules(&self, rules: &str) -> bool {
        let port = self.port();
        let service = format!("-d {}/32 -p tcp ", self.address());
        let service_port = format!("--dport {port} -j KUBE-SVC");
        let endpoint = format!("--to-destination {ENDPOINT}:{port}");
        let known = |line: &str| line.contains(&service) && line.contains(&service_port);
        rules.lines().any(known) && rules.lines().any(|line| line.ends_with(&endpoint))
    }

    /// Whether virtual servers contain the marker.
    pub fn is_in_virtual_servers(&self, servers: &str) -> bool {
        let port = self.port();
        let service = self.address();
        let server = format!("-a -t {service}:{port} -r {ENDPOINT}:{port} ");
        servers.lines().any(|line| line.starts_with(&server))
    }
}

/// Whether an address belongs to a marker's service.
pub fn is_marker(address: &str) -> bool {
    address.starts_with(SERVICES)
}

/// Whether a line of sets, virtual servers or addresses belongs to a marker.
pub fn is_marker_line(line: &str) -> bool {
    line.contains(SERVICES) || line.contains(&format!("{ENDPOINT}:"))
}
