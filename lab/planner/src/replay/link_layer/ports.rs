//! Replays the settings of bridge ports, and finds the pods behind them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::replay::report::{ReplayReport, count_noun, list_names};
use svclab_dump::NodeDump;
use svclab_model::plan::{Link, Namespace, PortSettings};
use svclab_ruleset::bridge::port::{Port, Ports};
use svclab_ruleset::link::Link as Dumped;

/// Settings that decide about address resolution, which no packet of a lab needs.
const RESOLUTION_SETTINGS: [&str; 6] = [
    "bcast_flood",
    "mcast_flood",
    "neigh_suppress",
    "neigh_vlan_suppress",
    "proxy_arp",
    "proxy_arp_wifi",
];

/// Returns the addresses of the hosts behind each port of a bridge: those whose link-layer address
/// the bridge has learned from the port, and the node has resolved.
pub fn pods_behind_ports(dump: &NodeDump) -> BTreeMap<&str, Vec<IpAddr>> {
    let mut pods: BTreeMap<&str, Vec<IpAddr>> = BTreeMap::new();
    let resolved = || {
        let neighbours = dump.neighbours.iter().flatten();
        neighbours.filter(|neighbour| neighbour.is_resolved())
    };
    let mut hosts: BTreeMap<_, Vec<IpAddr>> = BTreeMap::new();
    for neighbour in resolved() {
        let key = (&*neighbour.dev, neighbour.mac());
        hosts.entry(key).or_default().push(neighbour.address);
    }
    let entries = dump.forwarding.iter().flatten();
    for entry in entries.filter(|entry| !entry.is_static()) {
        let Some(bridge) = &entry.bridge else {
            continue;
        };
        if let Some(addresses) = hosts.get(&(&**bridge, Some(entry.mac))) {
            pods.entry(&entry.dev).or_default().extend(addresses);
        }
    }
    pods
}

/// Replaces the settings of the node's bridge ports.
pub(super) fn replay_ports(namespace: &mut Namespace, dump: &NodeDump, report: &mut ReplayReport) {
    for link in namespace
        .links
        .iter_mut()
        .filter(|link| link.bridge.is_none())
    {
        link.port = PortSettings::default();
    }
    let Some(ports) = dump.bridge_ports() else {
        return;
    };
    let mut replayed = 0_usize;
    // The kernel disables such ports itself (Linux v6.12, `net/bridge/br_if.c`,
    // `br_port_carrier_check`, and `net/bridge/br_stp_if.c`, `br_stp_disable_bridge`).
    let is_without_link = |name: &str| {
        let links = dump.links.as_ref();
        let is_off = |link: &Dumped| !link.has_flag("UP") || link.has_flag("NO-CARRIER");
        let link = links.and_then(|links| links.get(name));
        let bridge = link.and_then(|link| links?.get(link.attributes.get("master")?));
        link.is_some_and(is_off) || bridge.is_some_and(|bridge| !bridge.has_flag("UP"))
    };
    let planned = |name: &str, port: &Port| {
        let settings = planned_settings(port);
        PortSettings {
            forwarding: settings.forwarding || is_without_link(name),
            ..settings
        }
    };
    for link in &mut namespace.links {
        if let Some(port) = ports.get(&link.name).filter(|_| link.bridge.is_some()) {
            link.port = planned(&link.name, port);
            replayed += 1;
        }
    }
    if replayed > 0 {
        let count = count_noun(replayed, "bridge port", "bridge ports");
        report.add_replayed(format!("settings of {count}"));
    }
    let names: Vec<String> = namespace
        .links
        .iter()
        .map(|link| link.name.clone())
        .collect();
    for (bridge, unbuilt) in unbuilt_ports(&ports, &names) {
        let unbuilt = unbuilt.into_iter();
        let unbuilt = unbuilt.map(|(name, port)| (name, planned(name, port)));
        replay_unbuilt_ports(
            namespace,
            bridge,
            &unbuilt.collect::<Vec<_>>(),
            &ports,
            report,
        );
    }
    report_unsupported(&ports, report);
}

/// Returns the ports that the plan does not have, by bridge.
fn unbuilt_ports<'p>(
    ports: &'p Ports,
    built: &[String],
) -> BTreeMap<&'p str, Vec<(&'p str, &'p Port)>> {
    let mut unbuilt: BTreeMap<&str, Vec<(&str, &Port)>> = BTreeMap::new();
    for (name, port) in ports.iter().filter(|(name, _)| !built.contains(name)) {
        if let Some(bridge) = &port.bridge {
            unbuilt.entry(bridge).or_default().push((name, port));
        }
    }
    unbuilt
}

/// Gives the ports of the lab's pods the settings of the dumped ports of unknown pods, if these are
/// equal, and reports them otherwise.
fn replay_unbuilt_ports(
    namespace: &mut Namespace,
    bridge: &str,
    unbuilt: &[(&str, PortSettings)],
    ports: &Ports,
    report: &mut ReplayReport,
) {
    let Some((_, first)) = unbuilt.first() else {
        return;
    };
    if unbuilt.iter().all(|(_, settings)| settings == first) {
        let links = namespace.links.iter_mut();
        let is_simulated = |link: &&mut Link| {
            link.bridge.as_deref() == Some(bridge) && !ports.contains_key(&link.name)
        };
        let mut names = Vec::new();
        for link in links.filter(is_simulated) {
            link.port = *first;
            names.push(link.name.clone());
        }
        if !names.is_empty() {
            let names = list_names(&names);
            report.add_simulated(format!(
                "settings of {names}: those of the ports of {bridge}"
            ));
        }
        return;
    }
    let mut ports_by_settings: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, settings) in unbuilt {
        if !settings.is_default() {
            let ports = ports_by_settings.entry(settings.to_string()).or_default();
            ports.push((*name).to_owned());
        }
    }
    for (settings, ports) in ports_by_settings {
        report.add_omitted(
            format!(
                "`{}` of {} of {bridge}",
                settings.trim_start(),
                list_names(&ports)
            ),
            "the pods behind these ports are unknown",
            "frames of the pods are forwarded differently on the node",
        );
    }
}

/// Returns the settings that a plan supports.
fn planned_settings(port: &Port) -> PortSettings {
    let mut settings = PortSettings::default();
    for (name, _) in settings.settings() {
        let is_on = port.setting(name) == PortSettings::value(name, true);
        settings.set(name, is_on);
    }
    settings
}

/// Reports settings that a plan does not support.
fn report_unsupported(ports: &Ports, report: &mut ReplayReport) {
    let supported = PortSettings::default().settings();
    let is_supported = |setting: &str| supported.iter().any(|(known, _)| *known == setting);
    let mut ports_by_setting: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for (name, port) in ports {
        for (setting, value) in port.changed_settings() {
            if !is_supported(setting) {
                let ports = ports_by_setting.entry((setting, value)).or_default();
                ports.push(name.clone());
            }
        }
    }
    for ((setting, value), ports) in ports_by_setting {
        let affects = if RESOLUTION_SETTINGS.contains(&setting) {
            "address resolution through the port may fail on the node, but not in the lab"
        } else {
            "frames through the port may be forwarded differently on the node"
        };
        report.add_omitted(
            format!("`{setting} {value}` of {}", list_names(&ports)),
            "svclab does not support this setting of bridge ports",
            affects,
        );
    }
}
