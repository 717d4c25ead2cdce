//! Defines routes and routing rules, and formats them as `ip` arguments.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Route with at most one next hop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// Destination network. A default route has prefix length 0.
    #[schemars(with = "String")]
    pub to: IpNetwork,
    /// Next hop. `None` if the destination is on the link itself.
    pub via: Option<IpAddr>,
    /// Name of the interface. Empty for a route that drops packets.
    pub dev: String,
    /// Whether the kernel treats the next hop as on-link, independent of the interface addresses.
    #[serde(default)]
    pub onlink: bool,
    /// Preferred source address of local packets. `None` leaves the choice to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Action on matching packets.
    #[serde(default, skip_serializing_if = "RouteKind::is_unicast")]
    pub kind: RouteKind,
    /// Number of the routing table. `None` is the main table, 254.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Metric. The route with the lowest metric wins among routes with the same destination. `None`
    /// is the default of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// Conditions and settings that few routes have.
    #[serde(flatten)]
    pub settings: RouteSettings,
}

/// Conditions and settings that few routes have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteSettings {
    /// Traffic class (TOS) of the packets that the route serves, IPv4 only. `None` serves all
    /// packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tos: Option<u8>,
    /// Source network of the packets that the route serves, IPv6 only. `None` serves all packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub from: Option<IpNetwork>,
    /// MTU of the route in bytes. `None` if the MTU of the interface applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Whether ICMP errors about too large packets do not change the MTU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mtu_locked: bool,
    /// Maximum segment size that connections announce, in bytes. `None` follows from the MTU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertised_mss: Option<u32>,
    /// Hop limit (TTL) of packets that the namespace sends. `None` is that of the sysctls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop_limit: Option<u32>,
}

/// Formats the settings as arguments of `ip route add`, each after a space.
impl std::fmt::Display for RouteSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(tos) = self.tos {
            write!(f, " tos {tos:#04x}")?;
        }
        if let Some(from) = self.from {
            write!(f, " from {from}")?;
        }
        if let Some(mtu) = self.mtu {
            let lock = if self.mtu_locked { "lock " } else { "" };
            write!(f, " mtu {lock}{mtu}")?;
        }
        if let Some(mss) = self.advertised_mss {
            write!(f, " advmss {mss}")?;
        }
        if let Some(limit) = self.hop_limit {
            write!(f, " hoplimit {limit}")?;
        }
        Ok(())
    }
}

impl Route {
    /// Creates a route of the main table without a next hop.
    #[must_use]
    pub fn new(to: IpNetwork, dev: impl Into<String>) -> Self {
        Self {
            to,
            via: None,
            dev: dev.into(),
            onlink: false,
            source: None,
            kind: RouteKind::Unicast,
            table: None,
            metric: None,
            settings: RouteSettings::default(),
        }
    }
}

/// Multipath route. Each connection uses one of the next hops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultipathRoute {
    /// Destination network.
    #[schemars(with = "String")]
    pub to: IpNetwork,
    /// Next hops, of the same address family as `to`.
    pub next_hops: Vec<NextHop>,
    /// Preferred source address, see [`Route::source`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Number of the routing table, see [`Route::table`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Metric, see [`Route::metric`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// Conditions and settings, see [`Route::settings`].
    #[serde(flatten)]
    pub settings: RouteSettings,
}

/// Next hop of a multipath route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextHop {
    /// Address of the next hop. `None` if the destination is on the link itself.
    pub via: Option<IpAddr>,
    /// Name of the interface.
    pub dev: String,
    /// Weight of the next hop, 1 to 256. The share of connections is proportional to the weight.
    pub weight: u16,
    /// Whether the kernel treats the next hop as on-link, independent of the interface addresses.
    #[serde(default)]
    pub onlink: bool,
}

/// Formats the route as arguments of `ip route add`.
impl std::fmt::Display for MultipathRoute {
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
        write!(f, "{}", self.settings)?;
        for hop in &self.next_hops {
            f.write_str(" nexthop")?;
            if let Some(via) = hop.via {
                write!(f, " via {via}")?;
            }
            write!(f, " dev {} weight {}", hop.dev, hop.weight)?;
            if hop.onlink {
                f.write_str(" onlink")?;
            }
        }
        Ok(())
    }
}

/// Type of a route, which determines the action on matching packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RouteKind {
    /// Forwards the packets.
    #[default]
    Unicast,
    /// Delivers the packets locally.
    Local,
    /// Drops the packets silently.
    Blackhole,
    /// Drops the packets and sends an ICMP unreachable error to the sender.
    Unreachable,
    /// Drops the packets and sends an ICMP administratively prohibited error to the sender.
    Prohibit,
    /// Ends the lookup in this table and continues with the next routing rule.
    Throw,
}

impl RouteKind {
    /// Returns the route type as `ip` writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unicast => "unicast",
            Self::Local => "local",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
            Self::Throw => "throw",
        }
    }

    /// Whether the route forwards packets.
    #[must_use]
    pub const fn is_unicast(&self) -> bool {
        matches!(self, Self::Unicast)
    }
}

/// Formats the route as arguments of `ip route add`.
impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.kind.is_unicast() {
            write!(f, "{} ", self.kind.name())?;
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
        write!(f, "{}", self.settings)
    }
}

/// Routing rule, which selects the routing table for packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoutingRule {
    /// Priority. The kernel evaluates rules with low numbers first.
    pub priority: u32,
    /// Whether the rule is an IPv6 rule.
    #[serde(default)]
    pub v6: bool,
    /// Whether the rule matches all packets that do *not* fulfil the conditions.
    #[serde(default)]
    pub inverted: bool,
    /// Source network. `None` matches all sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub from: Option<IpNetwork>,
    /// Destination network. `None` matches all destinations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub to: Option<IpNetwork>,
    /// Mark and mask. `None` matches all marks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<(u32, u32)>,
    /// Input interface, `lo` for locally generated packets. `None` matches all interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_interface: Option<String>,
    /// Interface that the socket is bound to. `None` matches all sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_interface: Option<String>,
    /// Number of the IP protocol. `None` matches all protocols.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_protocol: Option<u8>,
    /// First and last source port. `None` matches all ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<(u16, u16)>,
    /// First and last destination port. `None` matches all ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_ports: Option<(u16, u16)>,
    /// Whether the rule has further conditions, such as a user or a traffic class, which svclab does
    /// not evaluate: no packet counts as matching.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_conditions: bool,
    /// Ignores routes with a prefix length of at most this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress_prefix_length: Option<u32>,
    /// Action on matching packets.
    pub action: RoutingAction,
}

impl RoutingRule {
    /// Returns the rules that the kernel adds itself, in its order (Linux v6.12,
    /// `net/ipv4/fib_rules.c`, `fib_default_rules_init`, and `net/ipv6/fib6_rules.c`,
    /// `fib6_rules_net_init`).
    pub fn kernel_rules() -> impl Iterator<Item = Self> {
        let all = [
            (false, 0, 255),
            (false, 32_766, 254),
            (false, 32_767, 253),
            (true, 0, 255),
            (true, 32_766, 254),
        ];
        all.into_iter()
            .map(|(v6, priority, table)| Self::new(v6, priority, RoutingAction::Table(table)))
    }

    /// Creates a rule that matches all packets.
    #[must_use]
    pub const fn new(v6: bool, priority: u32, action: RoutingAction) -> Self {
        Self {
            priority,
            v6,
            inverted: false,
            from: None,
            to: None,
            mark: None,
            input_interface: None,
            output_interface: None,
            ip_protocol: None,
            source_ports: None,
            destination_ports: None,
            other_conditions: false,
            suppress_prefix_length: None,
            action,
        }
    }
}

/// Action of a routing rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RoutingAction {
    /// Looks the route up in the table with this number.
    Table(u32),
    /// Drops the packets silently.
    Blackhole,
    /// Drops the packets and sends an ICMP unreachable error to the sender.
    Unreachable,
    /// Drops the packets and sends an ICMP administratively prohibited error to the sender.
    Prohibit,
}

/// Formats the rule as arguments of `ip rule add`.
impl std::fmt::Display for RoutingRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "priority {}", self.priority)?;
        if self.inverted {
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
        if let Some(dev) = &self.input_interface {
            write!(f, " iif {dev}")?;
        }
        if let Some(dev) = &self.output_interface {
            write!(f, " oif {dev}")?;
        }
        if let Some(protocol) = self.ip_protocol {
            match protocol {
                6 => f.write_str(" ipproto tcp")?,
                17 => f.write_str(" ipproto udp")?,
                _ => write!(f, " ipproto {protocol}")?,
            }
        }
        for (name, ports) in [
            ("sport", self.source_ports),
            ("dport", self.destination_ports),
        ] {
            match ports {
                Some((first, last)) if first == last => write!(f, " {name} {first}")?,
                Some((first, last)) => write!(f, " {name} {first}-{last}")?,
                None => {}
            }
        }
        match self.action {
            // The names of iproute2 (v6.12, `lib/rt_names.c`, `rtnl_rttable_hash`).
            RoutingAction::Table(253) => f.write_str(" lookup default")?,
            RoutingAction::Table(254) => f.write_str(" lookup main")?,
            RoutingAction::Table(255) => f.write_str(" lookup local")?,
            RoutingAction::Table(table) => write!(f, " lookup {table}")?,
            RoutingAction::Blackhole => f.write_str(" blackhole")?,
            RoutingAction::Unreachable => f.write_str(" unreachable")?,
            RoutingAction::Prohibit => f.write_str(" prohibit")?,
        }
        if let Some(length) = self.suppress_prefix_length {
            write!(f, " suppress_prefixlength {length}")?;
        }
        Ok(())
    }
}
