//! Lists the state of interfaces that a replay does not build: settings of tunnels and bridges, states
//! of addresses, and changes of the loopback interface.

use std::net::{IpAddr, Ipv4Addr};

use super::super::links::{is_down, is_link_local, lacks_carrier};
use super::super::report::{FileLine, OmittedItem, ReplayReport};
use svclab_dump::NodeDump;
use svclab_model::plan::{LinkKind, Namespace};
use svclab_ruleset::link::Link as Dumped;
use svclab_ruleset::link::kind::LinkDetails;
use svclab_ruleset::tool::Format;

/// Default MTU of the loopback interface (Linux v6.12, `drivers/net/loopback.c`).
const LOOPBACK_MTU: &str = "65536";

/// Settings of vxlan devices that a replay builds, or that do not change the path of packets.
const VXLAN_SETTINGS: [&str; 16] = [
    "ageing",
    "dev",
    "dstport",
    "id",
    "local",
    "localbypass",
    "nolearning",
    "noudp6zerocsumrx",
    "noudp6zerocsumtx",
    "noudpcsum",
    "srcport",
    "ttl",
    "udp6zerocsumrx",
    "udp6zerocsumtx",
    "udp_csum",
    "udpcsum",
];

/// Settings of bridges that change the path of packets, with the values of a new bridge (Linux
/// v6.12, `net/bridge/br_device.c`, `br_dev_setup`).
const BRIDGE_SETTINGS: [(&str, &str); 6] = [
    ("group_fwd_mask", "0"),
    ("nf_call_arptables", "0"),
    ("nf_call_ip6tables", "0"),
    ("nf_call_iptables", "0"),
    ("stp_state", "0"),
    ("vlan_filtering", "0"),
];

/// States of an address that a replay does not build, with what differs in the lab.
const ADDRESS_STATES: [(&str, &str); 3] = [
    (
        "dadfailed",
        "the address is used, although another machine has it",
    ),
    (
        "deprecated",
        "new connections of the node may use the address",
    ),
    ("tentative", "the address is used"),
];

/// Adds the state that is not built to the report.
pub fn list_link_state(namespace: &Namespace, dump: &NodeDump, report: &mut ReplayReport) {
    if let Some(lo) = dump.links.as_ref().and_then(|links| links.get("lo")) {
        list_loopback(lo, dump, report);
    }
    for (name, dumped) in dump.links.iter().flatten() {
        list_without_arp(namespace, (name, dumped), dump, report);
        if namespace.links.iter().any(|link| link.name == *name) {
            list_address_states((name, dumped), dump, report);
        }
    }
    for (name, details) in dump.kinds.iter().flatten() {
        let Some(link) = namespace.links.iter().find(|link| link.name == *name) else {
            continue;
        };
        for setting in unbuilt_settings(&link.kind, details) {
            let location = FileLine::in_dump(dump, Format::LinkDetails, details.line);
            let description = format!("`{setting}` of {name}");
            let reason = "svclab does not build this setting";
            let affects = format!("packets through {name} are handled as without the setting");
            let item = OmittedItem::new(location, description, reason);
            report.omitted.push(item.with_effect(affects));
        }
    }
}

/// Lists an interface without ARP. Dummy interfaces and tunnels have none by default.
fn list_without_arp(
    namespace: &Namespace,
    (name, dumped): (&str, &Dumped),
    dump: &NodeDump,
    report: &mut ReplayReport,
) {
    let mut links = namespace.links.iter();
    let is_built = links.any(|link| {
        link.name == name && matches!(link.kind, LinkKind::Veth { .. } | LinkKind::Bridge)
    });
    let layer = dumped.link_layer.as_ref();
    let is_ethernet = layer.is_some_and(|(layer, _)| &**layer == "ether");
    if is_built && is_ethernet && dumped.has_flag("NOARP") {
        let location = FileLine::in_dump(dump, Format::Links, dumped.line);
        let description = format!("`NOARP` of {name}");
        let reason = "svclab builds such interfaces with ARP";
        let item = OmittedItem::new(location, description, reason);
        let affects = format!("packets through {name} reach its neighbours");
        report.omitted.push(item.with_effect(affects));
    }
}

/// Lists the addresses that the node does not use like others. Those of an interface that is down or
/// has no carrier stay tentative.
fn list_address_states(
    (name, dumped): (&str, &Dumped),
    dump: &NodeDump,
    report: &mut ReplayReport,
) {
    if is_down(dumped) || lacks_carrier(dumped) {
        return;
    }
    for address in &dumped.addresses {
        let mut states = ADDRESS_STATES.iter();
        // An address that failed the check for uniqueness stays tentative.
        let Some((state, affects)) = states.find(|(state, _)| address.attributes.has(state)) else {
            continue;
        };
        // An interface that has just come up. The kernel of the lab creates the address.
        if *state == "tentative" && is_link_local(address) {
            continue;
        }
        let location = FileLine::in_dump(dump, Format::Links, address.line);
        let description = format!("`{state}` of {} on {name}", address.network);
        let reason = "svclab builds addresses without this state";
        let item = OmittedItem::new(location, description, reason);
        report.omitted.push(item.with_effect(*affects));
    }
}

/// Lists changes of the loopback interface, which the kernel and the agent set up in each
/// namespace.
fn list_loopback(lo: &Dumped, dump: &NodeDump, report: &mut ReplayReport) {
    let mut add = |description: &str, affects: &str| {
        let location = FileLine::in_dump(dump, Format::Links, lo.line);
        let reason = "the loopback interface of a namespace is up and has its default addresses";
        let item = OmittedItem::new(location, description, reason);
        report.omitted.push(item.with_effect(affects));
    };
    if is_down(lo) {
        add("lo is down", "connections of the node to itself succeed");
    }
    let mut addresses = lo.addresses.iter();
    if !addresses.any(|own| own.network.ip() == IpAddr::from(Ipv4Addr::LOCALHOST)) {
        add(
            "lo without the address 127.0.0.1",
            "packets to 127.0.0.1 are delivered",
        );
    }
    if let Some(mtu) = lo.attributes.get("mtu").filter(|mtu| *mtu != LOOPBACK_MTU) {
        add(
            &format!("mtu {mtu} of lo"),
            "larger packets of the node to itself are delivered",
        );
    }
}

/// Returns the settings of an interface that a replay does not build, as `ip -d link` prints them.
fn unbuilt_settings(kind: &LinkKind, details: &LinkDetails) -> Vec<String> {
    let settings = details.settings();
    let render = |name: &str, value: &str| format!("{name} {value}").trim_end().to_owned();
    match kind {
        LinkKind::Vxlan { .. } if details.kind.as_deref() == Some("vxlan") => {
            let unbuilt = settings
                .iter()
                .filter(|(name, _)| !VXLAN_SETTINGS.contains(name));
            let mut unbuilt: Vec<String> =
                unbuilt.map(|(name, value)| render(name, value)).collect();
            if !settings.contains_key("nolearning") {
                unbuilt.push("learning".to_owned());
            }
            unbuilt
        }
        LinkKind::Bridge if details.kind.as_deref() == Some("bridge") => {
            let changed = BRIDGE_SETTINGS.iter().filter_map(|(name, default)| {
                let value = settings.get(name)?;
                (value != default).then(|| render(name, value))
            });
            changed.collect()
        }
        _ => Vec::new(),
    }
}
