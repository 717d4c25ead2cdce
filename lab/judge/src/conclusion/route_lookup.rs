//! Looks up routes in the plan of a namespace as the kernel does: routing rules by priority, then
//! the longest prefix in each table (Linux v6.12, `net/core/fib_rules.c`, `fib_rules_lookup`, and
//! `net/ipv4/fib_trie.c`, `fib_table_lookup`).

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_model::plan::{MultipathRoute, Namespace, Route, RouteKind, RoutingAction, RoutingRule};

/// Numbers of the tables `local`, `main` and `default` (Linux v6.12,
/// `include/uapi/linux/rtnetlink.h`, `RT_TABLE_LOCAL` and others).
const LOCAL_TABLE: u32 = 255;
const MAIN_TABLE: u32 = 254;
const DEFAULT_TABLE: u32 = 253;

/// Packet whose route is looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct RouteQuery<'q> {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// Netfilter mark.
    pub mark: u32,
    /// Interface that received the packet; `lo` for a packet of the namespace itself.
    pub ingress: &'q str,
}

/// Result of a route lookup in the plan of a namespace.
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
    pub(super) fn new(namespace: &Namespace, query: RouteQuery<'_>) -> Self {
        let default_rules = [
            (0, LOCAL_TABLE),
            (32_766, MAIN_TABLE),
            (32_767, DEFAULT_TABLE),
        ];
        let mut steps: Vec<(u32, Option<&RoutingRule>, RoutingAction)> = default_rules
            .map(|(priority, table)| (priority, None, RoutingAction::Table(table)))
            .to_vec();
        let rules = namespace.routing_rules.iter();
        let matching = rules.filter(|rule| matches(rule, query));
        steps.extend(matching.map(|rule| (rule.priority, Some(rule), rule.action)));
        // A later rule of the same priority comes after the earlier ones.
        steps.sort_by_key(|(priority, ..)| *priority);
        let (mut tables, mut thrown) = (Vec::new(), Vec::new());
        for (_, rule, action) in steps {
            let found = |decision, thrown| Self {
                address: query.destination,
                decision,
                rule: rule.map(ToString::to_string),
                thrown,
            };
            let RoutingAction::Table(table) = action else {
                return found(RouteDecision::RuleRefusal, thrown);
            };
            if !tables.contains(&table) {
                tables.push(table);
            }
            let Some(entry) = longest_match(namespace, table, query.destination) else {
                continue;
            };
            let is_suppressed = rule
                .and_then(|rule| rule.suppress_prefix_length)
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

/// Entry of a routing table.
struct Entry {
    prefix: u8,
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
    let holds = contains(rule.from, query.source)
        && contains(rule.to, query.destination)
        && is_marked
        && input_interface.is_none_or(|name| name == query.ingress)
        // No socket of a lab is bound to an interface.
        && rule.output_interface.is_none();
    rule.v6 == query.destination.is_ipv6() && holds != rule.inverted
}

/// Returns the entry of a table with the longest prefix and then the lowest metric.
fn longest_match(namespace: &Namespace, table: u32, to: IpAddr) -> Option<Entry> {
    let table_of = |number: Option<u32>| number.unwrap_or(MAIN_TABLE);
    let routes = namespace.routes.iter();
    let routes = routes.filter(|route| table_of(route.table) == table && route.to.contains(to));
    let routes = routes.filter(|route| is_up(namespace, &route.dev));
    let mut entries: Vec<Entry> = routes.map(|route| Entry::new(route, table)).collect();
    let multipath = namespace.multipath_routes.iter();
    let multipath =
        multipath.filter(|route| table_of(route.table) == table && route.to.contains(to));
    entries.extend(multipath.map(Entry::from_multipath));
    match table {
        LOCAL_TABLE => entries.extend(local_entry(namespace, to)),
        MAIN_TABLE => entries.extend(connected_entries(namespace, to)),
        _ => {}
    }
    entries
        .into_iter()
        .min_by_key(|entry| (u8::MAX - entry.prefix, entry.metric))
}

/// Whether an interface is up. The kernel removes the routes of an interface that is down. A route
/// that refuses packets has no interface.
fn is_up(namespace: &Namespace, interface: &str) -> bool {
    let mut links = namespace.links.iter();
    !links.any(|link| link.name == interface && link.down)
}

fn local_entry(namespace: &Namespace, to: IpAddr) -> Option<Entry> {
    let links = namespace.links.iter();
    let addresses = links.flat_map(|link| link.addresses.iter().map(|own| (own, &*link.name)));
    let loopback = namespace.loopback.iter().map(|own| (own, "lo"));
    let mut addresses = addresses.chain(loopback);
    let interface = if to.is_loopback() {
        "lo"
    } else {
        addresses.find(|(own, _)| own.ip() == to)?.1
    };
    Some(Entry {
        prefix: if to.is_ipv4() { 32 } else { 128 },
        metric: 0,
        text: String::new(),
        decision: Some(RouteDecision::Local {
            interface: interface.to_owned(),
        }),
    })
}

/// Returns the routes that the kernel adds for the subnets of interface addresses.
fn connected_entries(namespace: &Namespace, to: IpAddr) -> impl Iterator<Item = Entry> + '_ {
    let links = namespace.links.iter().filter(|link| !link.down);
    let subnets = links.flat_map(|link| link.addresses.iter().map(move |own| (link, own)));
    let subnets = subnets.filter(move |(link, own)| {
        let is_removed = |(network, interface): &(IpNetwork, String)| {
            network.network() == own.network()
                && network.prefix() == own.prefix()
                && *interface == link.name
        };
        // An address with the longest prefix has no subnet.
        let longest = if own.is_ipv4() { 32 } else { 128 };
        own.contains(to)
            && own.prefix() < longest
            && !namespace.removed_routes.iter().any(is_removed)
    });
    subnets.map(move |(link, own)| Entry {
        prefix: own.prefix(),
        metric: default_metric(to),
        text: String::new(),
        decision: Some(RouteDecision::Unicast {
            route: format!("{}/{} dev {}", own.network(), own.prefix(), link.name),
            interfaces: vec![link.name.clone()],
            via: None,
        }),
    })
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
            metric: route.metric.unwrap_or(default_metric(route.to.ip())),
            text,
            decision,
        }
    }

    fn from_multipath(route: &MultipathRoute) -> Self {
        let interfaces = route.next_hops.iter().map(|hop| hop.dev.clone());
        Self {
            prefix: route.to.prefix(),
            metric: route.metric.unwrap_or(default_metric(route.to.ip())),
            text: route.to_string(),
            decision: Some(RouteDecision::Unicast {
                route: route.to_string(),
                interfaces: interfaces.collect(),
                via: None,
            }),
        }
    }
}
