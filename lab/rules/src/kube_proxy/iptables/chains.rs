//! The names of kube-proxy's chains: fixed ones, and those made by hashing, so
//! that they fit into the 28 characters a chain's name may have.
//! (`portProtoHash` in kubernetes/kubernetes `pkg/proxy/iptables/proxier.go`,
//! unchanged from v1.9 to v1.36.)

use data_encoding::BASE32;
use sha2::{Digest, Sha256};

use crate::kube_proxy::endpoints::Endpoint;
use crate::kube_proxy::services::{Protocol, ServicePort};

/// All service addresses.
pub const SERVICES: &str = "KUBE-SERVICES";
/// Addresses that come from outside: external, load balancer, node port.
pub const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
/// Node ports.
pub const NODE_PORTS: &str = "KUBE-NODEPORTS";
/// Masquerading of what is marked.
pub const POSTROUTING: &str = "KUBE-POSTROUTING";
/// Marks for masquerading.
pub const MARK_MASQ: &str = "KUBE-MARK-MASQ";
/// Marks for dropping; its rule is the kubelet's.
pub const MARK_DROP: &str = "KUBE-MARK-DROP";
/// What may be forwarded.
pub const FORWARD: &str = "KUBE-FORWARD";
/// Traffic that a source range does not admit.
pub const PROXY_FIREWALL: &str = "KUBE-PROXY-FIREWALL";
/// The kubelet's firewall.
pub const FIREWALL: &str = "KUBE-FIREWALL";
/// By whose absence kube-proxy notices that somebody flushed its rules.
pub const CANARY: &str = "KUBE-PROXY-CANARY";

/// `KUBE-SVC-…`: all endpoints of a service port.
#[must_use]
pub fn service(port: &ServicePort) -> String {
    of_port("KUBE-SVC-", &port.name, port.protocol)
}

/// `KUBE-SVL-…`: the local endpoints of a service port.
#[must_use]
pub fn local(port: &ServicePort) -> String {
    of_port("KUBE-SVL-", &port.name, port.protocol)
}

/// `KUBE-EXT-…`: traffic from outside to a service port.
#[must_use]
pub fn external(port: &ServicePort) -> String {
    of_port("KUBE-EXT-", &port.name, port.protocol)
}

/// `KUBE-XLB-…`: traffic from outside to a service port with the policy
/// `Local`, up to v1.23.
#[must_use]
pub fn external_local(port: &ServicePort) -> String {
    of_port("KUBE-XLB-", &port.name, port.protocol)
}

/// `KUBE-FW-…`: traffic to a load balancer's address.
#[must_use]
pub fn firewall(port: &ServicePort) -> String {
    of_port("KUBE-FW-", &port.name, port.protocol)
}

/// `KUBE-SEP-…`: one endpoint of a service port.
#[must_use]
pub fn endpoint(port: &ServicePort, endpoint: &Endpoint) -> String {
    let hashed = format!("{}{}{}", port.name, port.protocol, endpoint.address);
    format!("KUBE-SEP-{}", hash(&hashed))
}

fn of_port(prefix: &str, name: &str, protocol: Protocol) -> String {
    format!("{prefix}{}", hash(&format!("{name}{protocol}")))
}

/// The first 16 characters of a text's SHA-256 in base 32.
fn hash(text: &str) -> String {
    let mut encoded = BASE32.encode(&Sha256::digest(text.as_bytes()));
    encoded.truncate(16);
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_kube_proxy_gives() {
        assert_eq!(
            of_port("KUBE-SVC-", "ns1/svc1:p80", Protocol::Tcp),
            "KUBE-SVC-XPGD46QRK7WJZT7O"
        );
        assert_eq!(hash("ns1/svc1:p80tcp10.180.0.1:80"), "SXIVWICOYRO3J4NJ");
        assert_eq!(hash("default/dns:pudp10.244.2.5:5353"), "4GQ457RIEPP4NITS");
    }
}
