//! Looks up routes in the state of a namespace as the kernel does: routing rules by priority, then
//! the longest prefix in each table (Linux v6.12, `net/core/fib_rules.c`, `fib_rules_lookup`, and
//! `net/ipv4/fib_trie.c`, `fib_table_lookup`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_journey::journey::{Hop, PacketPath};
use svclab_model::evidence::NetworkState;
use svclab_model::plan::{
    MultipathRoute, Probe, ProbeProtocol, Route, RouteKind, RouteSettings, RoutingAction,
    RoutingRule,
};

/// Numbers of the tables `local` and `main` (Linux v6.12,
/// `include/uapi/linux/rtnetlink.h`, `RT_TABLE_LOCAL` and others).
pub(super) const LOCAL_TABLE: u32 = 255;
pub(super) const MAIN_TABLE: u32 = 254;

/// Packet whose route is looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteQuery<'q> {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// Netfilter mark.
    pub mark: u32,
    /// Interface that received the packet; `lo` for a packet of the namespace itself.
    pub ingress: &'q str,
    pub transport: Transport,
}

/// Protocol and ports of a packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Transport {
    /// Number of the IP protocol; `None` if it is unknown.
    pub protocol: Option<u8>,
    pub source_port: u16,
    pub destination_port: u16,
}

impl Transport {
    /// Returns those of a tunnel packet.
    pub(crate) const fn udp(source_port: u16, destination_port: u16) -> Self {
        Self {
            protocol: Some(17),
            source_port,
            destination_port,
        }
    }

    /// Returns those of a packet in the other direction.
    pub(crate) const fn reversed(self) -> Self {
        Self {
            protocol: self.protocol,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }
}

/// Returns the protocol and the ports of a packet where its namespace routes it.
pub(crate) fn inner_transport(flight: &PacketPath, hop: &Hop) -> Transport {
    let destination = hop.after.destination;
    Transport {
        protocol: flight.kind.ip_protocol(destination.is_ipv6()),
        source_port: hop.before.source.port(),
        destination_port: destination.port(),
    }
}

impl RouteQuery<'_> {
    /// Returns the lookup for a packet of the namespace itself, of any protocol. Without a bound
    /// address, the kernel chooses the source after the lookup.
    pub(crate) fn unbound(destination: IpAddr) -> Self {
        Self {
            source: match destination {
                IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            },
            destination,
            mark: 0,
            ingress: "lo",
            transport: Transport::default(),
        }
    }

    /// Returns the lookup for the first packet of a probe.
    pub(crate) fn of_probe(probe: &Probe) -> Self {
        let destination = probe.target.socket().ip();
        let unbound = Self::unbound(destination);
        Self {
            source: probe.bind.unwrap_or(unbound.source),
            transport: Transport {
                protocol: match probe.protocol {
                    ProbeProtocol::Tcp => Some(6),
                    ProbeProtocol::Udp => Some(17),
                    ProbeProtocol::Ping => None,
                },
                // The kernel chooses an unset port after the lookup.
                source_port: probe.source_port_of(0).unwrap_or(0),
                destination_port: probe.target.port,
            },
            ..unbound
        }
    }
}

/// Result of a route lookup in the state of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteLookup {
    /// Address that was looked up.
    pub address: IpAddr,
    /// Decision about the address.
    pub decision: RouteDecision,
    /// Routing rule that led to the decision, as arguments of `ip rule add`; absent for the rules
    /// that the kernel adds itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// `throw` routes that ended the lookup in their tables, as arguments of `ip route add`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thrown: Vec<String>,
}

/// Decision of a route lookup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RouteDecision {
    /// No table has a route. Lists the numbers of the tables in the order of the lookup.
    None {
        /// Numbers of the tables.
        tables: Vec<u32>,
    },
    /// The address belongs to the namespace.
    Local {
        /// Interface with the address.
        interface: String,
    },
    /// A route sends packets.
    Unicast {
        /// Route as arguments of `ip route add`.
        route: String,
        /// Interfaces of the next hops.
        interfaces: Vec<String>,
        /// Address of the next hop; absent if the address is on the link, or if there are several
        /// next hops.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<IpAddr>,
        /// Source address of packets that the namespace sends; absent if the kernel chooses it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<IpAddr>,
        /// Conditions and settings of the route.
        #[serde(flatten)]
        settings: RouteSettings,
    },
    /// A route refuses packets.
    Refusal {
        /// Route as arguments of `ip route add`.
        route: String,
        /// Number of its table.
        table: u32,
    },
    /// A routing rule refuses packets: [`RouteLookup::rule`].
    RuleRefusal,
}

impl RouteLookup {
    /// Whether no route leads to the address, or a route or a rule refuses it.
    pub(crate) const fn is_unroutable(&self) -> bool {
        matches!(
            self.decision,
            RouteDecision::None { .. } | RouteDecision::Refusal { .. } | RouteDecision::RuleRefusal
        )
    }

    pub(crate) fn new(state: &NetworkState, query: RouteQuery<'_>) -> Self {
        let mut rules: Vec<&RoutingRule> = state.routing_rules.iter().collect();
        // The kernel keeps the order of rules with the same priority.
        rules.sort_by_key(|rule| rule.priority);
        let (mut tables, mut thrown) = (Vec::new(), Vec::new());
        for rule in rules.into_iter().filter(|rule| matches(rule, query)) {
            let found = |decision, thrown| Self {
                address: query.destination,
                decision,
                rule: (!is_default(rule)).then(|| rule.to_string()),
                thrown,
            };
            let RoutingAction::Table(table) = rule.action else {
                return found(RouteDecision::RuleRefusal, thrown);
            };
            if !tables.contains(&table) {
                tables.push(table);
            }
            let Some(entry) = longest_match(state, table, query) else {
                continue;
            };
            let is_suppressed = rule
                .suppress_prefix_length
                .is_some_and(|length| u32::from(entry.prefix) <= length);
            match entry.decision {
                _ if is_suppressed => {}
                Some(decision) => return found(decision, thrown),
                None => thrown.push(entry.text),
            }
        }
        Self {
            address: query.destination,
            decision: RouteDecision::None { tables },
            rule: None,
            thrown,
        }
    }
}

impl RouteDecision {
    /// Whether two decisions have the same effect on packets. The texts of the routes may differ.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        let kind = |route: &str| route.split(' ').next().map(str::to_owned);
        match (self, other) {
            (
                Self::Unicast {
                    interfaces,
                    via,
                    source,
                    settings,
                    ..
                },
                Self::Unicast {
                    interfaces: other_interfaces,
                    via: other_via,
                    source: other_source,
                    settings: other_settings,
                    ..
                },
            ) => {
                interfaces == other_interfaces
                    && via == other_via
                    && source == other_source
                    && settings == other_settings
            }
            (Self::Refusal { route, .. }, Self::Refusal { route: other, .. }) => {
                kind(route) == kind(other)
            }
            (Self::None { .. }, Self::None { .. }) => true,
            _ => self == other,
        }
    }
}

/// Whether the kernel adds the rule itself.
fn is_default(rule: &RoutingRule) -> bool {
    RoutingRule::kernel_rules().any(|own| own == *rule)
}

/// Entry of a routing table.
struct Entry {
    prefix: u8,
    source_prefix: u8,
    metric: u32,
    text: String,
    /// `None` for a `throw` route.
    decision: Option<RouteDecision>,
}

fn matches(rule: &RoutingRule, query: RouteQuery<'_>) -> bool {
    let contains =
        |network: Option<IpNetwork>, ip| network.is_none_or(|network| network.contains(ip));
    let is_marked = rule
        .mark
        .is_none_or(|(mark, mask)| query.mark & mask == mark & mask);
    let input_interface = rule.input_interface.as_deref();
    let transport = query.transport;
    let has_port = |ports: Option<(u16, u16)>, port| {
        ports.is_none_or(|(first, last)| (first..=last).contains(&port))
    };
    let holds = contains(rule.from, query.source)
        && contains(rule.to, query.destination)
        && is_marked
        && input_interface.is_none_or(|name| name == query.ingress)
        // No socket of a lab is bound to an interface.
        && rule.output_interface.is_none()
        && rule.ip_protocol.is_none_or(|own| transport.protocol == Some(own))
        && has_port(rule.source_ports, transport.source_port)
        && has_port(rule.destination_ports, transport.destination_port);
    !rule.other_conditions && rule.v6 == query.destination.is_ipv6() && holds != rule.inverted
}

/// Returns the entry of a table with the longest prefix, then the longest source prefix and then the
/// lowest metric. Probes send packets of traffic class 0, which routes of other classes do not serve.
fn longest_match(state: &NetworkState, table: u32, query: RouteQuery<'_>) -> Option<Entry> {
    let is_entry = |network: IpNetwork, own: Option<u32>, settings: RouteSettings| {
        own.unwrap_or(MAIN_TABLE) == table
            && network.contains(query.destination)
            && settings.tos.is_none()
            && settings.from.is_none_or(|from| from.contains(query.source))
    };
    let routes = state.routes.iter();
    let routes = routes.filter(|route| is_entry(route.to, route.table, route.settings));
    let multipath = state.multipath_routes.iter();
    let multipath = multipath.filter(|route| is_entry(route.to, route.table, route.settings));
    let rank = |entry: &Entry| {
        let lengths = (u8::MAX - entry.prefix, u8::MAX - entry.source_prefix);
        (lengths, entry.metric)
    };
    routes
        .map(|route| Entry::new(route, table))
        .chain(multipath.map(Entry::from_multipath))
        .min_by_key(rank)
}

fn source_prefix(settings: RouteSettings) -> u8 {
    settings.from.map_or(0, |from| from.prefix())
}

/// Metric of a route without one: 0 for IPv4, 1024 for IPv6 (Linux v6.12,
/// `include/uapi/linux/ipv6_route.h`, `IP6_RT_PRIO_USER`).
const fn default_metric(address: IpAddr) -> u32 {
    if address.is_ipv4() { 0 } else { 1024 }
}

impl Entry {
    fn new(route: &Route, table: u32) -> Self {
        let text = route.to_string();
        let decision = match route.kind {
            RouteKind::Unicast => Some(RouteDecision::Unicast {
                route: text.clone(),
                interfaces: vec![route.dev.clone()],
                via: route.via,
                source: route.source,
                settings: route.settings,
            }),
            RouteKind::Local => Some(RouteDecision::Local {
                interface: route.dev.clone(),
            }),
            RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => {
                Some(RouteDecision::Refusal {
                    route: text.clone(),
                    table,
                })
            }
            RouteKind::Throw => None,
        };
        Self {
            prefix: route.to.prefix(),
            source_prefix: source_prefix(route.settings),
            metric: route.metric.unwrap_or(default_metric(route.to.ip())),
            text,
            decision,
        }
    }

    fn from_multipath(route: &MultipathRoute) -> Self {
        let interfaces = route.next_hops.iter().map(|hop| hop.dev.clone());
        Self {
            prefix: route.to.prefix(),
            source_prefix: source_prefix(route.settings),
            metric: route.metric.unwrap_or(default_metric(route.to.ip())),
            text: route.to_string(),
            decision: Some(RouteDecision::Unicast {
                route: route.to_string(),
                interfaces: interfaces.collect(),
                via: None,
                source: route.source,
                settings: route.settings,
            }),
        }
    }
}
