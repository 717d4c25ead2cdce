//! Defines the kernel state that the agent reads back from a namespace after the probes.

use serde::{Deserialize, Serialize};

use super::network::{LinkState, NetworkState};
use svclab_ruleset::ipvs::VirtualServer;

/// State read back from a namespace. Parts that were not requested are empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KernelState {
    /// Output of `ipset save`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sets: String,
    /// Output of `nft list ruleset`, with handles if the evidence of the stage has it with handles.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nft: String,
    /// IPVS virtual servers, read through netlink, in the order of the kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipvs: Vec<VirtualServer>,
    /// Interfaces, read through netlink.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkState>,
    /// Routing state, read through netlink; absent if it was not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkState>,
}
