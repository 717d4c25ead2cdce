//! Defines a difference between two dumps: its location, its content and its owner.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_ruleset::Family;
use svclab_ruleset::tool::Format;

/// Difference between two dumps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Location of the difference.
    pub location: DumpLocation,
    /// Content of the difference.
    #[serde(flatten)]
    pub change: DumpChange,
    /// Owner of the differing object; absent if the dumps do not show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Program whose output shows the same difference, besides the program of the location; absent
    /// if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated_in: Option<String>,
}

/// Location of a difference.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(tag = "of", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum DumpLocation {
    /// Output file that only one of the dumps has.
    File {
        /// Program whose output the file contains: `ipset save`.
        program: String,
    },
    /// Chain of iptables or nftables.
    Chain {
        /// Program that prints the chain: `iptables-save`.
        program: String,
        /// Table of the chain: `nat`, `ip kube-proxy`.
        table: String,
        /// Name of the chain.
        chain: String,
    },
    /// Table of nftables.
    NftTable {
        /// Family and name of the table: `ip kube-proxy`.
        table: String,
    },
    /// Set or map of nftables.
    NftSet {
        /// Table of the set: `ip kube-proxy`.
        table: String,
        /// Name of the set or map.
        name: String,
    },
    /// Set of ipset.
    Set {
        /// Name of the set.
        name: String,
    },
    /// Virtual server of IPVS.
    Server {
        /// Key of the virtual server, in the notation of `ipvsadm`: `-t 10.96.0.10:80`.
        server: String,
    },
    /// Network interface.
    Link {
        /// Name of the interface.
        name: String,
    },
    /// Bridge port.
    BridgePort {
        /// Name of the interface.
        name: String,
    },
    /// Static forwarding entries of a bridge port or a VXLAN interface.
    Forwarding {
        /// Name of the interface.
        interface: String,
    },
    /// Neighbours that do not expire, and next hops that did not reply.
    Neighbours {
        /// Name of the interface.
        interface: String,
    },
    /// Routing table.
    Routes {
        /// Address family of the routes.
        family: Family,
        /// Name or number of the table.
        table: String,
    },
    /// Routing rules, which select the routing table.
    Policy {
        /// Address family of the rules.
        family: Family,
    },
    /// Queueing disciplines, classes or filters of an interface.
    TrafficControl {
        /// Object of `tc`: `qdisc`, `class` or `filter`.
        object: String,
        /// Interface, followed by the hook or the parent of classes and filters: `eth0 ingress`.
        place: String,
    },
    /// `IPsec` policies.
    IpsecPolicies,
    /// Tracked connections.
    Connections,
    /// Settings of kube-proxy.
    KubeProxy,
    /// Sysctls of the kernel.
    Sysctls,
}

/// Content of a difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "change",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum DumpChange {
    /// Only one dump has the object itself: the chain, the set, the file.
    Whole {
        /// Dump that has the object.
        only: Side,
        /// First line of the object, from 1; 0 if the object is from no file.
        line: u32,
    },
    /// Only one dump has this rule, entry, server, address or route.
    Item {
        /// Dump that has the item.
        only: Side,
        /// Source text of the item.
        item: String,
        /// Line of the item, from 1; 0 if the item is from no file.
        line: u32,
    },
    /// Both dumps have the item, at different positions of its list.
    Moved {
        /// Source text of the item in the first dump.
        item: String,
        /// Line in the first dump, from 1; 0 if the item is from no file.
        first: u32,
        /// Line in the second dump, from 1; 0 if the item is from no file.
        second: u32,
    },
    /// Property or sysctl with different values.
    Value {
        /// Name of the property: `policy`, `maxelem`, `net.ipv4.ip_forward`.
        property: String,
        /// Value in the first dump; absent if unset.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first: Option<String>,
        /// Value in the second dump; absent if unset.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        second: Option<String>,
    },
}

/// Side of a comparison of two dumps.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// First dump.
    First,
    /// Second dump.
    Second,
}

/// Owner of an object.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// Port of a Service for which the object was written: `default/web:http`.
    Service(String),
    /// Component that wrote the object: `kube-proxy`.
    Component(String),
}

impl Side {
    /// Returns the sign in a diff: `-` for the first dump, `+` for the second.
    #[must_use]
    pub const fn sign(self) -> char {
        match self {
            Self::First => '-',
            Self::Second => '+',
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(name) => write!(f, "Service {name}"),
            Self::Component(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for DumpLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = |family: &Family| match family {
            Family::V4 => "",
            Family::V6 => "IPv6 ",
        };
        match self {
            Self::File { program } => write!(f, "output of `{program}`"),
            Self::Chain {
                program,
                table,
                chain,
            } => {
                let program = program.strip_suffix("-save").unwrap_or(program);
                let program = program.strip_suffix(" list ruleset").unwrap_or(program);
                write!(f, "{program} {table} {chain}")
            }
            Self::NftTable { table } => write!(f, "nft {table}"),
            Self::NftSet { table, name } => write!(f, "nft {table} @{name}"),
            Self::Set { name } => write!(f, "ipset {name}"),
            Self::Server { server } => write!(f, "ipvs {server}"),
            Self::Link { name } => write!(f, "interface {name}"),
            Self::BridgePort { name } => write!(f, "bridge port {name}"),
            Self::Forwarding { interface } => write!(f, "forwarding entries of {interface}"),
            Self::Neighbours { interface } => write!(f, "neighbours on {interface}"),
            Self::Routes { family: ip, table } => write!(f, "{}routes, table {table}", family(ip)),
            Self::Policy { family: ip } => write!(f, "{}routing rules", family(ip)),
            Self::TrafficControl { object, place } => write!(f, "tc {object} of {place}"),
            Self::IpsecPolicies => f.write_str("IPsec policies"),
            Self::Connections => f.write_str("tracked connections"),
            Self::KubeProxy => f.write_str("kube-proxy"),
            Self::Sysctls => f.write_str("sysctl"),
        }
    }
}

impl DumpLocation {
    /// Returns the program that prints the object.
    #[must_use]
    pub fn program(&self) -> &str {
        match self {
            Self::File { program } | Self::Chain { program, .. } => program,
            Self::NftTable { .. } | Self::NftSet { .. } => Format::Nft.command(),
            Self::Set { .. } => Format::Sets.command(),
            Self::Server { .. } => Format::VirtualServers.command(),
            Self::Link { .. } => Format::Links.command(),
            Self::BridgePort { .. } => Format::BridgePorts.command(),
            Self::Forwarding { .. } => Format::Forwarding.command(),
            Self::Neighbours { .. } => Format::Neighbours.command(),
            Self::Routes { family, .. } => Format::Routes(*family).command(),
            Self::Policy { family } => Format::RoutingRules(*family).command(),
            Self::TrafficControl { object, .. } => match object.as_str() {
                "class" => Format::TrafficClasses.command(),
                "filter" => Format::TrafficFilters.command(),
                _ => Format::Qdiscs.command(),
            },
            Self::IpsecPolicies => Format::IpsecPolicies.command(),
            Self::Connections => Format::Connections.command(),
            Self::KubeProxy => "kube-proxy",
            Self::Sysctls => Format::Sysctls.command(),
        }
    }
}

/// Renders the change as a line of a diff. Values with several lines are joined.
impl fmt::Display for DumpChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole { only, .. } => write!(f, "{} whole object", only.sign()),
            Self::Item { only, item, .. } => write!(f, "{} {item}", only.sign()),
            Self::Moved { item, .. } => write!(f, "~ {item}"),
            Self::Value {
                property: what,
                first,
                second,
            } => {
                let value_or_none =
                    |value: &Option<String>| value.clone().unwrap_or("none".to_owned());
                write!(
                    f,
                    "! {what}: {} | {}",
                    value_or_none(first),
                    value_or_none(second)
                )
            }
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.change)
    }
}
