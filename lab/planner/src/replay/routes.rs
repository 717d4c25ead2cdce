//! Replays routes and routing rules of a dumped node.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::account::{Account, counted};
use super::links::listed;
use svclab_dump::NodeDump;
use svclab_model::plan::{
    Link, LinkKind, Lookup, Mac, Namespace, Neighbour, Plan, PolicyRule, Route, RouteKind, Spread,
    Way,
};
use svclab_ruleset::route::Route as Dumped;
use svclab_ruleset::route::rule::PolicyRule as DumpedRule;
use svclab_ruleset::tool::Ip;

/// Built-in routing tables (iproute2, `etc/iproute2/rt_tables`).
const TABLES: [(&str, u32); 3] = [("local", 255), ("main", 254), ("default", 253)];

/// Whether the kernel itself adds a route for an interface that is up: to local, link, broadcast
/// and multicast addresses, and the route without a match.
fn is_kernels(route: &Dumped) -> bool {
    let kind = route.kind.as_deref();
    let by_kernel = route.attributes.get("proto") == Some("kernel");
    let to_links = matches!(&*route.to, "fe80::/64" | "ff00::/8");
    let no_other = route.attributes.get("metric") == Some("4294967295");
    no_other
        || (by_kernel
            && (to_links
                || route.table() == "local"
                || matches!(kind, Some("local" | "broadcast" | "anycast" | "multicast"))))
}

/// Replaces the routes and routing rules of the node with those of the dump.
pub fn put(plan: &mut Plan, node: &str, dump: &NodeDump, account: &mut Account) {
    if dump.routes.is_empty() {
        account.stands_in("routes as the lab has them: `ip route` was not dumped");
    }
    if dump.routes.is_empty() && dump.policy.is_empty() {
        return;
    }
    let Some(namespace) = plan.namespace(node) else {
        return;
    };
    let mut kept: Vec<Route> = namespace.routes.clone();
    kept.retain(|route| {
        let ip = if route.to.is_ipv4() { Ip::V4 } else { Ip::V6 };
        !dump.routes.contains_key(&ip)
    });
    let mut routes = Vec::new();
    let mut left: Vec<(String, &'static str)> = Vec::new();
    let dumped = dump.routes.values().flatten();
    let mut spread = Vec::new();
    for route in dumped.filter(|route| !is_kernels(route)) {
        if !route.hops.is_empty() {
            match several(namespace, dump, route) {
                Ok(several) => spread.push(several),
                Err(because) => left.push((in_a_line(&route.written), because)),
            }
            continue;
        }
        match planned(namespace, dump, route) {
            Ok(Some(route)) => routes.push(route),
            Ok(None) => {}
            Err(because) => left.push((in_a_line(&route.written), because)),
        }
    }
    let count = routes.len() + spread.len();
    let unrouted = unrouted(namespace, dump);
    kept.extend(routes);
    if !dump.routes.is_empty() {
        // A next hop must be reachable by an earlier route.
        kept.sort_by_key(|route| route.via.is_some());
    }
    let ways = spread.iter().flat_map(|route: &Spread| &route.ways);
    let hops = kept
        .iter()
        .filter_map(|route| Some((route.via?, route.dev.as_str())));
    let hops = hops.chain(ways.filter_map(|way| Some((way.via?, way.dev.as_str()))));
    let neighbours = next_hops(plan, node, hops);
    let policy = policy(dump, &mut left);
    let rules = policy.len();
    if let Some(namespace) = plan.namespaces.iter_mut().find(|ns| ns.name == node) {
        namespace.routes = kept;
        namespace.spread = spread;
        namespace.unrouted = unrouted;
        namespace.neighbours.extend(neighbours);
        namespace.policy = policy;
    }
    if !dump.routes.is_empty() {
        let routes = counted(count, "route", "routes");
        account.is_real(format!("{routes} besides the kernel's own"));
    }
    if rules > 0 {
        account.is_real(counted(rules, "routing rule", "routing rules"));
    }
    let mut reasons: Vec<&'static str> = left.iter().map(|(_, because)| *because).collect();
    reasons.sort_unstable();
    reasons.dedup();
    for because in reasons {
        let of = left.iter().filter(|(_, other)| *other == because);
        let lines: Vec<String> = of.map(|(line, _)| format!("`{line}`")).collect();
        account.left_out(
            listed(&lines),
            because,
            "packets that took it go another way",
        );
    }
}

/// Returns the route for the plan; `None` if the kernel adds the route with an address.
///
/// # Errors
///
/// Returns the reason if the route cannot be replayed.
pub(super) fn planned(
    namespace: &Namespace,
    dump: &NodeDump,
    route: &Dumped,
) -> Result<Option<Route>, &'static str> {
    let attributes = &route.attributes;
    if attributes.has("encap") || attributes.has("from") {
        return Err("svclab has no routes that wrap packets or look at their source");
    }
    let kind = match route.kind.as_deref() {
        None | Some("unicast") => RouteKind::Unicast,
        Some("local") => RouteKind::Local,
        Some("blackhole") => RouteKind::Blackhole,
        Some("unreachable") => RouteKind::Unreachable,
        Some("prohibit") => RouteKind::Prohibit,
        Some("throw") => RouteKind::Throw,
        Some("cache") => return Ok(None),
        Some(_) => return Err("svclab has no routes of this kind"),
    };
    let dev = attributes.get("dev").unwrap_or_default();
    let link = namespace.links.iter().find(|link| link.name == dev);
    match link {
        None if dev == "lo" || (dev.is_empty() && !kind.is_unicast()) => {}
        None => return Err("its interface is not built"),
        Some(link) if link.down => return Ok(None),
        Some(_) => {}
    }
    let v4 = route.ip == Ip::V4;
    let to = match &*route.to {
        "default" if v4 => "0.0.0.0/0".parse(),
        "default" => "::/0".parse(),
        to => to.parse(),
    };
    let to: IpNetwork = to.map_err(|_| "its destination is no network")?;
    let via = attributes.get("via").map(str::parse::<IpAddr>).transpose();
    let via = via.map_err(|_| "svclab has no next hops of another family")?;
    if is_on_link(route) {
        let of_links = dump.links.as_ref().and_then(|links| links.get(dev));
        let of_links = of_links.map(|link| link.addresses.as_slice());
        let makes = of_links.unwrap_or_default().iter().any(|address| {
            address.network.network() == to.network() && address.network.prefix() == to.prefix()
        });
        let is_kernels = attributes.get("proto") == Some("kernel");
        if (makes && is_made_so(route)) || (dump.links.is_none() && is_kernels) {
            return Ok(None);
        }
    }
    let table = match route.table() {
        "main" => None,
        name => Some(table(name, dump)),
    };
    let metric = attributes.get("metric").and_then(|text| text.parse().ok());
    let source = attributes.get("src").and_then(|text| text.parse().ok());
    Ok(Some(Route {
        to,
        via,
        // Such a route sends no packets, so its interface has no meaning.
        dev: if kind.is_unicast() || kind == RouteKind::Local {
            dev.to_owned()
        } else {
            String::new()
        },
        onlink: attributes.has("onlink"),
        source,
        kind,
        table,
        metric: metric.filter(|metric| *metric > 0),
    }))
}

/// Whether a route may be the kernel's own route to a link. busybox' `ip` does not print the
/// protocol.
fn is_on_link(route: &Dumped) -> bool {
    let attributes = &route.attributes;
    route.table() == "main"
        && route.kind.is_none()
        && !attributes.has("via")
        && matches!(attributes.get("proto"), Some("kernel") | None)
}

/// Whether a route to a link is as the kernel adds it with an address. Routes that other programs
/// (`NetworkManager`, `systemd-networkd`) add instead have a metric.
fn is_made_so(route: &Dumped) -> bool {
    let metric = route.attributes.get("metric");
    match route.ip {
        Ip::V4 => matches!(metric, None | Some("0")),
        Ip::V6 => matches!(metric, None | Some("256")),
    }
}

/// Returns the networks on links, with their interfaces, to which the node has no kernel route: a
/// program that manages the addresses has removed the route. The AWS VPC CNI removes those of its
/// secondary interfaces (amazon-vpc-cni-k8s at 00892598b, `pkg/networkutils/network.go`,
/// `setupENINetwork`).
fn unrouted(namespace: &Namespace, dump: &NodeDump) -> Vec<(IpNetwork, String)> {
    let mut found = Vec::new();
    let own = |link: &&Link| {
        dump.links
            .as_ref()
            .is_some_and(|own| own.contains_key(&link.name))
    };
    for link in namespace.links.iter().filter(|link| !link.down).filter(own) {
        for address in &link.addresses {
            let ip = if address.is_ipv4() { Ip::V4 } else { Ip::V6 };
            let whole = if address.is_ipv4() { 32 } else { 128 };
            let Ok(network) = IpNetwork::new(address.network(), address.prefix()) else {
                continue;
            };
            let Some(routes) = dump.routes.get(&ip).filter(|_| address.prefix() < whole) else {
                continue;
            };
            let is_it = |route: &&Dumped| {
                is_on_link(route)
                    && route.attributes.get("dev") == Some(link.name.as_str())
                    && route.to.parse::<IpNetwork>() == Ok(network)
            };
            let there = routes.iter().find(is_it).is_some_and(is_made_so);
            let known = found
                .iter()
                .any(|(to, dev)| *to == network && *dev == link.name);
            if !there && !known {
                found.push((network, link.name.clone()));
            }
        }
    }
    found
}

/// Returns a multipath route for the plan.
pub(super) fn several(
    namespace: &Namespace,
    dump: &NodeDump,
    route: &Dumped,
) -> Result<Spread, &'static str> {
    let attributes = &route.attributes;
    let to = match (&*route.to, route.ip) {
        ("default", Ip::V4) => "0.0.0.0/0".parse(),
        ("default", Ip::V6) => "::/0".parse(),
        (to, _) => to.parse(),
    };
    let to: IpNetwork = to.map_err(|_| "its destination is no network")?;
    let mut ways = Vec::new();
    for hop in &route.hops {
        let dev = hop.get("dev").unwrap_or_default();
        let mut links = namespace.links.iter();
        if !links.any(|link| link.name == dev && !link.down) {
            return Err("an interface of its ways is not built");
        }
        if hop.has("encap") {
            return Err("svclab has no routes that wrap packets or look at their source");
        }
        let via = hop.get("via").map(str::parse::<IpAddr>).transpose();
        let via = via.map_err(|_| "svclab has no next hops of another family")?;
        let weight = hop.get("weight").and_then(|text| text.parse().ok());
        ways.push(Way {
            via,
            dev: dev.to_owned(),
            weight: weight.unwrap_or(1),
            onlink: hop.has("onlink"),
        });
    }
    let number = |name| attributes.get(name).and_then(|text| text.parse().ok());
    Ok(Spread {
        to,
        ways,
        source: attributes.get("src").and_then(|text| text.parse().ok()),
        table: match route.table() {
            "main" => None,
            name => Some(table(name, dump)),
        },
        metric: number("metric").filter(|metric| *metric > 0),
    })
}

/// First number for tables with names that only the node resolves. The actual number of a table has
/// no effect.
const NAMED: u32 = 1 << 20;

/// Returns the number of a routing table.
fn table(name: &str, dump: &NodeDump) -> u32 {
    if let Some((_, number)) = TABLES.iter().find(|(known, _)| *known == name) {
        return *number;
    }
    if let Ok(number) = name.parse() {
        return number;
    }
    let of_routes = dump.routes.values().flatten().map(Dumped::table);
    let rules = dump.policy.values().flatten();
    let of_rules = rules.filter_map(|rule| rule.attributes.get("lookup"));
    let names: BTreeSet<&str> = of_routes.chain(of_rules).collect();
    let before = names.into_iter().take_while(|other| *other < name).count();
    NAMED.saturating_add(u32::try_from(before).unwrap_or(u32::MAX))
}

/// Returns neighbour entries for next hops without one in the plan. Each gets the hardware address
/// at the other end of the interface.
fn next_hops<'r>(
    plan: &Plan,
    node: &str,
    hops: impl Iterator<Item = (IpAddr, &'r str)>,
) -> Vec<Neighbour> {
    let Some(namespace) = plan.namespace(node) else {
        return Vec::new();
    };
    let mut found: Vec<Neighbour> = Vec::new();
    for (address, dev) in hops {
        let known = namespace.neighbours.iter().chain(&found);
        let mut known = known.filter(|one| one.dev == dev);
        if known.any(|one| one.address == address) {
            continue;
        }
        if let Some(mac) = far_end(plan, namespace, dev) {
            found.push(Neighbour {
                address,
                mac,
                dev: dev.to_owned(),
            });
        }
    }
    found
}

/// Returns the hardware address at the other end of a veth pair, or of the bridge if that end is a
/// bridge port.
fn far_end(plan: &Plan, namespace: &Namespace, dev: &str) -> Option<Mac> {
    let link = namespace.links.iter().find(|link| link.name == dev)?;
    let LinkKind::Veth {
        namespace: there,
        peer,
    } = &link.kind
    else {
        return None;
    };
    let there = plan.namespace(there)?;
    let end = there.links.iter().find(|link| link.name == *peer)?;
    let bridge = end.bridge.as_ref();
    let bridge = bridge.and_then(|bridge| there.links.iter().find(|link| link.name == *bridge));
    Some(bridge.unwrap_or(end).mac)
}

/// Returns the routing rules, except the kernel's own three.
fn policy(dump: &NodeDump, left: &mut Vec<(String, &'static str)>) -> Vec<PolicyRule> {
    let mut rules = Vec::new();
    for (ip, dumped) in &dump.policy {
        for rule in dumped {
            let lookup = rule.attributes.get("lookup");
            let own = matches!(
                (rule.priority, lookup),
                (0, Some("local")) | (32766, Some("main")) | (32767, Some("default"))
            );
            if own {
                continue;
            }
            match planned_rule(*ip, rule, dump) {
                Ok(rule) => rules.push(rule),
                Err(because) => left.push((in_a_line(&rule.written), because)),
            }
        }
    }
    rules
}

fn in_a_line(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Attributes of routing rules that svclab supports.
const LOOKED_AT: [&str; 14] = [
    "from",
    "to",
    "fwmark",
    "iif",
    "oif",
    "lookup",
    "table",
    "suppress_prefixlength",
    "proto",
    "protocol",
    "blackhole",
    "unreachable",
    "prohibit",
    "[detached]",
];

pub(super) fn planned_rule(
    ip: Ip,
    rule: &DumpedRule,
    dump: &NodeDump,
) -> Result<PolicyRule, &'static str> {
    let attributes = &rule.attributes;
    let strange = |name: &str| !LOOKED_AT.contains(&name);
    if attributes
        .0
        .iter()
        .any(|attribute| strange(&attribute.name))
    {
        return Err(
            "svclab's routing rules look at sources, destinations, marks and interfaces only",
        );
    }
    let network = |name: &str| match attributes.get(name) {
        None | Some("all") => Ok(None),
        Some(text) => text
            .parse::<IpNetwork>()
            .map(Some)
            .map_err(|_| "what it looks at is no network"),
    };
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let mark = match attributes.get("fwmark") {
        None => None,
        Some(text) => {
            let (bits, looked_at) = text.split_once('/').unwrap_or((text, "0xffffffff"));
            let both = number(bits).zip(number(looked_at));
            Some(both.ok_or("what it looks at is no mark")?)
        }
    };
    let then = if attributes.has("blackhole") {
        Lookup::Blackhole
    } else if attributes.has("unreachable") {
        Lookup::Unreachable
    } else if attributes.has("prohibit") {
        Lookup::Prohibit
    } else {
        let name = attributes.get("lookup").or_else(|| attributes.get("table"));
        let name = name.ok_or("it does not say what is done")?;
        Lookup::Table(table(name, dump))
    };
    Ok(PolicyRule {
        priority: rule.priority,
        v6: ip == Ip::V6,
        not: rule.not,
        from: network("from")?,
        to: network("to")?,
        mark,
        incoming: attributes.get("iif").map(str::to_owned),
        outgoing: attributes.get("oif").map(str::to_owned),
        suppress: attributes
            .get("suppress_prefixlength")
            .and_then(|text| text.parse().ok()),
        then,
    })
}
