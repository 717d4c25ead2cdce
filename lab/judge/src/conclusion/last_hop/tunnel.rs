//! Finds why a VXLAN interface, or the network between its ends, lost a packet.

use std::net::IpAddr;

use super::LastHop;
use super::routes::explain_route;
use crate::conclusion::drop_kind::DropKind;
use crate::conclusion::fault::Fault;
use crate::state::route_lookup::{Transport, inner_transport};
use svclab_journey::journey::ingress_interface;
use svclab_model::plan::Mac;

/// VXLAN interface to which a packet was routed.
struct Tunnel {
    interface: String,
    /// Next hop of the packet.
    neighbour: IpAddr,
    /// Hardware address of the next hop; `None` without an entry.
    address: Option<Mac>,
}

impl LastHop<'_> {
    /// Returns the VXLAN interface if it has no forwarding entry for the packet.
    pub(super) fn vxlan(self) -> Option<Fault> {
        let tunnel = self.tunnel()?;
        let has_entry = |address| self.remote(&tunnel.interface, address).is_some();
        (!tunnel.address.is_some_and(has_entry)).then(|| tunnel.without_entry())
    }

    /// Returns why a VXLAN interface could not send the packet to its tunnel end: the route or the
    /// gateway to the end, or the end itself.
    pub(super) fn vxlan_remote(self) -> Option<Fault> {
        let tunnel = self.tunnel()?;
        let address = tunnel.address?;
        let remote = self.remote(&tunnel.interface, address)?;
        let vxlan = self.own.link(&tunnel.interface)?.vxlan?;
        let source = match self.flight.tunnel {
            Some(outer) => outer.addresses.source.ip(),
            None => vxlan.local?,
        };
        // The kernel chooses the source port by the inner packet.
        let transport = Transport::udp(0, vxlan.port);
        let mark = self.own.routing_mark(self.hop);
        let lookup = self.lookup(source, remote, "lo", mark, transport);
        if lookup.is_unroutable() {
            return Some(Fault::Route { lookup });
        }
        match self.neighbour(lookup) {
            Some(Fault::Neighbour {
                address: gateway,
                interface,
            }) if gateway != remote && self.neighbour_mac(gateway, &interface).is_none() => {
                Some(Fault::Neighbour {
                    address: gateway,
                    interface,
                })
            }
            _ => Some(Fault::VxlanRemote {
                remote,
                interface: tunnel.interface,
                neighbour: tunnel.neighbour,
                address,
            }),
        }
    }

    /// Explains a packet that a VXLAN interface dropped, because no route leads to the tunnel end
    /// (Linux v6.12, `drivers/net/vxlan/vxlan_core.c`, `vxlan_xmit_one`). The kernel reports the
    /// inner packet. `None` for other packets.
    pub(super) fn unroutable_tunnel(self) -> Option<(DropKind, Option<Fault>)> {
        let sent = self.hop.crossings.last().filter(|seen| seen.out)?;
        let is_inner = self.flight.tunnel.is_none() && !sent.encapsulated;
        self.own.link(&sent.interface).filter(|_| is_inner)?.vxlan?;
        match self.vxlan_remote()? {
            Fault::Route { lookup } => Some(explain_route(lookup, DropKind::NoRoute)),
            _ => None,
        }
    }

    /// Returns why a packet that only the VXLAN interface carried did not leave it.
    pub(in crate::conclusion) fn vxlan_remote_unsent(self) -> Option<Fault> {
        let tunnel = self.tunnel()?;
        let last = self.hop.crossings.last()?;
        let is_unsent = last.interface == tunnel.interface;
        is_unsent.then(|| self.vxlan_remote()).flatten()
    }

    /// Returns the VXLAN interface if it has no entry for the next hop, and no tunnel end to which it
    /// could send a request for the hardware address.
    pub(in crate::conclusion) fn vxlan_neighbour(self) -> Option<Fault> {
        let tunnel = self.tunnel()?;
        let asks = || self.remote(&tunnel.interface, Mac([0; 6])).is_some();
        (tunnel.address.is_none() && !asks()).then(|| tunnel.without_entry())
    }

    /// Returns the VXLAN interface of this namespace to which the inner packet was routed.
    fn tunnel(self) -> Option<Tunnel> {
        let ingress = ingress_interface(self.hop).map_or("lo", |seen| &seen.interface);
        let (source, destination) = (self.hop.before.source, self.hop.after.destination);
        let mark = self.own.routing_mark(self.hop);
        let transport = inner_transport(self.flight, self.hop);
        let lookup = self.lookup(source.ip(), destination.ip(), ingress, mark, transport);
        let Some(Fault::Neighbour { address, interface }) = self.neighbour(lookup) else {
            return None;
        };
        self.own.link(&interface)?.vxlan?;
        Some(Tunnel {
            address: self.neighbour_mac(address, &interface),
            interface,
            neighbour: address,
        })
    }

    /// Returns the tunnel end to which a forwarding entry of a VXLAN interface leads.
    fn remote(self, interface: &str, address: Mac) -> Option<IpAddr> {
        let mut entries = self.own.network.forwarding.iter();
        let entry = entries.find(|entry| entry.mac == address && entry.interface == interface);
        entry?.remote
    }
}

impl Tunnel {
    fn without_entry(self) -> Fault {
        Fault::Vxlan {
            interface: self.interface,
            neighbour: self.neighbour,
            address: self.address,
        }
    }
}
