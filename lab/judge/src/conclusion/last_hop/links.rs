//! Finds the neighbours and interfaces at fault: MTU, state, hardware address.

use std::net::IpAddr;

use super::LastHop;
use crate::conclusion::fault::{Fault, InterfaceName};
use crate::state::route_lookup::{RouteDecision, RouteLookup};
use svclab_model::evidence::LinkState;
use svclab_model::plan::{IPV6_MIN_MTU, LinkKind, Mac, NextHop};

/// Length in bytes of the VLAN tag, by which a received frame may exceed the MTU (Linux v6.12,
/// `include/linux/netdevice.h`, `__is_skb_forwardable`).
const VLAN_TAG: u32 = 4;

impl<'a> LastHop<'a> {
    /// Returns the interface that received an IPv6 packet, if the kernel has removed IPv6 from it,
    /// because its MTU is too small (Linux v6.12, `net/ipv6/addrconf.c`, `addrconf_notify`).
    pub(super) fn lost_ipv6(self) -> Option<Fault> {
        let link = self.ingress_port()?;
        let is_v6 = self.destination().is_ipv6();
        (is_v6 && link.mtu < IPV6_MIN_MTU).then(|| Fault::NoIpv6 {
            interface: link.name.clone(),
            mtu: link.mtu,
        })
    }

    /// Returns the route or the egress interface if the packet is larger than its MTU.
    pub(super) fn mtu(self) -> Option<Fault> {
        let lookup = self.destination_lookup();
        let RouteDecision::Unicast {
            interfaces,
            settings,
            ..
        } = &lookup.decision
        else {
            return None;
        };
        let length = self.header()?.length;
        if settings.mtu.is_some_and(|mtu| length > mtu) {
            return Some(Fault::Route { lookup });
        }
        let [interface] = interfaces.as_slice() else {
            return None;
        };
        self.small_mtu(&self.hop.namespace, self.own.link(interface)?, 0)
    }

    /// Returns an interface if the packet is larger than its MTU and these tolerated bytes.
    pub(super) fn small_mtu(
        self,
        namespace: &str,
        link: &LinkState,
        tolerance: u32,
    ) -> Option<Fault> {
        let (mtu, length) = (link.mtu, self.header()?.length);
        (length > mtu.saturating_add(tolerance)).then(|| Fault::Mtu {
            namespace: namespace.to_owned(),
            interface: link.name.clone(),
            mtu,
            length,
        })
    }

    /// Whether a neighbour has a static entry, which needs no reply.
    pub(super) fn is_static(self, neighbour: &Fault) -> bool {
        let Fault::Neighbour { address, interface } = neighbour else {
            return false;
        };
        let mut entries = self.own.network.neighbours.iter();
        entries.any(|entry| {
            entry.permanent && entry.address == *address && entry.interface == *interface
        })
    }

    /// Returns the next hop to which a lookup leads.
    pub(super) fn neighbour(self, lookup: RouteLookup) -> Option<Fault> {
        let RouteDecision::Unicast {
            interfaces,
            via,
            route,
            ..
        } = lookup.decision
        else {
            return None;
        };
        if let Some(hop) = self.unresolved_hop(&route) {
            return Some(Fault::Neighbour {
                address: hop.via?,
                interface: hop.dev.clone(),
            });
        }
        Some(Fault::Neighbour {
            address: via.unwrap_or(lookup.address),
            interface: interfaces.into_iter().next()?,
        })
    }

    /// Returns the next hop of a route that has no hardware address. `None` if the route does not
    /// have several next hops.
    pub(super) fn unresolved_hop(self, route: &str) -> Option<&'a NextHop> {
        let network = &self.own.network;
        let mut routes = network.multipath_routes.iter();
        let route = routes.find(|own| own.to_string() == route)?;
        let mut hops = route.next_hops.iter();
        hops.find(|hop| {
            hop.via
                .is_some_and(|via| self.neighbour_mac(via, &hop.dev).is_none())
        })
    }

    /// Returns the hardware address of a neighbour; `None` if the kernel does not know it.
    pub(super) fn neighbour_mac(self, address: IpAddr, interface: &str) -> Option<Mac> {
        let mut entries = self.own.network.neighbours.iter();
        let entry = entries.find(|entry| entry.address == address && entry.interface == interface);
        entry?.mac
    }

    /// Returns the other end of a veth interface in this namespace.
    pub(super) fn peer(self, interface: &str) -> Option<(&'a str, &'a LinkState)> {
        let namespace = self.lab.plan.namespace(&self.hop.namespace)?;
        let link = namespace.links.iter().find(|link| link.name == interface)?;
        let LinkKind::Veth { namespace, peer } = &link.kind else {
            return None;
        };
        Some((namespace, self.lab.observed(namespace)?.link(peer)?))
    }

    /// Returns why a frame that left the namespace was not received: the fault of the link behind
    /// the egress interface.
    pub(in crate::conclusion) fn link(self) -> Option<Fault> {
        let sent = self.hop.crossings.iter().rfind(|seen| seen.out)?;
        let link = self.own.link(&sent.interface)?;
        match link.kind.as_deref() {
            Some("dummy") => {
                let interface = link.name.clone();
                return Some(Fault::Dummy { interface });
            }
            Some("vxlan") => return self.vxlan(),
            Some("bridge") => return self.static_port(&link.name),
            _ => {}
        }
        let (namespace, peer) = self.peer(&link.name)?;
        let receiver = InterfaceName::new(namespace, &peer.name);
        if !peer.is_up() {
            return Some(Fault::Down {
                interface: receiver,
            });
        }
        if let Some(fault) = self.small_mtu(namespace, peer, VLAN_TAG) {
            return Some(fault);
        }
        let address = self.header()?.destination_mac?;
        // A bridge receives frames to all hardware addresses.
        let is_multicast = address.0[0] & 1 == 1;
        if peer.bridge.is_some() || peer.mac == Some(address) || is_multicast {
            return None;
        }
        let mut neighbours = self.own.network.neighbours.iter();
        // A bridge has the neighbours of its ports.
        let is_own =
            |interface: &String| *interface == link.name || link.bridge.as_ref() == Some(interface);
        let entry = neighbours.find(|entry| entry.mac == Some(address) && is_own(&entry.interface));
        Some(Fault::HardwareAddress {
            address,
            owner: self.owner_of(address),
            receiver,
            neighbour: entry.map(|entry| entry.address),
            bridge: self.static_entry(address, link),
        })
    }

    pub(super) fn owner_of(self, address: Mac) -> Option<InterfaceName> {
        self.lab.plan.namespaces.iter().find_map(|namespace| {
            let mut links = self.lab.observed(&namespace.name)?.links.iter();
            let link = links.find(|link| link.mac == Some(address))?;
            Some(InterfaceName::new(&namespace.name, &link.name))
        })
    }
}
