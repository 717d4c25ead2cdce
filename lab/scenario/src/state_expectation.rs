//! What the kernel is expected to hold once the probes are over: sets, virtual
//! servers, interfaces.

use std::net::SocketAddr;
use std::str::FromStr;

use ipnetwork::IpNetwork;
use schemars::JsonSchema;
use serde::Deserializer;

use super::wire::Tap;

/// What an ipset, or a set or map of nftables, is expected to be and to hold.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetExpectation {
    /// The node whose set it is.
    pub on: String,
    /// The table of nftables that it is of, by family and name: `ip kube-proxy`. Without
    /// it, it is an ipset.
    #[serde(default)]
    pub table: Option<String>,
    /// The set: `KUBE-LOAD-BALANCER`, `service-ips`.
    pub set: String,
    /// Its type: `hash:ip,port`, `ipv4_addr . inet_proto . inet_service : verdict`.
    #[serde(rename = "type")]
    pub kind: String,
    /// All its members, in any order, as `ipset save` prints them,
    /// `172.18.96.4,tcp:443`, or as `nft list ruleset` does without their comments:
    /// `172.18.96.4 . tcp . 443 : drop`.
    pub members: Vec<String>,
}

/// What a virtual server of IPVS is expected to be, as the kernel says itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VirtualServerExpectation {
    /// The node whose virtual server it is.
    pub on: String,
    /// Its address and port: `10.20.0.1:443`.
    #[serde(deserialize_with = "served")]
    #[schemars(with = "String")]
    pub server: SocketAddr,
    /// The lines that `ipvsadm -Sn` prints of it, the real servers in any order:
    /// `-A -t 10.20.0.1:443 -s rr`. None: there is no such virtual server.
    pub is: Vec<String>,
}

/// An address with a port, as written.
struct Served(SocketAddr);

/// Why a text is no address with a port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address with a port; write for example `10.20.0.1:443`")]
struct ServedError(String);

impl FromStr for Served {
    type Err = ServedError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.parse().map(Self);
        parsed.map_err(|_| ServedError(text.to_owned()))
    }
}

fn served<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    super::values::parsed::<D, Served>(deserializer).map(|served| served.0)
}

/// What an interface is expected to be.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LinkExpectation {
    /// The interface, as `NAME/INTERFACE`: `node-1/kube-ipvs0`.
    #[serde(deserialize_with = "super::values::parsed")]
    #[schemars(with = "String")]
    pub on: Tap,
    /// All its flags, in any order, as `ip link` prints them: `BROADCAST`,
    /// `NOARP`; one that is down has no `UP`.
    pub flags: Vec<String>,
    /// All its addresses, in any order: `10.20.0.1/32`.
    #[serde(deserialize_with = "super::values::host_addresses")]
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNetwork>,
}
