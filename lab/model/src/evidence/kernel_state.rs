//! Defines the kernel state that the agent reads back from a namespace after the probes.

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use svclab_ruleset::ipvs::VirtualServer;

/// State read back from a namespace. Parts that were not requested are empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KernelState {
    /// Output of `ipset save`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sets: String,
    /// Output of `nft list ruleset`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nft: String,
    /// IPVS virtual servers, read through netlink, in the order of the kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipvs: Vec<VirtualServer>,
    /// Interfaces, read through netlink.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkState>,
}

/// Interface read back from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkState {
    /// Interface name.
    pub name: String,
    /// Interface flags (`IFF_UP` and others, Linux v6.12 `include/uapi/linux/if.h`).
    pub flags: u32,
    /// Addresses with prefix lengths.
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNetwork>,
}
