//! Renders objects that differ from the lab.

use svclab_dump::{Difference, DumpChange, DumpLocation, Side};
use svclab_judge::{Deviation, InterfaceProperty, RouteDecision, RouteLookup};

/// Renders an object of a namespace that differs from the lab as a sentence.
pub(super) fn render_deviation(namespace: &str, deviation: &Deviation) -> String {
    format!(
        "{namespace} differs from the lab: {}",
        describe_deviation(deviation)
    )
}

fn describe_deviation(deviation: &Deviation) -> String {
    match deviation {
        Deviation::Rules { difference } => describe_difference(difference),
        Deviation::Route { planned, observed } => format!(
            "the route to {} is {} instead of {}",
            observed.address,
            describe_route(observed),
            describe_route(planned)
        ),
        Deviation::Neighbour {
            address,
            interface,
            planned,
            observed,
        } => {
            let neighbour = format!("the neighbour {address} on {interface}");
            match (planned, observed) {
                (Some(planned), Some(observed)) => {
                    format!("{neighbour} has the hardware address {observed} instead of {planned}")
                }
                (Some(planned), None) => {
                    format!("{neighbour} has no entry with the hardware address {planned}")
                }
                (None, Some(observed)) => {
                    format!("{neighbour} has a static entry with the hardware address {observed}")
                }
                (None, None) => format!("{neighbour} has no entry"),
            }
        }
        Deviation::Forwarding {
            interface,
            mac,
            planned,
            observed,
        } => {
            let entry = format!("the forwarding entry of {interface} for {mac}");
            match (planned, observed) {
                (Some(planned), Some(observed)) => {
                    format!("{entry} leads to {observed} instead of {planned}")
                }
                (Some(planned), None) => format!("{entry} to {planned} is missing"),
                (None, Some(observed)) => format!("{entry} leads to {observed}"),
                (None, None) => format!("{entry} is missing"),
            }
        }
        Deviation::BridgeForwarding { port, mac, planned } => {
            let planned = planned.as_ref();
            let planned =
                planned.map_or_else(String::new, |planned| format!(" instead of {planned}"));
            format!("a static forwarding entry leads {mac} to the port {port}{planned}")
        }
        Deviation::Interface {
            interface,
            property,
            planned,
            observed,
        } => describe_interface(
            interface,
            *property,
            planned.as_deref(),
            observed.as_deref(),
        ),
        Deviation::Sysctl {
            name,
            planned,
            observed,
        } => format!("sysctl {name} is {observed} instead of {planned}"),
        Deviation::Queue {
            interface,
            kind,
            dropped,
        } => format!(
            "{interface} has the queueing discipline {kind} (qdisc), which dropped {dropped} \
             packets"
        ),
    }
}

/// Describes the decision of a route lookup.
fn describe_route(lookup: &RouteLookup) -> String {
    let rule = lookup.rule.as_ref();
    let rule = rule.map_or_else(String::new, |rule| {
        format!(", selected by the routing rule `{rule}`")
    });
    match &lookup.decision {
        RouteDecision::None { .. } => "missing".to_owned(),
        RouteDecision::Local { interface } => format!("local to {interface}{rule}"),
        RouteDecision::Unicast { route, .. } | RouteDecision::Refusal { route, .. } => {
            format!("`{route}`{rule}")
        }
        RouteDecision::RuleRefusal => {
            let rule = lookup.rule.as_deref().unwrap_or("?");
            format!("refused by the routing rule `{rule}`")
        }
    }
}

fn describe_interface(
    interface: &str,
    property: InterfaceProperty,
    planned: Option<&str>,
    observed: Option<&str>,
) -> String {
    let (planned, observed) = (planned.unwrap_or("none"), observed.unwrap_or("none"));
    let named = |name: &str| format!("{name} of {interface} is {observed} instead of {planned}");
    match property {
        InterfaceProperty::Existence => format!("the interface {interface} is missing"),
        InterfaceProperty::State => {
            format!("the interface {interface} is {observed} instead of {planned}")
        }
        InterfaceProperty::Mtu => named("the MTU"),
        InterfaceProperty::HardwareAddress => named("the hardware address"),
        InterfaceProperty::Bridge => named("the bridge (master)"),
        InterfaceProperty::Address => {
            format!("the interface {interface} lacks the address {planned}")
        }
        InterfaceProperty::Arp => named("ARP"),
        InterfaceProperty::PortState => named("the state of the bridge port"),
        InterfaceProperty::Hairpin => named("the hairpin mode"),
        InterfaceProperty::Isolated => named("`isolated`"),
        InterfaceProperty::Learning => named("`learning`"),
        InterfaceProperty::Flood => named("`flood`"),
        InterfaceProperty::Locked => named("`locked`"),
        InterfaceProperty::VlanFiltering => named("`vlan_filtering`"),
        InterfaceProperty::Vni => named("the VNI"),
        InterfaceProperty::VxlanPort => named("the UDP port"),
        InterfaceProperty::VxlanLocal => named("the local tunnel address"),
    }
}

/// Describes a difference of rules, sets or virtual servers. The first side is the lab.
fn describe_difference(difference: &Difference) -> String {
    let location = &difference.location;
    let place = match location {
        DumpLocation::Chain {
            program,
            table,
            chain,
        } if program.contains("legacy") => format!("{table} {chain} of iptables-legacy"),
        DumpLocation::Chain { table, chain, .. } => format!("{table} {chain}"),
        other => other.to_string(),
    };
    let item_name = match location {
        DumpLocation::Chain { .. } => "rule",
        DumpLocation::Server { .. } => "real server",
        _ => "entry",
    };
    match &difference.change {
        DumpChange::Whole {
            only: Side::First, ..
        } => format!("{place} is missing"),
        DumpChange::Whole { .. } => format!("{place} is additional"),
        DumpChange::Item {
            only: Side::First,
            item,
            ..
        } => format!("{place} lacks the {item_name} `{item}`"),
        DumpChange::Item { item, .. } => {
            format!("{place} has the additional {item_name} `{item}`")
        }
        DumpChange::Moved { item, .. } => {
            format!("{place} has the {item_name} `{item}` at another position")
        }
        DumpChange::Value {
            property,
            first,
            second,
        } => {
            let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
            format!(
                "the {property} of {place} is {} instead of {}",
                value(second),
                value(first)
            )
        }
    }
}
