//! Names kube-proxy's chains: fixed names, and names with a hash, so that they fit into the 28
//! characters of a chain name. (`portProtoHash` in kubernetes/kubernetes
//! `pkg/proxy/iptables/proxier.go`, unchanged from v1.9 to v1.36.)

use data_encoding::BASE32;
use sha2::{Digest, Sha256};

use crate::kube_proxy::endpoints::Endpoint;
use crate::kube_proxy::services::ServicePort;
use svclab_ruleset::Protocol;

/// Rules for all service addresses.
pub const SERVICES: &str = "KUBE-SERVICES";
/// Rules for addresses that are used from outside: external IPs, load balancer addresses, node
/// ports.
pub const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
/// Rules for node ports.
pub const NODE_PORTS: &str = "KUBE-NODEPORTS";
/// Rules that masquerade marked packets.
pub const POSTROUTING: &str = "KUBE-POSTROUTING";
/// Rule that marks packets for masquerading.
pub const MARK_MASQ: &str = "KUBE-MARK-MASQ";
/// Rule that marks packets for dropping; the kubelet writes it.
pub const MARK_DROP: &str = "KUBE-MARK-DROP";
/// Rules for forwarded packets.
pub const FORWARD: &str = "KUBE-FORWARD";
/// Rules for traffic that source ranges do not admit.
pub const PROXY_FIREWALL: &str = "KUBE-PROXY-FIREWALL";
/// Firewall rules of the kubelet.
pub const FIREWALL: &str = "KUBE-FIREWALL";
/// Chain without rules. If it is missing, kube-proxy detects that its rules were flushed.
pub const CANARY: &str = "KUBE-PROXY-CANARY";

/// Returns `KUBE-SVC-…`: the chain of all endpoints of a service port.
#[must_use]
pub fn service(port: &ServicePort) -> String {
    port_chain("KUBE-SVC-", &port.name, port.protocol)
}

/// Returns `KUBE-SVL-…`: the chain of local endpoints of a service port.
#[must_use]
pub fn local(port: &ServicePort) -> String {
    port_chain("KUBE-SVL-", &port.name, port.protocol)
}

/// Returns `KUBE-EXT-…`: the chain of traffic from outside to a service port.
#[must_use]
pub fn external(port: &ServicePort) -> String {
    port_chain("KUBE-EXT-", &port.name, port.protocol)
}

/// Returns `KUBE-XLB-…`: the chain of traffic from outside to a service port with the policy
/// `Local`, up to v1.23.
#[must_use]
pub fn external_local(port: &ServicePort) -> String {
    port_chain("KUBE-XLB-", &port.name, port.protocol)
}

/// Returns `KUBE-FW-…`: the chain of traffic to a load balancer address.
#[must_use]
pub fn firewall(port: &ServicePort) -> String {
    port_chain("KUBE-FW-", &port.name, port.protocol)
}

/// Returns `KUBE-SEP-…`: the chain of one endpoint of a service port.
#[must_use]
pub fn endpoint(port: &ServicePort, endpoint: &Endpoint) -> String {
    let hashed = format!("{}{}{}", port.name, port.protocol, endpoint.address);
    format!("KUBE-SEP-{}", hash(&hashed))
}

fn port_chain(prefix: &str, name: &str, protocol: Protocol) -> String {
    format!("{prefix}{}", hash(&format!("{name}{protocol}")))
}

/// Returns the first 16 characters of a text's SHA-256 in base 32.
fn hash(text: &str) -> String {
    let mut encoded = BASE32.encode(&Sha256::digest(text.as_bytes()));
    encoded.truncate(16);
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_names_match_kube_proxy() {
        assert_eq!(
            port_chain("KUBE-SVC-", "ns1/svc1:p80", Protocol::Tcp),
            "KUBE-SVC-XPGD46QRK7WJZT7O"
        );
        assert_eq!(hash("ns1/svc1:p80tcp10.180.0.1:80"), "SXIVWICOYRO3J4NJ");
        assert_eq!(hash("default/dns:pudp10.244.2.5:5353"), "4GQ457RIEPP4NITS");
    }
}
