//! Finds the object that caused a drop. The state of the lab has the objects, and the packet's last
//! capture has its TTL, length and hardware address.

mod bridge;
mod hook_rules;
mod links;
pub(super) mod routes;
mod tunnel;

use std::net::{IpAddr, SocketAddr};

use routes::explain_route;

use crate::conclusion::drop_kind::DropKind;
use crate::conclusion::fault::Fault;
use crate::conclusion::rules::RuleReference;
use crate::state::route_lookup::{RouteLookup, RouteQuery, Transport, inner_transport};
use crate::state::{LabState, NamespaceState};
use svclab_journey::journey::{
    Hop, Kind, PacketHeader, PacketPath, TunnelPacket, ingress_interface,
};
use svclab_ruleset::Protocol;
use svclab_ruleset::ipvs::VirtualServerKey;

/// Packet in its last namespace, with the state of the lab.
#[derive(Clone, Copy)]
pub(super) struct LastHop<'a> {
    pub(super) lab: &'a LabState<'a>,
    pub(super) own: &'a NamespaceState,
    pub(super) flight: &'a PacketPath,
    pub(super) hop: &'a Hop,
}

impl<'a> LastHop<'a> {
    /// Returns `None` if the plan does not have the namespace.
    pub(super) fn new(lab: &'a LabState<'a>, flight: &'a PacketPath, hop: &'a Hop) -> Option<Self> {
        Some(Self {
            lab,
            own: lab.observed(&hop.namespace)?,
            flight,
            hop,
        })
    }

    /// Returns the object at fault. Replaces a kind that stands for several causes by the cause
    /// that the evidence shows.
    pub(super) fn explain(self, kind: DropKind) -> (DropKind, Option<Fault>) {
        if kind == DropKind::Netfilter
            && let Some(refused) = self.refused_reroute()
        {
            return refused;
        }
        if kind == DropKind::Ipvs
            && let Some(unroutable) = self.unroutable_real_server()
        {
            return unroutable;
        }
        if let Some(refused) = self.unroutable_tunnel() {
            return refused;
        }
        let fault = match kind {
            DropKind::NoRoute | DropKind::RouteRefused => {
                return explain_route(self.destination_lookup(), kind);
            }
            DropKind::ReversePath | DropKind::LocalSource | DropKind::InvalidSource => {
                Some(self.source_route())
            }
            DropKind::RouteInput if self.destination().is_ipv6() => return self.route_input_v6(),
            DropKind::RouteInput => return self.route_input(),
            DropKind::InvalidHeader | DropKind::IpInput if self.has_ipv6_loopback() => {
                return (DropKind::Ipv6Loopback, None);
            }
            DropKind::IpInput => self.lost_ipv6(),
            DropKind::TtlExpired => self.ttl(),
            DropKind::TtlOrHeader | DropKind::Forward => return self.forward(kind),
            DropKind::TooBig => self.mtu(),
            DropKind::NeighbourFailed | DropKind::NeighbourQueue | DropKind::NeighbourEntry => {
                let tunnel = self.vxlan_remote().or_else(|| self.vxlan_neighbour());
                let own = || self.neighbour(self.destination_lookup());
                tunnel.or_else(own).map(|fault| self.with_owner(fault))
            }
            DropKind::OtherHardwareAddress | DropKind::LinkRefused => self.link(),
            DropKind::BridgeNoPort => self.returned_frame().or_else(|| self.bridge_port()),
            DropKind::BridgeIngress => self.bridge_ingress(),
            DropKind::BridgePortState => self.bridge_down().or_else(|| self.disabled_ingress()),
            DropKind::Netfilter | DropKind::Ipvs => self
                .used_addresses()
                .or_else(|| self.device_rule())
                .or_else(|| self.virtual_server()),
            DropKind::NetfilterQueue => self.queue_rule(),
            DropKind::VxlanNoRemote => self.vxlan(),
            DropKind::Ipsec => Some(Fault::IpsecPolicy {
                destination: self.destination(),
            }),
            _ => None,
        };
        (kind, fault)
    }

    /// Returns the headers of the packet that ended: those of the tunnel packet, if one carried it.
    pub(super) fn header(self) -> Option<PacketHeader> {
        let outer = self.flight.tunnel.map(|tunnel| tunnel.header);
        outer.or(self.flight.header)
    }

    /// Returns the source of the packet that ended, as received.
    fn source(self) -> IpAddr {
        let outer = self.flight.tunnel.map(|tunnel| tunnel.addresses.source);
        outer.unwrap_or(self.hop.before.source).ip()
    }

    /// Returns the destination of the packet that ended, as sent.
    pub(super) fn destination(self) -> IpAddr {
        let outer = self
            .flight
            .tunnel
            .map(|tunnel| tunnel.addresses.destination);
        outer.unwrap_or(self.hop.after.destination).ip()
    }

    /// Returns the interface that received the packet that ended. `None` if it was created in this
    /// namespace, as a tunnel packet is that carries a packet from another interface.
    fn ingress(self) -> Option<&'a str> {
        let received = ingress_interface(self.hop)?;
        let is_created = self.flight.tunnel.is_some() && !received.encapsulated;
        (!is_created).then_some(&received.interface)
    }

    pub(super) fn lookup(
        self,
        source: IpAddr,
        destination: IpAddr,
        ingress: &str,
        mark: u32,
        transport: Transport,
    ) -> RouteLookup {
        let query = RouteQuery {
            source,
            destination,
            mark,
            ingress,
            transport,
        };
        RouteLookup::new(&self.own.network, query)
    }

    pub(super) fn destination_lookup(self) -> RouteLookup {
        // Rules set the mark before the lookup.
        let mark = self.own.routing_mark(self.hop);
        let ingress = self.ingress().unwrap_or("lo");
        let (source, destination) = (self.source(), self.destination());
        self.lookup(source, destination, ingress, mark, self.transport())
    }

    /// Returns the protocol and the ports of the packet that ended.
    fn transport(self) -> Transport {
        match self.flight.tunnel {
            Some(TunnelPacket { addresses, .. }) => {
                Transport::udp(addresses.source.port(), addresses.destination.port())
            }
            None => inner_transport(self.flight, self.hop),
        }
    }

    /// Explains a refused packet by its TTL and its length.
    fn forward(self, kind: DropKind) -> (DropKind, Option<Fault>) {
        let Some(header) = self.header() else {
            return (kind, None);
        };
        if header.ttl <= 1 {
            return (DropKind::TtlExpired, self.ttl());
        }
        if kind == DropKind::TtlOrHeader {
            return (DropKind::InvalidHeader, None);
        }
        match self.mtu() {
            Some(fault) if header.dont_fragment => (DropKind::TooBig, Some(fault)),
            _ => (kind, None),
        }
    }

    fn ttl(self) -> Option<Fault> {
        let hops = self.flight.hops.iter().rev();
        let mut steps = hops.flat_map(|hop| hop.matches.iter().rev().map(move |step| (step, hop)));
        let set_by = steps.find(|(step, _)| {
            let is_target = matches!(step.target.as_deref(), Some("TTL" | "HL"));
            let sets = |rule: &String| rule.contains("ttl set") || rule.contains("hoplimit set");
            is_target || step.rule.as_ref().is_some_and(sets)
        });
        if let (None, Some(looped)) = (&set_by, &self.flight.routing_loop) {
            return Some(Fault::RoutingLoop {
                namespaces: looped.namespaces.clone(),
                rounds: looped.rounds,
            });
        }
        Some(Fault::Ttl {
            ttl: self.header()?.ttl,
            set_by: set_by.map(|(step, hop)| RuleReference::new(step, hop)),
        })
    }

    /// Returns the IPVS virtual server of the packet if it cannot send connections to any server.
    pub(super) fn virtual_server(self) -> Option<Fault> {
        let to = self.hop.before.destination;
        let own_mark = self.hop.matches.last().map_or(0, |step| step.mark);
        let own_protocol = match self.flight.kind {
            Kind::Datagram => Protocol::Udp,
            _ => Protocol::Tcp,
        };
        let has_address = |key: &VirtualServerKey| match key {
            VirtualServerKey::Address {
                protocol,
                address,
                port,
            } => *protocol == own_protocol && SocketAddr::new(*address, *port) == to,
            VirtualServerKey::FwMark { mark, .. } => *mark == own_mark,
        };
        let mut servers = self.own.ipvs.iter();
        let server = servers.find(|server| has_address(&server.key))?;
        let is_idle = server.servers.iter().all(|real| real.weight == 0);
        is_idle.then_some(Fault::VirtualServer {
            address: to,
            servers: server.servers.len(),
        })
    }
}
