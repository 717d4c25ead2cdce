//! Faults in routes and routing rules.

use super::{Kind, kind};
use crate::draw::{Draw, Drawn, commands};
use crate::fault::Culprit;
use crate::mode::Mode;
use crate::state::{NodeState, Route};

const AREA: &str = "routes";

pub(super) const KINDS: [Kind; 19] = [
    kind("route-missing", AREA, Mode::ALL, missing),
    kind("route-missing-default", AREA, Mode::ALL, missing_default),
    kind("route-wrong-gateway", AREA, Mode::ALL, wrong_gateway),
    kind("route-wrong-device", AREA, Mode::ALL, wrong_device),
    kind("route-blackhole", AREA, Mode::ALL, |draw| {
        special(draw, "blackhole")
    }),
    kind("route-prohibit", AREA, Mode::ALL, |draw| {
        special(draw, "prohibit")
    }),
    kind("route-unreachable", AREA, Mode::ALL, |draw| {
        special(draw, "unreachable")
    }),
    kind("route-throw", AREA, Mode::ALL, |draw| {
        special(draw, "throw")
    }),
    kind("route-wrong-source", AREA, Mode::ALL, wrong_source),
    kind("route-mtu", AREA, Mode::ALL, mtu),
    kind("route-local", AREA, Mode::ALL, local),
    kind("route-tunnel-end-blackhole", AREA, Mode::ALL, |draw| {
        tunnel_end(draw, |_| Ok("blackhole".to_owned()))
    }),
    kind("route-tunnel-end-gateway", AREA, Mode::ALL, |draw| {
        tunnel_end(draw, dead_gateway)
    }),
    kind("routing-rule-blackhole", AREA, Mode::ALL, |draw| {
        rule_action(draw, "blackhole")
    }),
    kind("routing-rule-prohibit", AREA, Mode::ALL, |draw| {
        rule_action(draw, "prohibit")
    }),
    kind("routing-rule-unreachable", AREA, Mode::ALL, |draw| {
        rule_action(draw, "unreachable")
    }),
    kind("routing-rule-table", AREA, Mode::ALL, rule_table),
    kind("routing-rule-mark", AREA, Mode::ALL, rule_mark),
    kind("routing-rule-local-last", AREA, Mode::ALL, local_last),
];

/// Chooses the route to the pods of the other node.
fn pod_route(draw: &mut Draw<'_>, node: &NodeState) -> Result<Route, String> {
    let routes = node
        .routes()
        .into_iter()
        .filter(|route| route.rest.contains("flannel"));
    draw.pick(routes.collect(), "route into the tunnel")
}

fn missing(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let route = pod_route(draw, node)?;
    let command = format!("ip route del {} {}", route.destination, route.rest);
    Ok(commands(
        &node.name,
        &[command],
        vec![Culprit::route(&node.name, &route.destination)],
    ))
}

fn missing_default(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    Ok(commands(
        &node.name,
        &["ip route del default".to_owned()],
        vec![Culprit::route(&node.name, "default")],
    ))
}

fn wrong_gateway(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let route = pod_route(draw, node)?;
    let gateway = format!("10.244.77.{}", draw.random.below(200));
    let command = format!(
        "ip route replace {} via {gateway} dev flannel.1 onlink",
        route.destination
    );
    let culprit = Culprit::route(&node.name, &route.destination).or_exact([&gateway]);
    Ok(commands(&node.name, &[command], vec![culprit]))
}

fn wrong_device(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let route = pod_route(draw, node)?;
    let command = format!("ip route replace {} dev cni0", route.destination);
    Ok(commands(
        &node.name,
        &[command],
        vec![Culprit::route(&node.name, &route.destination)],
    ))
}

/// Adds a route of a special type, to the other node's pods or to one endpoint.
fn special(draw: &mut Draw<'_>, kind: &str) -> Drawn {
    let node = draw.client_node()?;
    let endpoint = draw.endpoint(node)?;
    let command = format!("ip route add {kind} {endpoint}/32");
    let mut culprit = Culprit::route(&node.name, &endpoint).or_exact([&endpoint, kind]);
    // An ICMP error for other reasons is "unreachable", too.
    if kind != "unreachable" {
        culprit = culprit.or_near([format!("{kind}*").as_str()]);
    }
    Ok(commands(&node.name, &[command], vec![culprit]))
}

/// Adds a route to the node at the other end of the tunnel.
fn tunnel_end(draw: &mut Draw<'_>, way: fn(&NodeState) -> Result<String, String>) -> Drawn {
    let node = draw.node()?;
    let entries = node.tunnel_entries("flannel.1");
    let (_, remote) = draw.pick(entries, "entry in the tunnel's forwarding database")?;
    let way = way(node)?;
    let command = match way.as_str() {
        "blackhole" => format!("ip route add blackhole {remote}/32"),
        _ => format!("ip route add {remote}/32 {way}"),
    };
    let gateway = way.strip_prefix("via ").unwrap_or(&way);
    let culprit = Culprit::route(&node.name, &remote).or_exact([&remote, gateway]);
    Ok(commands(&node.name, &[command], vec![culprit]))
}

/// Returns a next hop beside the gateway of the node, which no machine has.
fn dead_gateway(node: &NodeState) -> Result<String, String> {
    let mut routes = node.routes().into_iter();
    let default = routes.find(|route| route.destination == "default");
    let gateway = default.and_then(|route| route.rest.split(' ').nth(1).map(str::to_owned));
    let gateway = gateway.ok_or("the node has no gateway")?;
    let (subnet, _) = gateway.rsplit_once('.').ok_or("no IPv4 gateway")?;
    Ok(format!("via {subnet}.77"))
}

fn wrong_source(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let route = pod_route(draw, node)?;
    let addresses = node
        .addresses()
        .into_iter()
        .filter(|(_, device)| device == "eth0" || device == "cni0");
    let source = draw.pick(addresses.collect(), "other address")?.0;
    let source = source.split('/').next().unwrap_or(&source);
    let command = format!(
        "ip route replace {} {} src {source}",
        route.destination, route.rest
    );
    let culprit = Culprit::route(&node.name, &route.destination).or_near(["src"]);
    Ok(commands(&node.name, &[command], vec![culprit]))
}

fn mtu(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let route = pod_route(draw, node)?;
    let command = format!(
        "ip route replace {} {} mtu lock 68",
        route.destination, route.rest
    );
    let culprit = Culprit::route(&node.name, &route.destination).or_near(["mtu"]);
    Ok(commands(&node.name, &[command], vec![culprit]))
}

fn local(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let endpoint = draw.endpoint(node)?;
    let command = format!("ip route add local {endpoint}/32 dev lo");
    let culprit = Culprit::route(&node.name, &endpoint).or_exact([&endpoint, "local"]);
    Ok(commands(&node.name, &[command], vec![culprit]))
}

/// Chooses the selector of a routing rule: a pod of the node, or an endpoint.
fn selector(draw: &mut Draw<'_>, node: &NodeState) -> Result<String, String> {
    if draw.random.below(2) == 0 {
        let pods = node
            .neighbours()
            .into_iter()
            .filter(|(_, device, _)| device.starts_with("cni"));
        return Ok(format!("from {}", draw.pick(pods.collect(), "pod")?.0));
    }
    Ok(format!("to {}", draw.endpoint(node)?))
}

fn rule_action(draw: &mut Draw<'_>, action: &str) -> Drawn {
    let node = draw.client_node()?;
    let selector = selector(draw, node)?;
    let command = format!("ip rule add {selector} {action} pref 500");
    let culprit = Culprit::routing_rule(&node.name, &selector, action);
    Ok(commands(&node.name, &[command], vec![culprit]))
}

fn rule_table(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let selector = selector(draw, node)?;
    let routes = node.routes();
    let default = routes.iter().find(|route| route.destination == "default");
    let default = &default.ok_or("the node has no default route")?.rest;
    let all = [
        format!("ip route add default {default} table 100"),
        format!("ip rule add {selector} lookup 100 pref 500"),
    ];
    // Without the only route of its table, the rule has no effect.
    let culprit =
        Culprit::routing_rule(&node.name, &selector, "100").or_exact(["default", "table 100"]);
    Ok(commands(&node.name, &all, vec![culprit]))
}

fn rule_mark(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    // The mark of packets that kube-proxy masquerades.
    let command = "ip rule add fwmark 0x4000/0x4000 blackhole pref 500".to_owned();
    let culprit =
        Culprit::routing_rule(&node.name, "fwmark 0x4000*", "blackhole").or_near(["fwmark"]);
    Ok(commands(&node.name, &[command], vec![culprit]))
}

fn local_last(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let all = [
        "ip rule add lookup main pref 5".to_owned(),
        "ip rule del pref 0".to_owned(),
        "ip rule add lookup local pref 10".to_owned(),
    ];
    let culprit =
        Culprit::routing_rule(&node.name, "lookup main", "5").or_exact(["lookup local", "0"]);
    Ok(commands(&node.name, &all, vec![culprit]))
}
