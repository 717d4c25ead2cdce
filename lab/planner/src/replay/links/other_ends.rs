//! Assumes the MTUs at the other ends of veth pairs. No dump of a node contains them.
//!
//! The receiving end of a pair drops packets that are longer than its own MTU (Linux v6.12,
//! `include/linux/netdevice.h`, `__is_skb_forwardable`). If the other end were assumed to have the MTU
//! of the node's end, a wrong MTU would have no effect. The other interfaces of the node show which
//! MTU is likely.

use std::collections::BTreeMap;

use svclab_dump::NodeDump;
use svclab_model::plan::{Link, LinkKind, Namespace};
use svclab_rules::flannel::VXLAN_OVERHEAD;
use svclab_ruleset::link::Links;

use super::mtu;

/// MTUs of a dumped node that show which MTU the other end of a veth pair has.
pub(super) struct OtherEnds {
    /// MTU that most veth pairs to pods have; of two, the larger one.
    usual_of_pods: Option<u32>,
    /// MTU that an interface needs for the packets of tunnels through it, by its name.
    needed: BTreeMap<String, u32>,
}

impl OtherEnds {
    pub(super) fn new(node: &Namespace, links: &Links, dump: &NodeDump) -> Self {
        let kinds = dump.kinds.as_ref();
        let to_pods = node.links.iter().filter(|link| leads_to_pod(&link.kind));
        let to_pods: Vec<&str> = to_pods.map(|link| link.name.as_str()).collect();
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        let mut needed: BTreeMap<String, u32> = BTreeMap::new();
        for (name, link) in links {
            let Some(mtu) = mtu(link) else {
                continue;
            };
            let details = kinds.and_then(|kinds| kinds.get(name));
            let kind = details.and_then(|details| details.kind.as_deref());
            if kind == Some("veth") || to_pods.contains(&&**name) {
                *counts.entry(mtu).or_default() += 1;
            }
            let tunnel = details.filter(|_| kind == Some("vxlan"));
            if let Some(dev) = tunnel.and_then(|details| details.detail("dev")) {
                let own = needed.entry(dev.to_owned()).or_default();
                *own = (*own).max(mtu + VXLAN_OVERHEAD);
            }
        }
        let usual = counts.iter().max_by_key(|(mtu, count)| (**count, **mtu));
        Self {
            usual_of_pods: usual.map(|(mtu, _)| *mtu),
            needed,
        }
    }

    /// Returns the MTU to assume at the other end of an interface with this MTU, and why.
    pub(super) fn mtu(&self, link: &Link, own: u32) -> (u32, &'static str) {
        let as_on_node = (own, "as on the node");
        if leads_to_pod(&link.kind) {
            let usual = self.usual_of_pods.filter(|usual| *usual != own);
            return usual.map_or(as_on_node, |usual| (usual, "as most interfaces to pods"));
        }
        let needed = self.needed.get(&link.name).filter(|needed| **needed > own);
        needed.map_or(as_on_node, |needed| {
            (*needed, "as the tunnel through it needs")
        })
    }
}

fn leads_to_pod(kind: &LinkKind) -> bool {
    matches!(kind, LinkKind::Veth { namespace, .. } if namespace.starts_with("pod/"))
}
