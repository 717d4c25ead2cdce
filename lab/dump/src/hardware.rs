//! Finds interfaces whose hardware address changed, so that hosts that know the earlier address do not
//! reach the node.

use std::collections::BTreeMap;

use ipnetwork::IpNetwork;

use svclab_ruleset::link::Links;

/// Hardware addresses to which other hosts send frames, by interface, with the IP addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnHardwareAddresses(BTreeMap<String, (String, Vec<IpNetwork>)>);

impl OwnHardwareAddresses {
    /// Returns the hardware addresses of the interfaces of a node.
    #[must_use]
    pub fn from_links(links: &Links) -> Self {
        let addresses = links.iter().filter_map(|(name, link)| {
            let address = link.neighbour_address()?.to_owned();
            Some((name.clone(), (address, link.global_addresses().collect())))
        });
        Self(addresses.collect())
    }

    /// Returns the interfaces whose hardware address differs in `other`, with both addresses. Empty
    /// if no interface has kept its IP address and its hardware address: other nodes, and a node
    /// that was built again, have other hardware addresses throughout.
    #[must_use]
    pub fn changes<'a>(&'a self, other: &'a Self) -> BTreeMap<&'a str, [&'a str; 2]> {
        let pairs = self
            .0
            .iter()
            .filter_map(|(name, own)| Some((name, own, other.0.get(name)?)));
        let (kept, changed): (Vec<_>, Vec<_>) =
            pairs.partition(|(_, (address, _), (known, _))| address == known);
        let is_same_host = |own: &[IpNetwork], known: &[IpNetwork]| {
            own.iter().any(|network| known.contains(network))
        };
        if !kept
            .iter()
            .any(|(_, (_, own), (_, known))| is_same_host(own, known))
        {
            return BTreeMap::new();
        }
        let changed = changed.into_iter();
        changed
            .map(|(name, (own, _), (known, _))| (name.as_str(), [own.as_str(), known.as_str()]))
            .collect()
    }
}
