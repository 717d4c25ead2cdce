//! In what two dumps differ: where, what, and whose it is.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_ruleset::tool::{Format, Ip};

/// Something in which two dumps differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Difference {
    /// Where.
    pub place: Place,
    /// What.
    #[serde(flatten)]
    pub change: Change,
    /// Whose it is, where the dumps tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// Where dumps differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(tag = "of", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Place {
    /// A file that only one of the dumps has.
    File {
        /// The program whose output it holds: `ipset save`.
        program: String,
    },
    /// A chain of iptables or nftables.
    Chain {
        /// The program that prints it: `iptables-save`.
        program: String,
        /// Its table: `nat`, `ip kube-proxy`.
        table: String,
        /// Its name.
        chain: String,
    },
    /// A table of nftables.
    NftTable {
        /// Its family and name: `ip kube-proxy`.
        table: String,
    },
    /// A set or map of nftables.
    NftSet {
        /// Its table: `ip kube-proxy`.
        table: String,
        /// Its name.
        name: String,
    },
    /// A set of ipset.
    Set {
        /// Its name.
        name: String,
    },
    /// A virtual server of IPVS.
    Server {
        /// What it takes packets for, as `ipvsadm` says it: `-t 10.96.0.10:80`.
        server: String,
    },
    /// An interface.
    Link {
        /// Its name.
        name: String,
    },
    /// A table of routes.
    Routes {
        /// Whose addresses.
        family: Ip,
        /// Its name or number.
        table: String,
    },
    /// The rules that say which table of routes is asked.
    Policy {
        /// Whose addresses.
        family: Ip,
    },
    /// Settings of the kernel.
    Sysctls,
}

/// What differs there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(
    tag = "change",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Change {
    /// Only one dump has the place itself: the chain, the set, the file.
    Whole {
        /// Which.
        only: Side,
        /// The line where it begins, from 1; 0 if it is of no file.
        line: u32,
    },
    /// Only one dump has this rule, entry, server, address or route.
    Item {
        /// Which.
        only: Side,
        /// As it was written.
        item: String,
        /// Its line, from 1; 0 if it is of no file.
        line: u32,
    },
    /// Both have it, but it stands elsewhere among others.
    Moved {
        /// As the first dump writes it.
        item: String,
        /// Its line in the first dump, from 1; 0 if it is of no file.
        first: u32,
        /// Its line in the second dump.
        second: u32,
    },
    /// A property or a setting.
    Value {
        /// Its name: `policy`, `maxelem`, `net.ipv4.ip_forward`.
        what: String,
        /// In the first dump.
        #[serde(skip_serializing_if = "Option::is_none")]
        first: Option<String>,
        /// In the second dump.
        #[serde(skip_serializing_if = "Option::is_none")]
        second: Option<String>,
    },
}

/// One of two dumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The first.
    First,
    /// The second.
    Second,
}

/// Whose something is.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// It was written for a port of a Service: `default/web:http`.
    Service(String),
    /// It was written by a component: `kube-proxy`.
    Component(String),
}

impl Side {
    /// How a difference is marked in a text: `-` for what only the first has.
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

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = |family: &Ip| match family {
            Ip::V4 => "",
            Ip::V6 => "IPv6 ",
        };
        match self {
            Self::File { program } => write!(f, "what `{program}` prints"),
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
            Self::Routes { family: ip, table } => write!(f, "{}routes, table {table}", family(ip)),
            Self::Policy { family: ip } => write!(f, "{}routing rules", family(ip)),
            Self::Sysctls => f.write_str("sysctl"),
        }
    }
}

impl Place {
    /// The program that prints it.
    #[must_use]
    pub fn program(&self) -> &str {
        match self {
            Self::File { program } | Self::Chain { program, .. } => program,
            Self::NftTable { .. } | Self::NftSet { .. } => Format::Nft.command(),
            Self::Set { .. } => Format::Sets.command(),
            Self::Server { .. } => Format::Servers.command(),
            Self::Link { .. } => Format::Links.command(),
            Self::Routes { family, .. } => Format::Routes(*family).command(),
            Self::Policy { family } => Format::Policy(*family).command(),
            Self::Sysctls => Format::Sysctls.command(),
        }
    }
}

/// As a line of a diff; what has several is joined.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole { only, .. } => write!(f, "{} all of it", only.sign()),
            Self::Item { only, item, .. } => write!(f, "{} {item}", only.sign()),
            Self::Moved { item, .. } => write!(f, "~ {item}"),
            Self::Value {
                what,
                first,
                second,
            } => {
                let said = |value: &Option<String>| value.clone().unwrap_or("none".to_owned());
                write!(f, "! {what}: {} | {}", said(first), said(second))
            }
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.change)
    }
}
