//! Replays interfaces and addresses of a dumped node. Veth pairs of the plan to the fabric or to a
//! pod simulate the node's hardware and the veth pairs of its pods.

mod added;
mod matching;
mod other_ends;

pub use added::is_unknown_peer;
use std::collections::{BTreeMap, BTreeSet};

use ipnetwork::IpNetwork;

use super::naming::rename_link;
use super::report::{ReplayReport, count_noun, list_names};
use matching::match_links;
use other_ends::OtherEnds;
use svclab_dump::NodeDump;
use svclab_model::plan::{IPV6_MIN_MTU, Link, LinkKind, Namespace, Plan};
use svclab_ruleset::link::kind::LinkDetails;
use svclab_ruleset::link::{Address, Link as Dumped, Links};

/// Replaces the interfaces and addresses of the node with those of the dump.
pub fn replay_links(plan: &mut Plan, node: &str, dump: &NodeDump, report: &mut ReplayReport) {
    let Some(links) = &dump.links else {
        report.add_simulated("interfaces and addresses of the lab: `ip addr` was not dumped");
        return;
    };
    let pairs = match_links(plan, node, dump, links);
    for (dumped, planned) in &pairs {
        if dumped != planned {
            rename_link(plan, node, planned, dumped);
        }
    }
    let mut replacer = LinkReplacer {
        plan,
        node,
        dump,
        links,
        account: report,
    };
    replacer.update_matched(&pairs);
    replacer.add_unmatched(&pairs);
    replacer.remove_unmatched(&pairs);
    let count = links
        .values()
        .map(|link| link.addresses.len())
        .sum::<usize>();
    let interfaces = count_noun(links.len(), "interface", "interfaces");
    let addresses = count_noun(count, "address", "addresses");
    report.add_replayed(format!("{interfaces} with {addresses}"));
}

/// Returns the addresses of an interface that the plan contains.
fn plan_addresses(link: &Dumped) -> Vec<IpNetwork> {
    let dumped_addresses = link.addresses.iter();
    // The kernel creates link-local addresses itself, and from another hardware address.
    let static_addresses = dumped_addresses.filter(|address| !is_link_local(address));
    static_addresses.map(|address| address.network).collect()
}

pub(super) fn is_link_local(address: &Address) -> bool {
    matches!(address.network, IpNetwork::V6(six) if six.ip().is_unicast_link_local())
}

fn mtu(link: &Dumped) -> Option<u32> {
    link.attributes.get("mtu")?.parse().ok()
}

pub(super) fn is_down(link: &Dumped) -> bool {
    !link.has_flag("UP")
}

/// Whether an interface is up, but its cable or the other end of its veth pair is not.
pub(super) fn lacks_carrier(link: &Dumped) -> bool {
    link.has_flag("NO-CARRIER")
}

fn find_link_mut<'p>(plan: &'p mut Plan, namespace: &str, name: &str) -> Option<&'p mut Link> {
    let mut namespaces = plan.namespaces.iter_mut();
    let found = namespaces.find(|own| own.name == namespace)?;
    found.links.iter_mut().find(|link| link.name == name)
}

/// Replaces the settings of a vxlan device. Other kinds stay.
fn replace_tunnel(planned: &mut LinkKind, dumped: &LinkDetails, links: &Links) {
    let LinkKind::Vxlan {
        vni,
        port,
        dev,
        local,
    } = planned
    else {
        return;
    };
    let number = |name| dumped.detail(name).and_then(|text| text.parse().ok());
    *vni = number("id").unwrap_or(*vni);
    let udp = dumped.detail("dstport").and_then(|text| text.parse().ok());
    *port = udp.unwrap_or(*port);
    let address = dumped.detail("local").and_then(|text| text.parse().ok());
    *local = address.unwrap_or(*local);
    let underlay = dumped
        .detail("dev")
        .filter(|name| links.contains_key(*name));
    if let Some(underlay) = underlay {
        underlay.clone_into(dev);
    }
}

struct LinkReplacer<'a> {
    plan: &'a mut Plan,
    node: &'a str,
    dump: &'a NodeDump,
    links: &'a Links,
    account: &'a mut ReplayReport,
}

impl LinkReplacer<'_> {
    fn namespace(&mut self) -> Option<&mut Namespace> {
        let mut namespaces = self.plan.namespaces.iter_mut();
        namespaces.find(|namespace| namespace.name == self.node)
    }

    /// Updates interfaces that the plan has. Veth pairs keep their peers; everything else is
    /// replaced.
    fn update_matched(&mut self, pairs: &BTreeMap<String, String>) {
        let links = self.links;
        let dump = self.dump;
        let kinds = dump.kinds.as_ref();
        let mut peer_mtus = Vec::new();
        let mut assumed_mtus: BTreeMap<(u32, &str), Vec<String>> = BTreeMap::new();
        let mut peers_down: Vec<(String, String)> = Vec::new();
        let Some(namespace) = self.namespace() else {
            return;
        };
        let names: Vec<String> = namespace
            .links
            .iter()
            .map(|link| link.name.clone())
            .collect();
        let other_ends = OtherEnds::new(namespace, links, dump);
        for link in &mut namespace.links {
            let Some(dumped) = links
                .get(&link.name)
                .filter(|_| pairs.contains_key(&link.name))
            else {
                continue;
            };
            link.addresses = plan_addresses(dumped);
            link.down = is_down(dumped);
            if let LinkKind::Veth { namespace, peer } = &link.kind
                && lacks_carrier(dumped)
            {
                peers_down.push((namespace.clone(), peer.clone()));
            }
            let bridge = dumped.attributes.get("master");
            let bridge = bridge.filter(|bridge| {
                names.iter().any(|name| name == bridge) || links.contains_key(*bridge)
            });
            link.bridge = bridge.map(str::to_owned);
            if let Some(kind) = kinds.and_then(|kinds| kinds.get(&link.name)) {
                replace_tunnel(&mut link.kind, kind, links);
            }
            let Some(mtu) = mtu(dumped) else {
                continue;
            };
            let is_changed = mtu != link.mtu.unwrap_or(1500);
            if is_changed {
                link.mtu = Some(mtu);
            }
            if let LinkKind::Veth { namespace, peer } = &link.kind {
                let (other, reason) = other_ends.mtu(link, mtu);
                if is_changed || other != mtu {
                    let name = link.name.clone();
                    peer_mtus.push((namespace.clone(), peer.clone(), other, reason, name));
                }
            }
        }
        for (peer_namespace, peer, mtu, reason, name) in peer_mtus {
            if let Some(link) = find_link_mut(self.plan, &peer_namespace, &peer) {
                // With a smaller MTU, the kernel would remove the addresses.
                let has_v6 = link.addresses.iter().any(IpNetwork::is_ipv6);
                let (mtu, reason) = if has_v6 && mtu < IPV6_MIN_MTU {
                    (IPV6_MIN_MTU, "as IPv6 needs")
                } else {
                    (mtu, reason)
                };
                link.mtu = Some(mtu);
                let names: &mut Vec<String> = assumed_mtus.entry((mtu, reason)).or_default();
                names.push(name);
            }
        }
        for ((mtu, reason), names) in assumed_mtus {
            let names = list_names(&names);
            let assumed = format!("the MTU {mtu} at the other ends of {names}, {reason}");
            self.account.add_simulated(assumed);
        }
        for (peer_namespace, peer) in peers_down {
            if let Some(link) = find_link_mut(self.plan, &peer_namespace, &peer) {
                link.down = true;
            }
        }
    }

    /// Removes interfaces of the plan that the dump does not have. Veth pairs of pods remain, with
    /// their bridges.
    fn remove_unmatched(&mut self, pairs: &BTreeMap<String, String>) {
        let Some(namespace) = self.namespace() else {
            return;
        };
        let is_matched = |name: &str| pairs.contains_key(name);
        let bridge_names: BTreeSet<String> = namespace
            .links
            .iter()
            .filter_map(|link| link.bridge.clone())
            .collect();
        let dumped_names: BTreeSet<String> = self.links.keys().cloned().collect();
        let Some(namespace) = self.namespace() else {
            return;
        };
        let is_kept = |link: &Link| {
            is_matched(&link.name)
                || dumped_names.contains(&link.name)
                || matches!(link.kind, LinkKind::Veth { .. })
                || bridge_names.contains(&link.name)
        };
        let (kept, removed): (Vec<Link>, Vec<Link>) = std::mem::take(&mut namespace.links)
            .into_iter()
            .partition(is_kept);
        namespace.links = kept;
        let simulated: Vec<String> = namespace
            .links
            .iter()
            .filter(|link| !dumped_names.contains(&link.name))
            .map(|link| link.name.clone())
            .collect();
        let exists = |dev: &str| !removed.iter().any(|link| link.name == dev);
        namespace.routes.retain(|route| exists(&route.dev));
        namespace
            .neighbours
            .retain(|neighbour| exists(&neighbour.dev));
        namespace.forwarding.retain(|entry| exists(&entry.dev));
        namespace
            .sysctls
            .retain(|setting| setting.link.as_deref().is_none_or(exists));
        if !simulated.is_empty() {
            let description = format!("veth pairs to pods of the lab: {}", list_names(&simulated));
            self.account.add_simulated(description);
        }
    }
}
