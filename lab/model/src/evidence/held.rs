//! What a namespace held once the probes were over, as its kernel says.

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use crate::plan::VirtualServer;

/// What was read back of a namespace; what was not asked for is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Held {
    /// What `ipset save` printed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sets: String,
    /// What `nft list ruleset` printed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nft: String,
    /// The virtual servers of IPVS, by netlink, in the kernel's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipvs: Vec<VirtualServer>,
    /// The interfaces, by netlink.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<HeldLink>,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HeldLink {
    /// Its name.
    pub name: String,
    /// Its flags (`IFF_UP` and its like, Linux v6.12 `include/uapi/linux/if.h`).
    pub flags: u32,
    /// Its addresses with their prefix lengths.
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNetwork>,
}
