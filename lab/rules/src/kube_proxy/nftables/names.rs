//! The names of nftables mode: of its fixed chains, sets and maps, and those made
//! for service ports and endpoints.
//! (`hashAndTruncate`, `servicePortChainNameBase` and
//! `servicePortEndpointChainNameBase` in kubernetes/kubernetes
//! `pkg/proxy/nftables/proxier.go`, alike from v1.29.1 to v1.36.2.)

use data_encoding::BASE32;
use sha2::{Digest, Sha256};

use crate::kube_proxy::endpoints::Endpoint;
use crate::kube_proxy::services::ServicePort;

/// Dispatch of services.
pub const SERVICES: &str = "services";
/// Masquerading of what is marked.
pub const MASQUERADING: &str = "masquerading";
/// Marks for masquerading, up to v1.35.
pub const MARK: &str = "mark-for-masquerade";
/// What services without endpoints refuse.
pub const REJECT: &str = "reject-chain";
/// Asks for services without endpoints.
pub const SERVICE_CHECK: &str = "service-endpoints-check";
/// Asks for node ports without endpoints.
pub const NODE_PORT_CHECK: &str = "nodeport-endpoints-check";
/// Both in v1.29.
pub const ENDPOINTS_CHECK: &str = "endpoints-check";
/// Asks for load balancers with source ranges.
pub const FIREWALL_CHECK: &str = "firewall-check";
/// Admits by source range, in v1.29.
pub const FIREWALL_ALLOW_CHECK: &str = "firewall-allow-check";
/// Drops what conntrack calls invalid, in v1.29.
pub const FORWARD: &str = "forward";
/// Refuses ports of cluster IPs that no service has.
pub const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";

/// Cluster IPs that are in use.
pub const CLUSTER_IPS: &str = "cluster-ips";
/// The node's addresses that serve node ports.
pub const NODE_PORT_IPS: &str = "nodeport-ips";
/// Addresses and ports of services without endpoints.
pub const NO_ENDPOINT_SERVICES: &str = "no-endpoint-services";
/// Node ports of services without endpoints.
pub const NO_ENDPOINT_NODE_PORTS: &str = "no-endpoint-nodeports";
/// Addresses and ports that source ranges guard.
pub const FIREWALL_IPS: &str = "firewall-ips";
/// The same in v1.29, a set.
pub const FIREWALL: &str = "firewall";
/// Who may pass, in v1.29.
pub const FIREWALL_ALLOW: &str = "firewall-allow";
/// Addresses and ports of services.
pub const SERVICE_IPS: &str = "service-ips";
/// Node ports of services.
pub const SERVICE_NODE_PORTS: &str = "service-nodeports";
/// Local endpoints, as they call themselves by a service, from v1.36.
pub const HAIRPIN: &str = "hairpin-connections";

/// The longest that a name may be without its prefix: the kernel's 256 less 16 for
/// the prefix.
const LONGEST: usize = 240;

/// The names made for a service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortNames {
    /// All endpoints: `service-HASH-namespace/name/protocol/port`.
    pub cluster: String,
    /// The local ones.
    pub local: String,
    /// Traffic from outside.
    pub external: String,
    /// Source ranges.
    pub firewall: String,
    /// What endpoints' names begin with.
    base: String,
}

/// The names made for an endpoint of a service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointNames {
    /// Its chain: `endpoint-HASH-…__10.244.1.5/8080`.
    pub chain: String,
}

impl EndpointNames {
    const CHAIN: &str = "endpoint-";

    /// The set of the clients that stay with it: `affinity-HASH-…__10.244.1.5/8080`.
    #[must_use]
    pub fn affinity(&self) -> String {
        let hashed = self.chain.strip_prefix(Self::CHAIN).unwrap_or(&self.chain);
        format!("affinity-{hashed}")
    }
}

impl PortNames {
    /// The names for `port`.
    #[must_use]
    pub fn of(port: &ServicePort) -> Self {
        let base = format!(
            "{}/{}/{}/{}",
            port.namespace, port.service, port.protocol, port.port_name
        );
        let hashed = hashed(&base);
        Self {
            cluster: format!("service-{hashed}"),
            local: format!("local-{hashed}"),
            external: format!("external-{hashed}"),
            firewall: format!("firewall-{hashed}"),
            base,
        }
    }

    /// The names for one of its endpoints.
    #[must_use]
    pub fn endpoint(&self, endpoint: &Endpoint) -> EndpointNames {
        let mut ip = endpoint.ip().to_string();
        if endpoint.address.is_ipv6() {
            // A colon may not be in a chain's name.
            ip = ip.replace(':', ".");
        }
        let name = format!("{}__{ip}/{}", self.base, endpoint.address.port());
        EndpointNames {
            chain: prefixed(EndpointNames::CHAIN, &name),
        }
    }
}

/// A name behind the first 8 characters of its SHA-256 in base 32, cut if too long.
fn hashed(name: &str) -> String {
    prefixed("", name)
}

/// The same behind a prefix, which does not count for its length.
fn prefixed(prefix: &str, name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    let mut named = String::with_capacity(prefix.len() + 9 + name.len());
    named.push_str(prefix);
    // Five bytes are eight characters of base 32.
    BASE32.encode_append(&digest[..5], &mut named);
    named.push('-');
    named.push_str(name);
    if named.len() > prefix.len() + LONGEST {
        named.truncate(named.floor_char_boundary(prefix.len() + LONGEST - 3));
        named.push_str("...");
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_kube_proxy_gives() {
        // From the comments of `servicePortChainNameBase` and recordings.
        assert_eq!(hashed("ns1/svc1/tcp/p80"), "ULMVA6XW-ns1/svc1/tcp/p80");
        assert_eq!(
            hashed("ns1/svc1/tcp/p80__10.180.0.1/80"),
            "5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80"
        );
    }

    #[test]
    fn what_is_too_long_is_cut() {
        let name = hashed(&"a".repeat(300));
        assert_eq!(name.len(), LONGEST);
        assert!(name.ends_with("aaa..."));
    }
}
