//! Finds the bridge port that caused a drop. The plan has the settings of the ports.

use super::fault::{Fault, LastHop};
use super::route_lookup::RouteDecision;
use svclab_model::plan::{ForwardingTarget, Link, LinkKind, Mac};

impl<'a> LastHop<'a> {
    /// Returns the bridge port that leads to the destination of a frame in a bridge.
    pub(super) fn bridge_port(self) -> Option<Fault> {
        let ingress = self.ingress_port();
        let bridge = match ingress.and_then(|ingress| ingress.bridge.clone()) {
            Some(bridge) => bridge,
            None => self.egress_bridge()?,
        };
        let is_port = |link: &&Link| link.bridge.as_ref() == Some(&bridge);
        let mut ports = self.namespace.links.iter().filter(is_port);
        let port = ports.find(|link| self.leads_to_destination(link))?;
        let port_name = port.name.clone();
        let ingress = ingress.filter(is_port);
        if port.down {
            return Some(Fault::BridgePort {
                bridge,
                port: port_name,
                down: true,
            });
        }
        if let Some(ingress) = ingress {
            if ingress.name == port.name && !port.port.hairpin {
                return Some(Fault::Hairpin {
                    bridge,
                    port: port_name,
                });
            }
            if ingress.name != port.name && ingress.port.isolated && port.port.isolated {
                return Some(Fault::IsolatedPorts {
                    bridge,
                    ingress: ingress.name.clone(),
                    port: port_name,
                });
            }
        }
        let address = self.header().and_then(|header| header.destination_mac);
        let is_known = address.is_some_and(|address| self.static_entry(address, port).is_some());
        if !port.port.flood && !is_known {
            return Some(Fault::UnknownHardwareAddress {
                bridge,
                port: port_name,
                address,
            });
        }
        Some(Fault::BridgePort {
            bridge,
            port: port_name,
            down: false,
        })
    }

    /// Returns the port that refused a frame, if the port is locked.
    pub(super) fn locked_port(self) -> Option<Fault> {
        let port = self.ingress_port().filter(|port| port.port.locked)?;
        Some(Fault::LockedPort {
            bridge: port.bridge.clone()?,
            port: port.name.clone(),
        })
    }

    /// Returns the bridge with a static entry that leads from an address to a port. `None` without
    /// such an entry.
    pub(super) fn static_entry(self, address: Mac, port: &Link) -> Option<String> {
        let mut entries = self.namespace.forwarding.iter();
        let leads = entries.any(|entry| {
            entry.mac == address && entry.dev == port.name && entry.to == ForwardingTarget::Port
        });
        port.bridge.clone().filter(|_| leads)
    }

    /// Returns the interface that received the frame last.
    fn ingress_port(self) -> Option<&'a Link> {
        let ingress = self.hop.crossings.iter().rfind(|seen| !seen.out)?;
        self.link_named(&ingress.interface)
    }

    /// Returns the bridge to which the packet was routed.
    fn egress_bridge(self) -> Option<String> {
        let RouteDecision::Unicast { interfaces, .. } = self.destination_lookup().decision else {
            return None;
        };
        let link = self.link_named(interfaces.first()?)?;
        (link.kind == LinkKind::Bridge).then(|| link.name.clone())
    }

    /// Whether the other end of a veth pair has the destination address of the packet.
    fn leads_to_destination(self, link: &Link) -> bool {
        let destination = self.hop.after.destination.ip();
        let LinkKind::Veth { namespace, peer } = &link.kind else {
            return false;
        };
        let other = self.plan.namespace(namespace);
        let mut ends = other.into_iter().flat_map(|other| &other.links);
        let has_address = |end: &Link| end.addresses.iter().any(|own| own.ip() == destination);
        ends.any(|end| end.name == *peer && has_address(end))
    }
}
