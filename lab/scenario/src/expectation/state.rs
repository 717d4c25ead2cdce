//! Expected kernel state after the probes: sets, virtual servers and interfaces.

use std::net::SocketAddr;
use std::str::FromStr;

use ipnetwork::IpNetwork;
use schemars::JsonSchema;
use serde::Deserializer;

use crate::expectation::wire::InterfaceRef;

/// Expected type and members of an ipset, or of a set or map of nftables.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetExpectation {
    /// Name of the node.
    pub on: String,
    /// Table of nftables by family and name, such as `ip kube-proxy`. When absent, the set is an
    /// ipset.
    #[serde(default)]
    pub table: Option<String>,
    /// Name of the set, such as `KUBE-LOAD-BALANCER` or `service-ips`.
    pub set: String,
    /// Type of the set, such as `hash:ip,port` or `ipv4_addr . inet_proto . inet_service :
    /// verdict`.
    #[serde(rename = "type")]
    pub kind: String,
    /// All members, in any order. An ipset has the format of `ipset save`, such as
    /// `172.18.96.4,tcp:443`. A set of nftables has the format of `nft list ruleset` without
    /// comments, such as `172.18.96.4 . tcp . 443 : drop`.
    pub members: Vec<String>,
}

/// Expected state of an IPVS virtual server in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VirtualServerExpectation {
    /// Name of the node.
    pub on: String,
    /// Address and port, such as `10.20.0.1:443`.
    #[serde(deserialize_with = "served")]
    #[schemars(with = "String")]
    pub server: SocketAddr,
    /// Lines that `ipvsadm -Sn` prints for the virtual server, with the real servers in any order:
    /// `-A -t 10.20.0.1:443 -s rr`. An empty list means that the virtual server does not exist.
    pub is: Vec<String>,
}

/// Address with a port.
struct ServerAddress(SocketAddr);

/// Error of parsing an address with a port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address with a port; write for example `10.20.0.1:443`")]
struct ServerAddressError(String);

impl FromStr for ServerAddress {
    type Err = ServerAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.parse().map(Self);
        parsed.map_err(|_| ServerAddressError(text.to_owned()))
    }
}

fn served<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    crate::decode::values::parsed::<D, ServerAddress>(deserializer).map(|served| served.0)
}

/// Expected flags and addresses of an interface.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LinkExpectation {
    /// Interface in the form `NAME/INTERFACE`, such as `node-1/kube-ipvs0`.
    #[serde(deserialize_with = "crate::decode::values::parsed")]
    #[schemars(with = "String")]
    pub on: InterfaceRef,
    /// All flags, in any order, as `ip link` prints them, such as `BROADCAST` or `NOARP`. An
    /// interface that is down has no `UP`.
    pub flags: Vec<String>,
    /// All addresses, in any order, such as `10.20.0.1/32`.
    #[serde(deserialize_with = "crate::decode::values::host_addresses")]
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNetwork>,
}
