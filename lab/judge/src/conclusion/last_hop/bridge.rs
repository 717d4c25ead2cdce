//! Finds the bridge port that caused a drop, from the observed ports and forwarding entries.

use super::LastHop;
use crate::conclusion::fault::{Fault, InterfaceName};
use crate::state::route_lookup::RouteDecision;
use svclab_model::evidence::LinkState;
use svclab_model::plan::{Link, LinkKind, Mac};

impl<'a> LastHop<'a> {
    /// Returns the bridge port that leads to the destination of a frame in a bridge.
    pub(super) fn bridge_port(self) -> Option<Fault> {
        let ingress = self.ingress_port();
        let bridge = match ingress.and_then(|ingress| ingress.bridge.as_ref()) {
            Some(bridge) => bridge.clone(),
            None => self.egress_bridge()?.clone(),
        };
        let is_port = |link: &&LinkState| link.bridge.as_ref() == Some(&bridge);
        let mut ports = self.own.links.iter().filter(is_port);
        let port = ports.find(|link| self.leads_to_destination(link))?;
        let port_name = port.name.clone();
        let settings = port.port.unwrap_or_default();
        if !port.is_up() {
            return Some(Fault::BridgePort {
                bridge,
                port: port_name,
                down: true,
            });
        }
        if !settings.forwarding {
            return Some(Fault::DisabledPort {
                bridge,
                port: port_name,
            });
        }
        if let Some(ingress) = ingress.filter(is_port) {
            if ingress.name == port.name && !settings.hairpin {
                return Some(Fault::Hairpin {
                    bridge,
                    port: port_name,
                });
            }
            let is_isolated = ingress.port.unwrap_or_default().isolated;
            if ingress.name != port.name && is_isolated && settings.isolated {
                return Some(Fault::IsolatedPorts {
                    bridge,
                    ingress: ingress.name.clone(),
                    port: port_name,
                });
            }
        }
        let address = self.header().and_then(|header| header.destination_mac);
        if !settings.flood && !address.is_some_and(|address| self.has_entry(address, port)) {
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

    /// Returns the bridge of the port that received the frame, if the bridge is down: the kernel
    /// then disables its ports (Linux v6.12, `net/bridge/br_stp_if.c`, `br_stp_disable_bridge`).
    pub(super) fn bridge_down(self) -> Option<Fault> {
        let bridge = self.own.link(self.ingress_port()?.bridge.as_ref()?)?;
        (!bridge.is_up()).then(|| Fault::Down {
            interface: InterfaceName::new(&self.hop.namespace, &bridge.name),
        })
    }

    /// Returns the port that received the frame, if the port does not forward.
    pub(super) fn disabled_ingress(self) -> Option<Fault> {
        let is_disabled = |port: &&LinkState| port.port.is_some_and(|state| !state.forwarding);
        let port = self.ingress_port().filter(is_disabled)?;
        Some(Fault::DisabledPort {
            bridge: port.bridge.clone()?,
            port: port.name.clone(),
        })
    }

    /// Returns the interface that sent a frame to its own address into a bridge: the bridge sends no
    /// frame back through the port that received it. In hairpin mode, it would send those back whose
    /// destination was translated to the sender.
    pub(super) fn returned_frame(self) -> Option<Fault> {
        let port = self.ingress_port()?;
        port.bridge.as_ref()?;
        if self.leads_to_destination(port) {
            return None;
        }
        let address = self.header()?.destination_mac?;
        let (namespace, sender) = self.peer(&port.name)?;
        (sender.mac == Some(address)).then(|| Fault::ReturnedFrame {
            sender: InterfaceName::new(namespace, &sender.name),
            address,
            without_arp: !sender.resolves_neighbours(),
        })
    }

    /// Returns what made a bridge refuse a frame: the bridge, if it is down, the port that received
    /// the frame, if it does not forward or is locked, or the port to the destination, if its settings
    /// tell why. Linux v6.18 reports the ports in the same function (`net/bridge/br_input.c`,
    /// `br_handle_frame_finish`).
    pub(super) fn bridge_ingress(self) -> Option<Fault> {
        let state = self.bridge_down().or_else(|| self.disabled_ingress());
        let found = state.or_else(|| self.returned_frame());
        if found.is_some() {
            return found;
        }
        let is_locked = |port: &&LinkState| port.port.is_some_and(|settings| settings.locked);
        match self.ingress_port().filter(is_locked) {
            Some(port) => Some(Fault::LockedPort {
                bridge: port.bridge.clone()?,
                port: port.name.clone(),
            }),
            None => self
                .bridge_port()
                .filter(|fault| !matches!(fault, Fault::BridgePort { .. })),
        }
    }

    /// Returns why a frame ended in a bridge without a report of the kernel: the port to the
    /// destination does not flood, and the bridge does not know the address.
    pub(in crate::conclusion) fn silent_port(self) -> Option<Fault> {
        self.ingress_port()?.bridge.as_ref()?;
        self.bridge_port()
            .filter(|fault| matches!(fault, Fault::UnknownHardwareAddress { .. }))
    }

    /// Returns the end behind a port to which a static entry led the frame, if the end has another
    /// hardware address.
    pub(super) fn static_port(self, bridge: &str) -> Option<Fault> {
        let address = self.header()?.destination_mac?;
        let mut ports = self.own.links.iter();
        let port = ports.find(|link| {
            link.bridge.as_deref() == Some(bridge) && self.static_entry(address, link).is_some()
        })?;
        let (namespace, end) = self.peer(&port.name)?;
        (end.mac != Some(address)).then(|| Fault::HardwareAddress {
            address,
            owner: self.owner_of(address),
            receiver: InterfaceName::new(namespace, &end.name),
            neighbour: None,
            bridge: Some(bridge.to_owned()),
        })
    }

    /// Returns the bridge with a static entry that leads from an address to a port. `None` without
    /// such an entry.
    pub(super) fn static_entry(self, address: Mac, port: &LinkState) -> Option<String> {
        let mut entries = self.own.network.forwarding.iter();
        let leads = entries.any(|entry| {
            entry.mac == address
                && entry.interface == port.name
                && entry.permanent
                && entry.remote.is_none()
        });
        port.bridge.clone().filter(|_| leads)
    }

    /// Whether a bridge has an entry, added or learned, that leads from an address to a port.
    fn has_entry(self, address: Mac, port: &LinkState) -> bool {
        let mut entries = self.own.network.forwarding.iter();
        entries.any(|entry| entry.mac == address && entry.interface == port.name)
    }

    /// Returns the interface that received the frame last.
    pub(super) fn ingress_port(self) -> Option<&'a LinkState> {
        let ingress = self.hop.crossings.iter().rfind(|seen| !seen.out)?;
        self.own.link(&ingress.interface)
    }

    /// Returns the bridge to which the packet was routed.
    pub(super) fn egress_bridge(self) -> Option<&'a String> {
        let RouteDecision::Unicast { interfaces, .. } = self.destination_lookup().decision else {
            return None;
        };
        let link = self.own.link(interfaces.first()?)?;
        (link.kind.as_deref() == Some("bridge")).then_some(&link.name)
    }

    /// Names the host with the address of a silent neighbour, if the host is not behind the bridge to
    /// which the packet was routed.
    pub(super) fn with_owner(self, fault: Fault) -> Fault {
        let Fault::Neighbour { address, interface } = &fault else {
            return fault;
        };
        let is_bridge = |link: &LinkState| link.kind.as_deref() == Some("bridge");
        if !self.own.link(interface).is_some_and(is_bridge) {
            return fault;
        }
        let mut links = self.lab.plan.namespaces.iter().flat_map(|namespace| {
            let links = namespace.links.iter();
            links.map(move |link| (&namespace.name, link))
        });
        let has_address = |link: &Link| link.addresses.iter().any(|own| own.ip() == *address);
        let Some((owner, link)) = links.find(|(_, link)| has_address(link)) else {
            return fault;
        };
        let is_behind = match &link.kind {
            LinkKind::Veth { namespace, peer } => {
                let port = self.own.link(peer);
                *namespace == self.hop.namespace
                    && port.is_some_and(|port| port.bridge.as_ref() == Some(interface))
            }
            _ => false,
        };
        if is_behind || *owner == self.hop.namespace {
            return fault;
        }
        Fault::UnconnectedNeighbour {
            address: *address,
            bridge: interface.clone(),
            owner: InterfaceName::new(owner, &link.name),
        }
    }

    /// Whether the other end of a veth pair has the destination address of the packet.
    fn leads_to_destination(self, link: &LinkState) -> bool {
        let destination = self.destination();
        self.peer(&link.name)
            .is_some_and(|(_, end)| end.addresses.iter().any(|own| own.ip() == destination))
    }
}
