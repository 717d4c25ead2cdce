//! Replays static neighbours of interfaces without a tunnel, and static forwarding entries of
//! bridges. All other neighbours stay as planned: the lab needs no address resolution.

use super::add_omitted_entries;
use super::hardware::{HardwareAddresses, Meaning, Translator};
use crate::replay::report::{ReplayReport, count_noun};
use svclab_dump::NodeDump;
use svclab_model::plan::{Forwarding, ForwardingTarget, LinkKind, Namespace, Neighbour, Plan};
use svclab_ruleset::bridge::fdb::{Entry, State};
use svclab_ruleset::neighbour::Neighbour as Dumped;

/// Whether an interface of the namespace is up and has no tunnel.
fn is_plain_interface(namespace: &Namespace, dev: &str) -> bool {
    let mut links = namespace.links.iter();
    links.any(|link| link.name == dev && !link.down && !matches!(link.kind, LinkKind::Vxlan { .. }))
}

/// Replaces planned neighbours with the static neighbours of the dump.
pub(super) fn replay_neighbours(
    plan: &mut Plan,
    node: &str,
    dump: &NodeDump,
    known: &HardwareAddresses,
    report: &mut ReplayReport,
) {
    let Some(namespace) = plan.namespace(node) else {
        return;
    };
    let translator = Translator::new(plan, namespace, dump, known);
    let mut replayed = Vec::new();
    let mut unknown: Vec<&Dumped> = Vec::new();
    let dumped = dump.static_neighbours();
    for neighbour in dumped.filter(|one| is_plain_interface(namespace, &one.dev)) {
        let Some(mac) = neighbour.mac() else {
            continue;
        };
        match translator.neighbour(neighbour.address, &neighbour.dev, mac) {
            Meaning::Known(mac) => replayed.push(Neighbour {
                address: neighbour.address,
                mac,
                dev: neighbour.dev.to_string(),
            }),
            Meaning::Unknown => unknown.push(neighbour),
        }
    }
    add_omitted_entries(
        report,
        &unknown,
        "the dumps do not show the link-layer address of the neighbour, so the lab has the right one",
        "if the address is wrong, packets to the neighbour are lost on the node, but not in the lab",
    );
    let failed = dump.neighbours.iter().flatten();
    let failed = failed.filter(|neighbour| neighbour.state.is_unanswered());
    let is_planned = |failed: &&Dumped| {
        let mut planned = namespace.neighbours.iter();
        planned.any(|one| one.address == failed.address && *one.dev == *failed.dev)
    };
    let failed: Vec<&Dumped> = failed.filter(is_planned).collect();
    add_omitted_entries(
        report,
        &failed,
        "the neighbour did not reply to the node, but every neighbour of the lab does",
        "packets to the neighbour are lost on the node, but not in the lab",
    );
    if !replayed.is_empty() {
        let count = count_noun(replayed.len(), "static neighbour", "static neighbours");
        report.add_replayed(count);
    }
    if let Some(namespace) = plan.namespaces.iter_mut().find(|ns| ns.name == node) {
        for neighbour in replayed {
            let mut planned = namespace.neighbours.iter_mut();
            let is_same =
                |one: &&mut Neighbour| one.address == neighbour.address && one.dev == neighbour.dev;
            match planned.find(is_same) {
                Some(planned) => planned.mac = neighbour.mac,
                None => namespace.neighbours.push(neighbour),
            }
        }
    }
}

/// Adds the static forwarding entries of bridges.
pub(super) fn replay_bridge_entries(
    plan: &mut Plan,
    node: &str,
    dump: &NodeDump,
    known: &HardwareAddresses,
    report: &mut ReplayReport,
) {
    let Some(namespace) = plan.namespace(node) else {
        return;
    };
    let translator = Translator::new(plan, namespace, dump, known);
    let mut replayed = Vec::new();
    let (mut unbuilt, mut tagged): (Vec<&Entry>, Vec<&Entry>) = (Vec::new(), Vec::new());
    for entry in dump.static_forwarding() {
        let Some(bridge) = &entry.bridge else {
            continue;
        };
        let mut links = namespace.links.iter();
        let is_built = links.any(|link| {
            let is_port = link.name == *entry.dev && link.bridge.as_deref() == Some(bridge);
            is_port || (link.name == *entry.dev && entry.dev == *bridge)
        });
        if entry.vlan.is_some() {
            tagged.push(entry);
        } else if is_built {
            replayed.push(Forwarding {
                dev: entry.dev.to_string(),
                mac: translator.translate(entry.mac).unwrap_or(entry.mac),
                to: match entry.state {
                    State::Permanent => ForwardingTarget::Node,
                    _ if entry.flags.iter().any(|flag| &**flag == "sticky") => {
                        ForwardingTarget::StickyPort
                    }
                    State::Static | State::Learned => ForwardingTarget::Port,
                },
            });
        } else {
            unbuilt.push(entry);
        }
    }
    let affects = "frames to the address leave through another port in the lab";
    add_omitted_entries(report, &unbuilt, "its interface is not built", affects);
    add_omitted_entries(report, &tagged, "svclab does not support VLANs", affects);
    if !replayed.is_empty() {
        let count = count_noun(replayed.len(), "forwarding entry", "forwarding entries");
        report.add_replayed(format!("{count} of bridges"));
    }
    if let Some(namespace) = plan.namespaces.iter_mut().find(|ns| ns.name == node) {
        namespace.forwarding.extend(replayed);
    }
}
