//! Routes and routing rules of a dumped node.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::account::{Account, counted};
use super::links::listed;
use crate::dump::NodeDump;
use crate::dump::format::Ip;
use crate::dump::policy::PolicyRule as DumpedRule;
use crate::dump::routes::Route as Dumped;
use crate::plan::{
    LinkKind, Lookup, Mac, Namespace, Neighbour, Plan, PolicyRule, Route, RouteKind,
};

/// The kernel's own tables (iproute2, `etc/iproute2/rt_tables`).
const TABLES: [(&str, u32); 3] = [("local", 255), ("main", 254), ("default", 253)];

/// Routes that the kernel has when an interface is up: those to itself, to all on a
/// link, to groups, and the one that says that there is no other.
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

/// Gives the node the routes and routing rules of the dump.
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
    for route in dumped.filter(|route| !is_kernels(route)) {
        match planned(namespace, dump, route) {
            Ok(Some(route)) => routes.push(route),
            Ok(None) => {}
            Err(because) => left.push((in_a_line(&route.written), because)),
        }
    }
    let count = routes.len();
    kept.extend(routes);
    if !dump.routes.is_empty() {
        // A next hop must be reached by a route that is there already.
        kept.sort_by_key(|route| route.via.is_some());
    }
    let neighbours = next_hops(plan, node, &kept);
    let policy = policy(dump, &mut left);
    let rules = policy.len();
    if let Some(namespace) = plan.namespaces.iter_mut().find(|ns| ns.name == node) {
        namespace.routes = kept;
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

/// A route as a plan has it; none where the kernel makes it with an address, and why it
/// cannot be.
pub(super) fn planned(
    namespace: &Namespace,
    dump: &NodeDump,
    route: &Dumped,
) -> Result<Option<Route>, &'static str> {
    let attributes = &route.attributes;
    if !route.hops.is_empty() || attributes.has("nhid") {
        return Err("svclab has no routes of several ways");
    }
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
    if attributes.get("proto") == Some("kernel") && route.table() == "main" && via.is_none() {
        let of_links = dump.links.as_ref().and_then(|links| links.get(dev));
        let of_links = of_links.map(|link| link.addresses.as_slice());
        let makes = of_links.unwrap_or_default().iter().any(|address| {
            address.network.network() == to.network()
                && address.network.prefix() == to.prefix()
                && !address.attributes.has("noprefixroute")
        });
        if makes || dump.links.is_none() {
            return Ok(None);
        }
    }
    let table = match route.table() {
        "main" => None,
        name => Some(table(name).ok_or("its table has a name that only the node knows")?),
    };
    let metric = attributes.get("metric").and_then(|text| text.parse().ok());
    let source = attributes.get("src").and_then(|text| text.parse().ok());
    Ok(Some(Route {
        to,
        via,
        // Nothing is sent: which interface is told of it means nothing.
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

fn table(name: &str) -> Option<u32> {
    let known = TABLES.iter().find(|(known, _)| *known == name);
    known.map_or_else(|| name.parse().ok(), |(_, number)| Some(*number))
}

/// Next hops that the plan knows no hardware address of: whoever is at the other end.
fn next_hops(plan: &Plan, node: &str, routes: &[Route]) -> Vec<Neighbour> {
    let Some(namespace) = plan.namespace(node) else {
        return Vec::new();
    };
    let mut found: Vec<Neighbour> = Vec::new();
    for route in routes {
        let Some(address) = route.via else {
            continue;
        };
        let known = namespace.neighbours.iter().chain(&found);
        let mut known = known.filter(|one| one.dev == route.dev);
        if known.any(|one| one.address == address) {
            continue;
        }
        if let Some(mac) = far_end(plan, namespace, &route.dev) {
            found.push(Neighbour {
                address,
                mac,
                dev: route.dev.clone(),
            });
        }
    }
    found
}

/// The hardware address of what is at the other end of a cable: the bridge if it is a
/// port there.
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

/// The routing rules but for the kernel's own three.
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
            match planned_rule(*ip, rule) {
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

/// What svclab's routing rules look at.
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

pub(super) fn planned_rule(ip: Ip, rule: &DumpedRule) -> Result<PolicyRule, &'static str> {
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
        Lookup::Table(table(name).ok_or("its table has a name that only the node knows")?)
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
