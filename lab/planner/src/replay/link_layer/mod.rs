//! Replays the link layer of a dumped node: neighbours, forwarding entries and the settings of
//! bridge ports.
//!
//! Interfaces of a plan have link-layer addresses of their own. A dumped address is translated to
//! that of the same interface in the plan. An address that no interface of the plan has stays as
//! dumped, so frames to it are lost in the lab as on the node.

mod hardware;
mod neighbours;
mod ports;
#[cfg(test)]
mod tests;
mod tunnels;

pub use hardware::HardwareAddresses;
pub(super) use hardware::keep_hardware_addresses;
pub(super) use ports::pods_behind_ports;

use std::fmt::Display;

use super::report::{ReplayReport, list_names};
use svclab_dump::NodeDump;
use svclab_model::plan::{LinkKind, Plan};

/// Replaces the link layer of the node with that of the dump. Interfaces and routes must have been
/// replaced before. `known` are the link-layer addresses according to all dumps.
pub fn replay_link_layer(
    plan: &mut Plan,
    node: &str,
    dump: &NodeDump,
    known: &HardwareAddresses,
    report: &mut ReplayReport,
) {
    report_missing_output(plan, node, dump, report);
    neighbours::replay_neighbours(plan, node, dump, known, report);
    neighbours::replay_bridge_entries(plan, node, dump, known, report);
    tunnels::replay_tunnels(plan, node, dump, known, report);
    if let Some(namespace) = plan.namespaces.iter_mut().find(|ns| ns.name == node) {
        ports::replay_ports(namespace, dump, report);
    }
}

/// Reports tunnels whose entries are those of the lab.
fn report_missing_output(plan: &Plan, node: &str, dump: &NodeDump, report: &mut ReplayReport) {
    let links = plan.namespace(node).into_iter().flat_map(|ns| &ns.links);
    let is_tunnel = |kind: &LinkKind| matches!(kind, LinkKind::Vxlan { .. });
    let dumped_links = |name: &str| {
        dump.links
            .as_ref()
            .is_some_and(|all| all.contains_key(name))
    };
    let tunnels = links.filter(|link| is_tunnel(&link.kind) && dumped_links(&link.name));
    let tunnels: Vec<String> = tunnels.map(|link| link.name.clone()).collect();
    if tunnels.is_empty() {
        return;
    }
    for (entries, program, is_missing) in [
        ("neighbours", "ip neigh", dump.neighbours.is_none()),
        (
            "forwarding entries",
            "bridge fdb",
            dump.forwarding.is_none(),
        ),
    ] {
        if is_missing {
            let names = list_names(&tunnels);
            report.add_simulated(format!("{entries} of {names}: `{program}` was not dumped"));
        }
    }
}

/// Reports entries that are not built for the same reason.
fn add_omitted_entries<E: Display>(
    report: &mut ReplayReport,
    entries: &[E],
    reason: &str,
    affects: &str,
) {
    if !entries.is_empty() {
        let lines: Vec<String> = entries.iter().map(|entry| format!("`{entry}`")).collect();
        report.add_omitted(list_names(&lines), reason, affects);
    }
}
