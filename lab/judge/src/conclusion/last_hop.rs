//! Finds the object that caused a drop. The state of the lab has the objects, and the packet's last
//! capture has its TTL, length and hardware address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::drop_kind::DropKind;
use super::fault::{Fault, InterfaceName};
use super::icmp_meaning::IcmpMeaning;
use super::rules::RuleReference;
use crate::state::route_lookup::{RouteDecision, RouteLookup, RouteQuery};
use crate::state::{LabState, NamespaceState};
use svclab_journey::journey::{Hop, PacketHeader, PacketPath, ingress_interface};
use svclab_model::evidence::LinkState;
use svclab_model::plan::{Backend, LinkKind, Mac, NextHop, Probe};
use svclab_ruleset::ipvs::VirtualServerKey;
use svclab_ruleset::nft::{Chain, Rule};

/// Length in bytes of the VLAN tag, by which a received frame may exceed the MTU (Linux v6.12,
/// `include/linux/netdevice.h`, `__is_skb_forwardable`).
const VLAN_TAG: u32 = 4;

/// Packet in its last namespace, with the state of the lab.
#[derive(Clone, Copy)]
pub(super) struct LastHop<'a> {
    lab: &'a LabState<'a>,
    pub(super) own: &'a NamespaceState,
    flight: &'a PacketPath,
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
        let fault = match kind {
            DropKind::NoRoute | DropKind::RouteRefused => return self.route(kind),
            DropKind::ReversePath | DropKind::LocalSource | DropKind::InvalidSource => {
                Some(self.source_route())
            }
            DropKind::RouteInput if self.hop.after.destination.is_ipv6() => {
                return self.route_input_v6();
            }
            DropKind::RouteInput => return self.route_input(),
            DropKind::InvalidHeader | DropKind::IpInput if self.has_ipv6_loopback() => {
                return (DropKind::Ipv6Loopback, None);
            }
            DropKind::TtlExpired => self.ttl(),
            DropKind::TtlOrHeader | DropKind::Forward => return self.forward(kind),
            DropKind::TooBig => self.mtu(),
            DropKind::NeighbourFailed | DropKind::NeighbourQueue | DropKind::NeighbourEntry => {
                let tunnel = self.vxlan_remote().or_else(|| self.vxlan_neighbour());
                tunnel.or_else(|| self.neighbour())
            }
            DropKind::OtherHardwareAddress | DropKind::LinkRefused => self.link(),
            DropKind::BridgeNoPort => self.bridge_port(),
            DropKind::BridgeIngress => self.bridge_ingress(),
            DropKind::BridgePortState => self.bridge_down(),
            DropKind::Netfilter | DropKind::Ipvs => {
                self.ingress_rule().or_else(|| self.virtual_server())
            }
            DropKind::VxlanNoRemote => self.vxlan(),
            DropKind::Ipsec => Some(Fault::IpsecPolicy {
                destination: self.hop.after.destination.ip(),
            }),
            _ => None,
        };
        (kind, fault)
    }

    pub(super) fn header(self) -> Option<PacketHeader> {
        self.flight.header
    }

    fn lookup(self, source: IpAddr, destination: IpAddr, ingress: &str, mark: u32) -> RouteLookup {
        let query = RouteQuery {
            source,
            destination,
            mark,
            ingress,
        };
        RouteLookup::new(&self.own.network, query)
    }

    pub(super) fn destination_lookup(self) -> RouteLookup {
        let ingress = ingress_interface(self.hop).map_or("lo", |seen| &seen.interface);
        let (source, destination) = (self.hop.before.source, self.hop.after.destination);
        // Rules set the mark before the lookup.
        let mark = self.own.routing_mark(self.hop);
        self.lookup(source.ip(), destination.ip(), ingress, mark)
    }

    /// Explains a packet of this namespace whose destination rules have rewritten. The kernel then
    /// looks the route up again, and reports a failure as a drop by netfilter (Linux v6.12,
    /// `net/ipv4/netfilter.c`, `ip_route_me_harder`). `None` for other packets.
    fn refused_reroute(self) -> Option<(DropKind, Option<Fault>)> {
        let (before, after) = (self.hop.before, self.hop.after);
        if ingress_interface(self.hop).is_some() || before.destination == after.destination {
            return None;
        }
        match self.destination_lookup().decision {
            RouteDecision::None { .. }
            | RouteDecision::Refusal { .. }
            | RouteDecision::RuleRefusal => Some(self.route(DropKind::NoRoute)),
            RouteDecision::Local { .. } | RouteDecision::Unicast { .. } => None,
        }
    }

    /// Explains a packet without a usable route. Some kernels give the same reason for all of them.
    fn route(self, kind: DropKind) -> (DropKind, Option<Fault>) {
        let lookup = self.destination_lookup();
        let kind = match lookup.decision {
            RouteDecision::None { .. } => DropKind::NoRoute,
            RouteDecision::Refusal { .. } | RouteDecision::RuleRefusal => DropKind::RouteRefused,
            RouteDecision::Local { .. } | RouteDecision::Unicast { .. } => kind,
        };
        (kind, Some(Fault::Route { lookup }))
    }

    /// Returns the route to the source. The kernel looks the source up as a packet of its own, by
    /// default without mark (Linux v6.12, `net/ipv4/fib_frontend.c`, `__fib_validate_source`).
    pub(super) fn source_route(self) -> Fault {
        // Either setting enables the mark (Linux v6.12, `include/linux/inetdevice.h`,
        // `IN_DEV_SRC_VMARK`).
        let ingress = ingress_interface(self.hop).map(|seen| seen.interface.replace('.', "/"));
        let uses_mark = ["all".to_owned()].into_iter().chain(ingress).any(|name| {
            let key = format!("net.ipv4.conf.{name}.src_valid_mark");
            self.own.sysctls.get(&key).is_some_and(|value| value == "1")
        });
        let mark = self.hop.matches.last().map_or(0, |step| step.mark);
        let mark = if uses_mark { mark } else { 0 };
        let (source, destination) = (self.hop.before.source, self.hop.after.destination);
        Fault::SourceRoute {
            lookup: self.lookup(destination.ip(), source.ip(), "lo", mark),
        }
    }

    /// Explains a failed lookup of a received packet. Before v6.13, the kernel gives no reason for
    /// source addresses that it refuses.
    fn route_input(self) -> (DropKind, Option<Fault>) {
        let (source, destination) = (self.hop.before.source.ip(), self.hop.after.destination.ip());
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
        self.route(DropKind::NoRoute)
    }

    /// Whether the packet is from or to `::1`.
    fn has_ipv6_loopback(self) -> bool {
        let ends = [self.hop.before.source, self.hop.after.destination];
        let mut addresses = ends.iter().map(SocketAddr::ip);
        addresses.any(|address| address == IpAddr::V6(Ipv6Addr::LOCALHOST))
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

    /// Returns the egress interface if the packet is larger than its MTU.
    pub(super) fn mtu(self) -> Option<Fault> {
        let RouteDecision::Unicast { interfaces, .. } = self.destination_lookup().decision else {
            return None;
        };
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
                let resolved = || self.neighbour().filter(|own| !self.is_static(own));
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

    /// Returns the next hop of the packet.
    fn neighbour(self) -> Option<Fault> {
        let lookup = self.destination_lookup();
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
        let is_resolved = |hop: &&NextHop| {
            let mut known = network.neighbours.iter();
            known.any(|entry| {
                Some(entry.address) == hop.via && entry.interface == hop.dev && entry.mac.is_some()
            })
        };
        let mut hops = route.next_hops.iter().filter(|hop| hop.via.is_some());
        hops.find(|hop| !is_resolved(hop))
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

    /// Returns the VXLAN interface if it has no forwarding entry for the packet.
    fn vxlan(self) -> Option<Fault> {
        let (interface, neighbour, address) = self.tunnel()?;
        if address.is_some_and(|address| self.remote(&interface, address).is_some()) {
            return None;
        }
        Some(Fault::Vxlan {
            interface,
            neighbour,
            address,
        })
    }

    /// Returns the tunnel end to which a VXLAN interface sent the packet.
    fn vxlan_remote(self) -> Option<Fault> {
        let (interface, neighbour, address) = self.tunnel()?;
        let address = address?;
        Some(Fault::VxlanRemote {
            remote: self.remote(&interface, address)?,
            interface,
            neighbour,
            address,
        })
    }

    /// Returns the tunnel end of a packet that only the VXLAN interface carried.
    pub(super) fn vxlan_remote_unsent(self) -> Option<Fault> {
        let (interface, ..) = self.tunnel()?;
        let last = self.hop.crossings.last()?;
        let is_unsent = last.interface == interface;
        is_unsent.then(|| self.vxlan_remote()).flatten()
    }

    /// Returns the VXLAN interface if it has no entry for the next hop, and no tunnel end to which it
    /// could send a request for the hardware address.
    pub(super) fn vxlan_neighbour(self) -> Option<Fault> {
        let (interface, neighbour, address) = self.tunnel()?;
        if address.is_some() || self.remote(&interface, Mac([0; 6])).is_some() {
            return None;
        }
        Some(Fault::Vxlan {
            interface,
            neighbour,
            address,
        })
    }

    /// Returns the VXLAN interface to which the packet was routed, the next hop, and the hardware
    /// address of the next hop.
    fn tunnel(self) -> Option<(String, IpAddr, Option<Mac>)> {
        let Some(Fault::Neighbour { address, interface }) = self.neighbour() else {
            return None;
        };
        self.own.link(&interface)?.vxlan?;
        let mut entries = self.own.network.neighbours.iter();
        let entry = entries.find(|entry| entry.address == address && entry.interface == interface);
        let mac = entry.and_then(|entry| entry.mac);
        Some((interface, address, mac))
    }

    /// Returns the tunnel end to which a forwarding entry of a VXLAN interface leads.
    fn remote(self, interface: &str, address: Mac) -> Option<IpAddr> {
        let mut entries = self.own.network.forwarding.iter();
        let entry = entries.find(|entry| entry.mac == address && entry.interface == interface);
        entry?.remote
    }

    /// Returns the first rule that drops packets in a chain of the family `netdev` on the interface
    /// that received the packet. The kernel does not trace these chains for packets that no earlier
    /// rule selected.
    fn ingress_rule(self) -> Option<Fault> {
        let received = self.hop.crossings.iter().rfind(|seen| !seen.out)?;
        let is_device = |chain: &&Chain| {
            let hook = chain.hook.as_ref().filter(|hook| hook.hook == "ingress");
            let mut devices = hook.into_iter().flat_map(|hook| {
                let separator = |c: char| !(c.is_alphanumeric() || matches!(c, '.' | '-' | '_'));
                hook.device.split(separator)
            });
            devices.any(|device| device == received.interface)
        };
        let tables = self.own.nft.tables.iter();
        tables
            .filter(|table| table.family == "netdev")
            .flat_map(|table| table.chains.iter().map(move |chain| (table, chain)))
            .filter(|(_, chain)| is_device(chain))
            .find_map(|(table, chain)| {
                let is_drop = |rule: &Rule| rule.text.split(' ').any(|word| word == "drop");
                let index = chain.rules.iter().position(is_drop)?;
                Some(Fault::IngressRule {
                    rule: RuleReference {
                        backend: Backend::Nft,
                        both_backends: false,
                        table: table.full_name(),
                        chain: chain.name.clone(),
                        number: u32::try_from(index + 1).ok(),
                        rule: Some(chain.rules[index].text.clone()),
                        target: Some("DROP".to_owned()),
                        entries: Vec::new(),
                        service: None,
                    },
                    device: received.interface.clone(),
                })
            })
    }

    fn virtual_server(self) -> Option<Fault> {
        let to = self.hop.before.destination;
        let own_mark = self.hop.matches.last().map_or(0, |step| step.mark);
        let has_address = |key: &VirtualServerKey| match key {
            VirtualServerKey::Address { address, port, .. } => {
                SocketAddr::new(*address, *port) == to
            }
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

/// Returns the route for which the kernel refused a connection of a probe before it sent a packet.
/// `None` if the plan does not have the namespace.
pub(super) fn unsent_route(lab: &LabState<'_>, probe: &Probe) -> Option<Fault> {
    let namespace = lab.observed(&probe.namespace)?;
    Some(Fault::Route {
        lookup: RouteLookup::new(&namespace.network, RouteQuery::of_probe(probe)),
    })
}
