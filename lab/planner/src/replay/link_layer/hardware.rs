//! Translates link-layer addresses of dumps to those of a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use svclab_dump::NodeDump;
use svclab_model::plan::{Mac, Namespace, Plan};

/// Link-layer addresses by IP address, according to dumps: those of the dumped interfaces, and those
/// that dumped nodes have resolved. Entries that a program or a person set prove nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HardwareAddresses(BTreeMap<IpAddr, BTreeSet<Mac>>);

impl HardwareAddresses {
    /// Collects the addresses from these dumps.
    #[must_use]
    pub fn from_dumps<'d>(dumps: impl IntoIterator<Item = &'d NodeDump>) -> Self {
        let mut known = Self::default();
        for dump in dumps {
            for link in dump.links.iter().flat_map(|links| links.values()) {
                let mac = link.mac.as_deref().and_then(|mac| mac.parse().ok());
                let addresses = link.addresses.iter().map(|address| address.network.ip());
                for (address, mac) in addresses.zip(std::iter::repeat(mac)) {
                    known.add(address, mac);
                }
            }
            let neighbours = dump.neighbours.iter().flatten();
            for neighbour in neighbours.filter(|neighbour| neighbour.is_resolved()) {
                known.add(neighbour.address, neighbour.mac());
            }
        }
        known
    }

    /// Adds the addresses of other dumps.
    pub fn extend(&mut self, other: &Self) {
        for (address, macs) in &other.0 {
            self.0.entry(*address).or_default().extend(macs);
        }
    }

    fn add(&mut self, address: IpAddr, mac: Option<Mac>) {
        if let Some(mac) = mac {
            self.0.entry(address).or_default().insert(mac);
        }
    }
}

/// Whether a dump is that of a lab with the same interfaces: at least one has the link-layer address
/// that labs give it.
fn is_of_lab(node: &Namespace, dump: &NodeDump) -> bool {
    let mut own = node.links.iter();
    own.any(|link| {
        let derived = Mac::from_names(&node.name, &link.name);
        dumped_mac(dump, &link.name) == Some(derived)
    })
}

fn dumped_mac(dump: &NodeDump, link: &str) -> Option<Mac> {
    let link = dump.links.as_ref()?.get(link)?;
    link.mac.as_deref()?.parse().ok()
}

/// Gives the interfaces of a node the link-layer addresses of the dump of a lab: the other hosts
/// still know the addresses that labs give them.
pub(in crate::replay) fn keep_hardware_addresses(namespace: &mut Namespace, dump: &NodeDump) {
    if is_of_lab(namespace, dump) {
        for link in &mut namespace.links {
            link.mac = dumped_mac(dump, &link.name).unwrap_or(link.mac);
        }
    }
}

/// Translation of the link-layer addresses of a dumped node.
pub(super) struct Translator<'a> {
    node: &'a Namespace,
    known: &'a HardwareAddresses,
    /// Link-layer addresses of the plan by IP address.
    planned: BTreeMap<IpAddr, Mac>,
    /// Link-layer addresses of all interfaces of the plan.
    macs: BTreeSet<Mac>,
    /// Whether the dump is that of a lab with the same interfaces, which therefore have the
    /// link-layer addresses of the plan.
    is_of_lab: bool,
}

/// Meaning of a dumped neighbour.
pub(super) enum Meaning {
    /// The plan's neighbour with this link-layer address, or one that leads elsewhere.
    Known(Mac),
    /// Whether the link-layer address is right is unknown.
    Unknown,
}

impl<'a> Translator<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        node: &'a Namespace,
        dump: &NodeDump,
        known: &'a HardwareAddresses,
    ) -> Self {
        let links = || {
            plan.namespaces
                .iter()
                .flat_map(|namespace| &namespace.links)
        };
        let addresses = |link: &svclab_model::plan::Link| -> Vec<(IpAddr, Mac)> {
            let addresses = link.addresses.iter();
            addresses.map(|own| (own.ip(), link.mac)).collect()
        };
        let mut planned: BTreeMap<IpAddr, Mac> = links().flat_map(addresses).collect();
        // Several namespaces may have an address, such as that of a docker bridge.
        planned.extend(
            node.neighbours
                .iter()
                .map(|known| (known.address, known.mac)),
        );
        planned.extend(node.links.iter().flat_map(addresses));
        Self {
            node,
            known,
            planned,
            macs: links().map(|link| link.mac).collect(),
            is_of_lab: is_of_lab(node, dump),
        }
    }

    /// Whether an interface with this address may have this link-layer address: no dump shows
    /// another one.
    pub(super) fn may_have(&self, address: IpAddr, mac: Mac) -> bool {
        let proofs = self.known.0.get(&address);
        proofs.is_none_or(|macs| macs.contains(&mac))
    }

    /// Returns the link-layer address in the plan of the interface with a dumped address. `None` if
    /// the dumps do not show the interface, or the plan does not have it.
    pub(super) fn translate(&self, mac: Mac) -> Option<Mac> {
        if self.is_of_lab || self.macs.contains(&mac) || mac == Mac::ZERO || mac.is_group() {
            return Some(mac);
        }
        let mut owners = self.known.0.iter().filter(|(_, macs)| macs.contains(&mac));
        owners.find_map(|(address, _)| self.planned.get(address).copied())
    }

    /// Returns what a neighbour of a dumped entry is in the plan.
    pub(super) fn neighbour(&self, address: IpAddr, dev: &str, mac: Mac) -> Meaning {
        if self.is_of_lab {
            return Meaning::Known(mac);
        }
        let mut neighbours = self.node.neighbours.iter();
        let planned = neighbours.find(|one| one.address == address && one.dev == dev);
        let Some(planned) = planned.map(|neighbour| neighbour.mac) else {
            // No host of the lab has the address.
            return Meaning::Known(self.translate(mac).unwrap_or(mac));
        };
        let is_proven = |macs: &BTreeSet<Mac>| macs.contains(&mac);
        let proofs = self.known.0.get(&address);
        match (self.translate(mac), proofs) {
            (_, Some(macs)) if is_proven(macs) => Meaning::Known(planned),
            (Some(other), _) => Meaning::Known(other),
            (None, Some(_)) => Meaning::Known(mac),
            (None, None) => Meaning::Unknown,
        }
    }
}
