//! Computes the table of kube-proxy's nftables mode, one for each IP family.
//!
//! Follows `setupNFTables` and `syncProxyRules` of kubernetes/kubernetes
//! `pkg/proxy/nftables/proxier.go` (v1.29.1 to v1.36.2). [`fixed`] writes the objects of the node,
//! [`services`] the objects of each service port.
//!
//! The result is the state after one sync on a node without earlier state of kube-proxy. If two
//! services use the same address and port, the last by name is effective here. In reality, the
//! kernel rejects the whole transaction up to v1.30, and later a random one is effective.

mod fixed;
mod local;
mod names;
mod node_ports;
mod services;
#[cfg(test)]
mod tests;

use ipnetwork::IpNetwork;

use super::endpoints::EndpointMap;
use super::history::{NFT_SERVICE_CIDRS, NFTABLES_MODE};
use super::iptables::local::LocalTraffic;
use super::services::ServicePort;
use super::version::Version;
use super::{Family, KubeProxy, KubeProxyError, Node};
use crate::objects::ServiceCidr;
use node_ports::NodePorts;
use svclab_ruleset::nft::Table;

pub use svclab_model::plan::NFTABLES_TABLE as TABLE;

/// Inputs of the rules of every service.
struct NftablesContext<'a> {
    proxy: &'a KubeProxy,
    version: Version,
    family: Family,
    node: &'a Node<'a>,
    local: Option<LocalTraffic>,
    node_ports: NodePorts,
    service_cidrs: &'a [IpNetwork],
}

impl NftablesContext<'_> {
    /// Returns the address type in sets: `ipv4_addr` or `ipv6_addr`.
    fn address_type(&self) -> &'static str {
        match self.family {
            Family::V4 => "ipv4_addr",
            Family::V6 => "ipv6_addr",
        }
    }

    /// Returns the packet mark that requests masquerading.
    fn mark(&self) -> String {
        // The configuration accepts bits 0 to 31; a larger bit sets no mark.
        let mark = 1_u32.checked_shl(u32::from(self.proxy.masquerade_bit));
        format!("{:#010x}", mark.unwrap_or(0))
    }

    /// Returns the statement that requests masquerading of a packet.
    fn masquerade(&self) -> String {
        if self.version.has(&super::history::NFT_ENDPOINT_MAPS) {
            format!("mark set mark or {}", self.mark())
        } else {
            format!("jump {}", names::MARK_FOR_MASQUERADE)
        }
    }
}

/// Computes the table for `ports` and their `endpoints`.
pub(super) fn rules(
    proxy: &KubeProxy,
    node: &Node<'_>,
    ports: &[ServicePort],
    endpoints: &EndpointMap,
    service_cidrs: &[IpNetwork],
    family: Family,
) -> Result<Table, KubeProxyError> {
    let context = NftablesContext {
        proxy,
        version: proxy.version,
        family,
        node,
        local: LocalTraffic::new(proxy, node, family)?,
        node_ports: NodePorts::new(proxy, node, family),
        service_cidrs,
    };
    let objects = services::build_objects(&context, ports, endpoints);
    Ok(fixed::table(&context, objects))
}

/// Returns the networks of `family` from which cluster IPs are allocated, according to `objects`.
/// Returns none if the version does not use them.
pub(super) fn service_cidrs(
    objects: &[ServiceCidr],
    version: Version,
    family: Family,
) -> Result<Vec<IpNetwork>, KubeProxyError> {
    let mut found = Vec::new();
    if !version.has(&NFTABLES_MODE) || !version.has(&NFT_SERVICE_CIDRS) {
        return Ok(found);
    }
    for object in objects {
        if let Some(invalid) = &object.invalid {
            return Err(KubeProxyError::ServiceCidr {
                name: object.name.clone(),
                value: invalid.value.clone(),
            });
        }
        for network in &object.networks {
            if Family::from_ip(network.ip()) == family && !found.contains(network) {
                found.push(*network);
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}
