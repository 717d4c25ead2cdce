//! Compares the settings of bridge ports. Settings that a version of iproute2 does not print have the
//! kernel's default.

use super::super::difference::{DumpChange, DumpLocation, Side};
use super::super::owner;
use super::{Comparison, union_of_names, value_change};
use svclab_ruleset::bridge::port::{Port, Ports};

/// Compares the ports of all outputs, then those of `bridge link` alone, which may contradict `ip -d
/// link`. The interface of a port and its bridge are reported once.
pub(super) fn compare(comparison: &mut Comparison<'_>) {
    let (first, second) = (comparison.first, comparison.second);
    if let (Some(first), Some(second)) = (first.bridge_ports(), second.bridge_ports()) {
        compare_ports(comparison, &first, &second);
    }
    if let (Some(first), Some(second)) = (&first.ports, &second.ports) {
        compare_ports(comparison, first, second);
    }
}

fn compare_ports(comparison: &mut Comparison<'_>, first: &Ports, second: &Ports) {
    for name in union_of_names(first.keys(), second.keys()) {
        let link = DumpLocation::Link { name: name.clone() };
        let is_reported = comparison.differences.iter().any(|difference| {
            let is_bridge = match &difference.change {
                DumpChange::Whole { .. } => true,
                DumpChange::Value { property, .. } => property == "master",
                _ => false,
            };
            difference.location == link && is_bridge
        });
        let whole = |only, port: &Port| DumpChange::Whole {
            only,
            line: port.line,
        };
        let changes = match (first.get(name), second.get(name)) {
            (Some(a), Some(b)) => {
                let mut changes = setting_changes(a, b);
                if let (Some(a), Some(b), false) = (&a.bridge, &b.bridge, is_reported) {
                    changes.extend(value_change("bridge", Some(a), Some(b)));
                }
                changes
            }
            (Some(port), None) if !is_reported => vec![whole(Side::First, port)],
            (None, Some(port)) if !is_reported => vec![whole(Side::Second, port)],
            _ => continue,
        };
        let location = DumpLocation::BridgePort { name: name.clone() };
        for change in changes {
            let is_known = comparison.has_difference(&location, &change)
                || comparison.has_difference(&link, &change);
            if !is_known {
                comparison.add_difference(location.clone(), change, owner::link_owner(name));
            }
        }
    }
}

/// Returns the changes of settings that both outputs show, and of unknown settings that one of them
/// shows.
pub(crate) fn setting_changes(first: &Port, second: &Port) -> Vec<DumpChange> {
    let flags = |port: &Port| {
        let mut flags = port.flags.clone()?;
        flags.sort_unstable();
        Some(flags.join(","))
    };
    let mut changes = Vec::new();
    if let (Some(first), Some(second)) = (flags(first), flags(second)) {
        changes.extend(value_change("flags", Some(&first), Some(&second)));
    }
    for name in union_of_names(first.compared_names(), second.compared_names()) {
        let is_shown =
            |port: &Port| port.known_setting(name).is_some() || (port.is_detailed && name != "mtu");
        if is_shown(first) && is_shown(second) {
            let (first, second) = (first.known_setting(name), second.known_setting(name));
            changes.extend(value_change(name, first, second));
        }
    }
    changes
}
