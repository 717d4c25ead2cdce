//! Names the objects of nftables mode: fixed chains, sets and maps, and the objects of service
//! ports and endpoints. (`hashAndTruncate`, `servicePortChainNameBase` and
//! `servicePortEndpointChainNameBase` in kubernetes/kubernetes `pkg/proxy/nftables/proxier.go`, the
//! same from v1.29.1 to v1.36.2.)

use data_encoding::BASE32;
use sha2::{Digest, Sha256};

use crate::kube_proxy::endpoints::Endpoint;
use crate::kube_proxy::services::ServicePort;

/// Chain that dispatches traffic to services.
pub(crate) const SERVICES: &str = "services";
/// Chain that masquerades marked packets.
pub(crate) const MASQUERADING: &str = "masquerading";
/// Chain that marks packets for masquerading, up to v1.35.
pub(crate) const MARK_FOR_MASQUERADE: &str = "mark-for-masquerade";
/// Chain that rejects traffic to services without endpoints.
pub(crate) const REJECT: &str = "reject-chain";
/// Chain that checks for services without endpoints.
pub(crate) const SERVICE_CHECK: &str = "service-endpoints-check";
/// Chain that checks for node ports without endpoints.
pub(crate) const NODE_PORT_CHECK: &str = "nodeport-endpoints-check";
/// Chain that checks for both in v1.29.
pub(crate) const ENDPOINTS_CHECK: &str = "endpoints-check";
/// Chain that checks for load balancers with source ranges.
pub(crate) const FIREWALL_CHECK: &str = "firewall-check";
/// Chain that admits sources by source range, in v1.29.
pub(crate) const FIREWALL_ALLOW_CHECK: &str = "firewall-allow-check";
/// Chain that drops packets in conntrack state INVALID, in v1.29.
pub(crate) const FORWARD: &str = "forward";
/// Chain that rejects traffic to ports of cluster IPs that no service has.
pub(crate) const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";

/// Set of cluster IPs in use.
pub(crate) const CLUSTER_IPS: &str = "cluster-ips";
/// Set of the node's addresses that serve node ports.
pub(crate) const NODE_PORT_IPS: &str = "nodeport-ips";
/// Map of addresses and ports of services without endpoints.
pub(crate) const NO_ENDPOINT_SERVICES: &str = "no-endpoint-services";
/// Map of node ports of services without endpoints.
pub(crate) const NO_ENDPOINT_NODE_PORTS: &str = "no-endpoint-nodeports";
/// Map of addresses and ports with source ranges, from v1.30 on.
pub(crate) const FIREWALL_IPS: &str = "firewall-ips";
/// Set of addresses and ports with source ranges, in v1.29.
pub(crate) const FIREWALL: &str = "firewall";
/// Set of admitted sources, in v1.29.
pub(crate) const FIREWALL_ALLOW: &str = "firewall-allow";
/// Map of addresses and ports of services.
pub(crate) const SERVICE_IPS: &str = "service-ips";
/// Map of node ports of services.
pub(crate) const SERVICE_NODE_PORTS: &str = "service-nodeports";
/// Set of connections of local endpoints to themselves, from v1.36 on.
pub(crate) const HAIRPIN: &str = "hairpin-connections";

/// Longest name without its prefix: the kernel's limit of 256 minus 16 for the prefix.
const MAX_NAME_LENGTH: usize = 240;

/// Names of the objects of a service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortNames {
    /// Chain of all endpoints: `service-HASH-namespace/name/protocol/port`.
    pub cluster: String,
    /// Chain of local endpoints: `local-HASH-…`.
    pub local: String,
    /// Chain of traffic from outside: `external-HASH-…`.
    pub external: String,
    /// Chain of source ranges: `firewall-HASH-…`.
    pub firewall: String,
    /// Common prefix of the names of endpoints, before the hash is added.
    base: String,
}

/// Names of the objects of an endpoint of a service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndpointNames {
    /// Chain of the endpoint: `endpoint-HASH-…__10.244.1.5/8080`.
    pub chain: String,
}

impl EndpointNames {
    const CHAIN: &str = "endpoint-";

    /// Returns the name of the set of clients with affinity to the endpoint:
    /// `affinity-HASH-…__10.244.1.5/8080`.
    #[must_use]
    pub(crate) fn affinity(&self) -> String {
        let hashed = self.chain.strip_prefix(Self::CHAIN).unwrap_or(&self.chain);
        format!("affinity-{hashed}")
    }
}

impl PortNames {
    /// Creates the names for `port`.
    #[must_use]
    pub(crate) fn new(port: &ServicePort) -> Self {
        let base = format!(
            "{}/{}/{}/{}",
            port.namespace, port.service, port.protocol, port.port_name
        );
        let hashed_name = hash_name(&base);
        Self {
            cluster: format!("service-{hashed_name}"),
            local: format!("local-{hashed_name}"),
            external: format!("external-{hashed_name}"),
            firewall: format!("firewall-{hashed_name}"),
            base,
        }
    }

    /// Returns the names for an endpoint of the service port.
    #[must_use]
    pub(crate) fn endpoint(&self, endpoint: &Endpoint) -> EndpointNames {
        let mut ip = endpoint.ip().to_string();
        if endpoint.address.is_ipv6() {
            // A chain name must not contain a colon.
            ip = ip.replace(':', ".");
        }
        let name = format!("{}__{ip}/{}", self.base, endpoint.address.port());
        EndpointNames {
            chain: hash_name_with_prefix(EndpointNames::CHAIN, &name),
        }
    }
}

/// Returns a name after the first 8 characters of its SHA-256 in base 32, truncated if too long.
fn hash_name(name: &str) -> String {
    hash_name_with_prefix("", name)
}

/// Returns a hashed name after a prefix, which does not count for the length limit.
fn hash_name_with_prefix(prefix: &str, name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    let mut text = String::with_capacity(prefix.len() + 9 + name.len());
    text.push_str(prefix);
    // Five bytes are eight characters of base 32.
    BASE32.encode_append(&digest[..5], &mut text);
    text.push('-');
    text.push_str(name);
    if text.len() > prefix.len() + MAX_NAME_LENGTH {
        text.truncate(text.floor_char_boundary(prefix.len() + MAX_NAME_LENGTH - 3));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_kube_proxy() {
        // The names are from comments of `servicePortChainNameBase` and from recordings.
        assert_eq!(hash_name("ns1/svc1/tcp/p80"), "ULMVA6XW-ns1/svc1/tcp/p80");
        assert_eq!(
            hash_name("ns1/svc1/tcp/p80__10.180.0.1/80"),
            "5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80"
        );
    }

    #[test]
    fn names_too_long_are_truncated() {
        let name = hash_name(&"a".repeat(300));
        assert_eq!(name.len(), MAX_NAME_LENGTH);
        assert!(name.ends_with("aaa..."));
    }
}
