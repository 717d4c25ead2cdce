//! Replays the neighbours and forwarding entries of VXLAN devices. The kernel resolves none of them
//! on a device that does not learn, so entries that the dump does not have are missing in the lab.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::add_omitted_entries;
use super::hardware::{HardwareAddresses, Translator};
use crate::replay::report::{ReplayReport, count_noun};
use svclab_dump::NodeDump;
use svclab_model::plan::{Forwarding, ForwardingTarget, LinkKind, Mac, Namespace, Neighbour, Plan};
use svclab_ruleset::bridge::fdb::Entry;

/// Words in the details of a device whose program adds entries when packets need them.
const ON_DEMAND: [&str; 2] = ["l2miss", "l3miss"];

/// Replaces the neighbours and forwarding entries of the node's tunnels.
pub(super) fn replay_tunnels(
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
    let is_dumped = |name: &str| {
        dump.links
            .as_ref()
            .is_some_and(|all| all.contains_key(name))
    };
    let tunnels = namespace.links.iter().filter(|link| {
        matches!(link.kind, LinkKind::Vxlan { .. }) && is_dumped(&link.name) && !link.down
    });
    let tunnels: Vec<Tunnel> = tunnels
        .map(|link| Tunnel::new(&link.name, namespace, dump, &translator))
        .collect();
    let mut unsupported: Vec<&Entry> = Vec::new();
    for tunnel in &tunnels {
        let entries = dump.static_forwarding();
        let entries = entries.filter(|entry| *entry.dev == *tunnel.dev);
        unsupported.extend(entries.filter(|entry| !entry.tunnel.is_empty()));
    }
    add_omitted_entries(
        report,
        &unsupported,
        "svclab does not support ports, VNIs, interfaces and next hop groups of forwarding entries",
        "frames to the address are not sent",
    );
    let Some(namespace) = plan.namespaces.iter_mut().find(|ns| ns.name == node) else {
        return;
    };
    for tunnel in tunnels {
        let Tunnel {
            dev,
            neighbours,
            forwarding,
        } = tunnel;
        let mut counts = Vec::new();
        if let Some(neighbours) = neighbours {
            counts.push(count_noun(neighbours.len(), "neighbour", "neighbours"));
            namespace.neighbours.retain(|planned| planned.dev != dev);
            namespace.neighbours.extend(neighbours);
        }
        if let Some(forwarding) = forwarding {
            let entries = ("forwarding entry", "forwarding entries");
            counts.push(count_noun(forwarding.len(), entries.0, entries.1));
            namespace.forwarding.retain(|planned| planned.dev != dev);
            namespace.forwarding.extend(forwarding);
        }
        if !counts.is_empty() {
            report.add_replayed(format!("{} of {dev}", counts.join(" and ")));
        }
    }
}

/// Entries of a VXLAN device for the plan. `None` keeps those of the plan.
struct Tunnel {
    dev: String,
    neighbours: Option<Vec<Neighbour>>,
    forwarding: Option<Vec<Forwarding>>,
}

impl Tunnel {
    fn new(dev: &str, namespace: &Namespace, dump: &NodeDump, translator: &Translator<'_>) -> Self {
        let neighbours: Vec<(IpAddr, Mac)> = dump
            .static_neighbours()
            .filter(|neighbour| *neighbour.dev == *dev)
            .filter_map(|neighbour| Some((neighbour.address, neighbour.mac()?)))
            .collect();
        let entries: Vec<(Mac, IpAddr)> = dump
            .static_forwarding()
            .filter(|entry| *entry.dev == *dev && entry.tunnel.is_empty())
            .filter_map(|entry| Some((entry.mac, entry.remote?)))
            .collect();
        let peers = peers(namespace, dev);
        let names = match_peers(&peers, &neighbours, &entries, translator);
        let translate = |mac: Mac| names.get(&mac).copied().unwrap_or(mac);
        let details = dump.kinds.as_ref().and_then(|kinds| kinds.get(dev));
        let is_on_demand = details.is_some_and(|link| {
            let mut words = link.details.split_ascii_whitespace();
            words.any(|word| ON_DEMAND.contains(&word))
        });
        let mut dumped_neighbours: Vec<Neighbour> = neighbours
            .iter()
            .map(|(address, mac)| Neighbour {
                address: *address,
                mac: translate(*mac),
                dev: dev.to_owned(),
            })
            .collect();
        let mut dumped_entries: Vec<Forwarding> = entries
            .iter()
            .map(|(mac, remote)| Forwarding {
                dev: dev.to_owned(),
                mac: translate(*mac),
                to: ForwardingTarget::Remote(*remote),
            })
            .collect();
        if is_on_demand {
            let planned = namespace.neighbours.iter().filter(|one| one.dev == dev);
            let is_new = |planned: &&Neighbour| {
                !neighbours
                    .iter()
                    .any(|(address, _)| *address == planned.address)
            };
            dumped_neighbours.extend(planned.filter(is_new).cloned());
            let planned = namespace.forwarding.iter().filter(|one| one.dev == dev);
            let known: Vec<Mac> = dumped_entries.iter().map(|entry| entry.mac).collect();
            let missing = planned.filter(|planned| !known.contains(&planned.mac));
            dumped_entries.extend(missing.cloned());
        }
        Self {
            dev: dev.to_owned(),
            neighbours: dump.neighbours.is_some().then_some(dumped_neighbours),
            forwarding: dump.forwarding.is_some().then_some(dumped_entries),
        }
    }
}

/// Tunnel end of another node in the plan.
struct Peer {
    address: IpAddr,
    mac: Mac,
    remote: Option<IpAddr>,
}

/// Returns the tunnel ends that a device of the plan reaches.
fn peers(namespace: &Namespace, dev: &str) -> Vec<Peer> {
    let neighbours = namespace.neighbours.iter().filter(|one| one.dev == dev);
    let remote = |mac: Mac| {
        let mut entries = namespace.forwarding.iter();
        let entry = entries.find(|entry| entry.dev == dev && entry.mac == mac)?;
        match entry.to {
            ForwardingTarget::Remote(remote) => Some(remote),
            ForwardingTarget::Port | ForwardingTarget::StickyPort | ForwardingTarget::Node => None,
        }
    };
    let to_peer = |neighbour: &Neighbour| Peer {
        address: neighbour.address,
        mac: neighbour.mac,
        remote: remote(neighbour.mac),
    };
    neighbours.map(to_peer).collect()
}

/// Function that returns the dumped addresses that may be those of a peer.
type Candidates<'a> = dyn Fn(&Peer) -> Vec<Mac> + 'a;

/// Returns the peers' link-layer addresses in the plan by those in the dump. An address that a
/// neighbour and a forwarding entry agree about is certain, unless a dump shows another one. Of two
/// that disagree, the forwarding entry counts, because the neighbour may belong to another node.
fn match_peers(
    peers: &[Peer],
    neighbours: &[(IpAddr, Mac)],
    entries: &[(Mac, IpAddr)],
    translator: &Translator<'_>,
) -> BTreeMap<Mac, Mac> {
    let macs = neighbours.iter().map(|(_, mac)| *mac);
    let macs = macs.chain(entries.iter().map(|(mac, _)| *mac));
    let translated = macs.filter_map(|mac| Some((mac, translator.translate(mac)?)));
    let mut names: BTreeMap<Mac, Mac> = translated.collect();
    let by_neighbour = |peer: &Peer| -> Vec<Mac> {
        let own = neighbours
            .iter()
            .filter(|(address, _)| *address == peer.address);
        own.map(|(_, mac)| *mac).collect()
    };
    let by_entry = |peer: &Peer| -> Vec<Mac> {
        let own = entries
            .iter()
            .filter(|(_, remote)| Some(*remote) == peer.remote);
        own.map(|(mac, _)| *mac).collect()
    };
    let agreed = |peer: &Peer| -> Vec<Mac> {
        let entries = by_entry(peer);
        let own = by_neighbour(peer).into_iter();
        own.filter(|mac| entries.contains(mac)).collect()
    };
    let sources: [&Candidates<'_>; 3] = [&agreed, &by_entry, &by_neighbour];
    for candidates in sources {
        for peer in peers {
            let mut free = candidates(peer);
            free.retain(|mac| !names.contains_key(mac) && translator.may_have(peer.address, *mac));
            let is_named = names.values().any(|mac| *mac == peer.mac);
            if let ([mac], false) = (free.as_slice(), is_named) {
                names.insert(*mac, peer.mac);
            }
        }
    }
    names
}
