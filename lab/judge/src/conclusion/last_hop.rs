//! Finds the object that caused a drop. The state of the lab has the objects, and the packet's last
//! capture has its TTL, length and hardware address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::drop_kind::DropKind;
use super::fault::{Fault, InterfaceName};
use super::icmp_meaning::IcmpMeaning;
use super::rules::RuleReference;
use crate::state::route_lookup::{
    RouteDecision, RouteLookup, RouteQuery, Transport, inner_transport,
};
use crate::state::{LabState, NamespaceState};
use svclab_journey::journey::{
    Hop, Kind, PacketHeader, PacketPath, TunnelPacket, ingress_interface,
};
use svclab_model::evidence::LinkState;
use svclab_model::plan::{IPV6_MIN_MTU, LinkKind, Mac, NextHop, Probe};
use svclab_ruleset::Protocol;
use svclab_ruleset::ipvs::VirtualServerKey;

/// Length in bytes of the VLAN tag, by which a received frame may exceed the MTU (Linux v6.12,
/// `include/linux/netdevice.h`, `__is_skb_forwardable`).
const VLAN_TAG: u32 = 4;

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
            DropKind::Netfilter | DropKind::Ipvs => {
                self.device_rule().or_else(|| self.virtual_server())
            }
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

    /// Explains a packet of this namespace whose destination rules have rewritten. The kernel then
    /// looks the route up again, and reports a failure as a drop by netfilter (Linux v6.12,
    /// `net/ipv4/netfilter.c`, `ip_route_me_harder`). `None` for other packets.
    fn refused_reroute(self) -> Option<(DropKind, Option<Fault>)> {
        let (before, after) = (self.hop.before, self.hop.after);
        let is_received = ingress_interface(self.hop).is_some() || self.flight.tunnel.is_some();
        if is_received || before.destination == after.destination {
            return None;
        }
        let lookup = self.destination_lookup();
        if before.source.ip().is_loopback()
            && let RouteDecision::Unicast { interfaces, .. } = &lookup.decision
            && !interfaces.iter().any(|name| self.routes_loopback(name))
        {
            return Some((DropKind::LoopbackAddress, None));
        }
        lookup
            .is_unroutable()
            .then(|| explain_route(lookup, DropKind::NoRoute))
    }

    /// Whether packets from loopback addresses may leave through an interface (Linux v6.12,
    /// `net/ipv4/route.c`, `__mkroute_output`).
    fn routes_loopback(self, interface: &str) -> bool {
        let names = ["all".to_owned(), interface.replace('.', "/")];
        names.iter().any(|name| {
            let key = format!("net.ipv4.conf.{name}.route_localnet");
            self.own.sysctls.get(&key).is_some_and(|value| value == "1")
        })
    }

    /// Returns the route to the source. The kernel looks the source up as a packet of its own, by
    /// default without mark (Linux v6.12, `net/ipv4/fib_frontend.c`, `__fib_validate_source`).
    pub(super) fn source_route(self) -> Fault {
        // Either setting enables the mark (Linux v6.12, `include/linux/inetdevice.h`,
        // `IN_DEV_SRC_VMARK`).
        let ingress = self.ingress().map(|name| name.replace('.', "/"));
        let uses_mark = ["all".to_owned()].into_iter().chain(ingress).any(|name| {
            let key = format!("net.ipv4.conf.{name}.src_valid_mark");
            self.own.sysctls.get(&key).is_some_and(|value| value == "1")
        });
        let mark = self.hop.matches.last().map_or(0, |step| step.mark);
        let mark = if uses_mark { mark } else { 0 };
        Fault::SourceRoute {
            lookup: self.lookup(
                self.destination(),
                self.source(),
                "lo",
                mark,
                self.transport().reversed(),
            ),
        }
    }

    /// Explains a failed lookup of a received packet. Before v6.13, the kernel gives no reason for
    /// source addresses that it refuses.
    fn route_input(self) -> (DropKind, Option<Fault>) {
        let (source, destination) = (self.source(), self.destination());
        let Fault::SourceRoute { lookup } = self.source_route() else {
            return (DropKind::RouteInput, None);
        };
        if source.is_loopback() || destination.is_loopback() {
            return (DropKind::LoopbackAddress, None);
        }
        let is_broadcast = source == IpAddr::V4(Ipv4Addr::BROADCAST);
        if source.is_multicast() || source.is_unspecified() || is_broadcast {
            return (DropKind::InvalidSource, None);
        }
        match lookup.decision {
            RouteDecision::Local { .. } => {
                (DropKind::LocalSource, Some(Fault::SourceRoute { lookup }))
            }
            RouteDecision::Refusal { .. } | RouteDecision::RuleRefusal => {
                (DropKind::InvalidSource, Some(Fault::SourceRoute { lookup }))
            }
            RouteDecision::None { .. } | RouteDecision::Unicast { .. } => {
                (DropKind::RouteInput, None)
            }
        }
    }

    /// Explains a failed lookup of an IPv6 packet, which depends on its destination only.
    fn route_input_v6(self) -> (DropKind, Option<Fault>) {
        if self.has_ipv6_loopback() {
            return (DropKind::Ipv6Loopback, None);
        }
        explain_route(self.destination_lookup(), DropKind::NoRoute)
    }

    /// Returns the interface that received an IPv6 packet, if the kernel has removed IPv6 from it,
    /// because its MTU is too small (Linux v6.12, `net/ipv6/addrconf.c`, `addrconf_notify`).
    fn lost_ipv6(self) -> Option<Fault> {
        let link = self.ingress_port()?;
        let is_v6 = self.destination().is_ipv6();
        (is_v6 && link.mtu < IPV6_MIN_MTU).then(|| Fault::NoIpv6 {
            interface: link.name.clone(),
            mtu: link.mtu,
        })
    }

    /// Whether the packet is from or to `::1`.
    fn has_ipv6_loopback(self) -> bool {
        [self.source(), self.destination()].contains(&IpAddr::V6(Ipv6Addr::LOCALHOST))
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
    fn small_mtu(self, namespace: &str, link: &LinkState, tolerance: u32) -> Option<Fault> {
        let (mtu, length) = (link.mtu, self.header()?.length);
        (length > mtu.saturating_add(tolerance)).then(|| Fault::Mtu {
            namespace: namespace.to_owned(),
            interface: link.name.clone(),
            mtu,
            length,
        })
    }

    /// Returns the object for which the kernel rejected the packet with an ICMP error.
    pub(super) fn rejection(self, meaning: IcmpMeaning) -> Option<Fault> {
        let lookup = self.destination_lookup();
        let is_refused = matches!(
            lookup.decision,
            RouteDecision::Refusal { .. } | RouteDecision::RuleRefusal
        );
        match meaning {
            IcmpMeaning::TooBig => self.mtu(),
            _ if is_refused => Some(Fault::Route { lookup }),
            IcmpMeaning::NetUnreachable | IcmpMeaning::NoRoute => Some(Fault::Route { lookup }),
            IcmpMeaning::HostUnreachable | IcmpMeaning::AddressUnreachable => {
                let next_hop = self.neighbour(self.destination_lookup());
                let resolved = || next_hop.filter(|own| !self.is_static(own));
                let neighbour = self.vxlan_neighbour().or_else(resolved);
                neighbour.or(Some(Fault::Route { lookup }))
            }
            IcmpMeaning::Prohibited => None,
        }
    }

    /// Whether a neighbour has a static entry, which needs no reply.
    fn is_static(self, neighbour: &Fault) -> bool {
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
    fn unresolved_hop(self, route: &str) -> Option<&'a NextHop> {
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
    pub(super) fn link(self) -> Option<Fault> {
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

/// Explains a packet without a usable route. Some kernels give the same reason for all of them.
pub(super) fn explain_route(lookup: RouteLookup, kind: DropKind) -> (DropKind, Option<Fault>) {
    let kind = match lookup.decision {
        RouteDecision::None { .. } => DropKind::NoRoute,
        RouteDecision::Refusal { .. } | RouteDecision::RuleRefusal => DropKind::RouteRefused,
        RouteDecision::Local { .. } | RouteDecision::Unicast { .. } => kind,
    };
    (kind, Some(Fault::Route { lookup }))
}

/// Returns the route for which the kernel refused a connection of a probe before it sent a packet.
/// `None` if the plan does not have the namespace.
pub(super) fn unsent_route(lab: &LabState<'_>, probe: &Probe) -> Option<Fault> {
    let namespace = lab.observed(&probe.namespace)?;
    Some(Fault::Route {
        lookup: RouteLookup::new(&namespace.network, RouteQuery::of_probe(probe)),
    })
}
