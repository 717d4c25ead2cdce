//! Routes, and the rules by which packets look for theirs.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

/// One route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Where to; a default route has prefix length 0.
    pub to: IpNetwork,
    /// The next hop, unless the destination is on the link itself.
    pub via: Option<IpAddr>,
    /// The interface, by name; empty where packets go nowhere.
    pub dev: String,
    /// The next hop is on that link whatever its addresses say.
    #[serde(default)]
    pub onlink: bool,
    /// The source address preferred for what starts here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// What becomes of the packets.
    #[serde(default, skip_serializing_if = "RouteKind::is_unicast")]
    pub kind: RouteKind,
    /// The table by its number; the main one, which is 254, without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Of two routes to the same place the one with the lower number is taken; as the
    /// kernel chooses without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// A route of several ways: each connection takes one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// Where to.
    pub to: IpNetwork,
    /// The ways; of one family with `to`.
    pub ways: Vec<Way>,
    /// As of [`Route::source`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// As of [`Route::table`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// As of [`Route::metric`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// One of the ways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// The next hop; none where the destination is on the link itself.
    pub via: Option<IpAddr>,
    /// The interface, by name.
    pub dev: String,
    /// How many connections take it, against the other ways' weights: 1 to 256.
    pub weight: u16,
    /// The next hop is on that link whatever its addresses say.
    #[serde(default)]
    pub onlink: bool,
}

/// As `ip route add` takes it.
impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.to)?;
        if let Some(table) = self.table {
            write!(f, " table {table}")?;
        }
        if let Some(metric) = self.metric {
            write!(f, " metric {metric}")?;
        }
        if let Some(source) = self.source {
            write!(f, " src {source}")?;
        }
        for way in &self.ways {
            f.write_str(" nexthop")?;
            if let Some(via) = way.via {
                write!(f, " via {via}")?;
            }
            write!(f, " dev {} weight {}", way.dev, way.weight)?;
            if way.onlink {
                f.write_str(" onlink")?;
            }
        }
        Ok(())
    }
}

/// What becomes of packets that take a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteKind {
    /// They are sent there.
    #[default]
    Unicast,
    /// They are for this machine.
    Local,
    /// They are dropped, and nothing is said.
    Blackhole,
    /// Their sender is told that there is no way.
    Unreachable,
    /// Their sender is told that it is forbidden.
    Prohibit,
    /// The next rule's table is asked.
    Throw,
}

impl RouteKind {
    /// The word that `ip` has for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unicast => "unicast",
            Self::Local => "local",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
            Self::Throw => "throw",
        }
    }

    /// Whether packets are sent somewhere.
    #[must_use]
    pub const fn is_unicast(&self) -> bool {
        matches!(self, Self::Unicast)
    }
}

/// As `ip route add` takes it.
impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.kind.is_unicast() {
            write!(f, "{} ", self.kind.word())?;
        }
        write!(f, "{}", self.to)?;
        if let Some(via) = self.via {
            write!(f, " via {via}")?;
        }
        if !self.dev.is_empty() {
            write!(f, " dev {}", self.dev)?;
        }
        if let Some(table) = self.table {
            write!(f, " table {table}")?;
        }
        if let Some(metric) = self.metric {
            write!(f, " metric {metric}")?;
        }
        if let Some(source) = self.source {
            write!(f, " src {source}")?;
        }
        if self.onlink {
            f.write_str(" onlink")?;
        }
        Ok(())
    }
}

/// A rule that says in which table packets look for their route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRule {
    /// When it is asked: the lower, the earlier.
    pub priority: u32,
    /// Whether it is of IPv6.
    #[serde(default)]
    pub v6: bool,
    /// Whether it is for packets that do *not* match.
    #[serde(default)]
    pub not: bool,
    /// The network of sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<IpNetwork>,
    /// The network of destinations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<IpNetwork>,
    /// Which mark, and which of its bits are looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<(u32, u32)>,
    /// The interface they came in by; `lo` for what starts here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incoming: Option<String>,
    /// The interface that a socket is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outgoing: Option<String>,
    /// Routes whose prefixes are no longer than this are passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress: Option<u32>,
    /// What is done.
    pub then: Lookup,
}

/// What a routing rule has done with packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lookup {
    /// The table of that number is asked.
    Table(u32),
    /// They are dropped, and nothing is said.
    Blackhole,
    /// Their sender is told that there is no way.
    Unreachable,
    /// Their sender is told that it is forbidden.
    Prohibit,
}

/// As `ip rule add` takes it.
impl std::fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "priority {}", self.priority)?;
        if self.not {
            f.write_str(" not")?;
        }
        match self.from {
            Some(from) => write!(f, " from {from}")?,
            None => f.write_str(" from all")?,
        }
        if let Some(to) = self.to {
            write!(f, " to {to}")?;
        }
        if let Some((mark, mask)) = self.mark {
            write!(f, " fwmark {mark:#x}/{mask:#x}")?;
        }
        if let Some(dev) = &self.incoming {
            write!(f, " iif {dev}")?;
        }
        if let Some(dev) = &self.outgoing {
            write!(f, " oif {dev}")?;
        }
        match self.then {
            Lookup::Table(table) => write!(f, " lookup {table}")?,
            Lookup::Blackhole => f.write_str(" blackhole")?,
            Lookup::Unreachable => f.write_str(" unreachable")?,
            Lookup::Prohibit => f.write_str(" prohibit")?,
        }
        if let Some(length) = self.suppress {
            write!(f, " suppress_prefixlength {length}")?;
        }
        Ok(())
    }
}
