//! Finds the object that caused a drop: a route, a neighbour, an MTU, a bridge port or a rule. The
//! plan has the objects, and the packet's last capture has its TTL, length and hardware address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::drop_kind::DropKind;
use super::icmp_meaning::IcmpMeaning;
use super::route_lookup::{RouteDecision, RouteLookup, RouteQuery};
use super::rules::RuleReference;
use svclab_journey::journey::{Hop, PacketHeader, PacketPath, ingress_interface};
use svclab_model::plan::{Link, LinkKind, Mac, Namespace, Plan, Probe};
use svclab_ruleset::ipvs::VirtualServerKey;

/// Length in bytes of the VLAN tag, by which a received frame may exceed the MTU (Linux v6.12,
/// `include/linux/netdevice.h`, `__is_skb_forwardable`).
const VLAN_TAG: u32 = 4;

/// Object that caused the loss of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "object",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Fault {
    /// Route to the destination, or its absence.
    Route {
        /// Lookup of the destination.
        lookup: RouteLookup,
    },
    /// Route to the source, or its absence.
    SourceRoute {
        /// Lookup of the source.
        lookup: RouteLookup,
    },
    /// Neighbour that does not reply.
    Neighbour {
        /// Address of the neighbour.
        address: IpAddr,
        /// Interface of the neighbour.
        interface: String,
    },
    /// Interface whose MTU is too small.
    Mtu {
        /// Namespace of the interface.
        namespace: String,
        /// Name of the interface.
        interface: String,
        /// MTU in bytes.
        mtu: u32,
        /// Length of the IP packet in bytes.
        length: u32,
    },
    /// TTL or hop limit of the packet.
    Ttl {
        /// TTL at the last capture.
        ttl: u8,
        /// Rule that set the TTL; absent if no rule did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        set_by: Option<RuleReference>,
    },
    /// Hardware address to which the frame was sent.
    HardwareAddress {
        /// Destination hardware address of the frame.
        #[schemars(with = "String")]
        address: Mac,
        /// Interface with this hardware address; absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<InterfaceName>,
        /// Interface at the other end of the link.
        receiver: InterfaceName,
        /// Neighbour whose static entry has this hardware address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        neighbour: Option<IpAddr>,
        /// Bridge whose static forwarding entry sends frames to this address to the receiver.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bridge: Option<String>,
    },
    /// Bridge port through which the frame came and would have to leave.
    Hairpin {
        /// Name of the bridge.
        bridge: String,
        /// Name of the port.
        port: String,
    },
    /// Bridge port that leads to the destination.
    BridgePort {
        /// Name of the bridge.
        bridge: String,
        /// Name of the port.
        port: String,
        /// Whether the port is down.
        down: bool,
    },
    /// Two bridge ports that exchange no frames, because both are isolated.
    IsolatedPorts {
        /// Name of the bridge.
        bridge: String,
        /// Name of the port that received the frame.
        ingress: String,
        /// Name of the port that leads to the destination.
        port: String,
    },
    /// Bridge port to the destination that does not flood, for a hardware address that the bridge
    /// does not know.
    UnknownHardwareAddress {
        /// Name of the bridge.
        bridge: String,
        /// Name of the port that leads to the destination.
        port: String,
        /// Destination hardware address of the frame; absent if it was not captured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<String>")]
        address: Option<Mac>,
    },
    /// Bridge port that receives only frames from known hardware addresses.
    LockedPort {
        /// Name of the bridge.
        bridge: String,
        /// Name of the port.
        port: String,
    },
    /// Interface that is down.
    Down {
        /// The interface.
        interface: InterfaceName,
    },
    /// Dummy interface, which discards all packets.
    Dummy {
        /// Name of the interface.
        interface: String,
    },
    /// VXLAN interface without a forwarding entry.
    Vxlan {
        /// Name of the interface.
        interface: String,
        /// Next hop of the packet.
        neighbour: IpAddr,
        /// Hardware address of the next hop; absent if the neighbour has no entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<String>")]
        address: Option<Mac>,
    },
    /// IPVS virtual server without a real server that accepts connections.
    VirtualServer {
        /// Address and port of the virtual server.
        address: SocketAddr,
        /// Number of real servers, all with weight 0.
        servers: usize,
    },
}

/// Interface of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceName {
    /// Name of the namespace.
    pub namespace: String,
    /// Name of the interface.
    pub interface: String,
}

impl InterfaceName {
    fn new(namespace: &str, link: &Link) -> Self {
        Self {
            namespace: namespace.to_owned(),
            interface: link.name.clone(),
        }
    }
}

/// Packet in its last namespace, with the plan of the lab.
#[derive(Clone, Copy)]
pub(super) struct LastHop<'a> {
    pub(super) plan: &'a Plan,
    pub(super) namespace: &'a Namespace,
    flight: &'a PacketPath,
    pub(super) hop: &'a Hop,
}

impl<'a> LastHop<'a> {
    /// Returns `None` if the plan does not have the namespace.
    pub(super) fn new(plan: &'a Plan, flight: &'a PacketPath, hop: &'a Hop) -> Option<Self> {
        Some(Self {
            plan,
            namespace: plan.namespace(&hop.namespace)?,
            flight,
            hop,
        })
    }

    /// Returns the object at fault. Replaces a kind that stands for several causes by the cause
    /// that the evidence shows.
    pub(super) fn explain(self, kind: DropKind) -> (DropKind, Option<Fault>) {
        let fault = match kind {
            DropKind::NoRoute | DropKind::RouteRefused => return self.route(kind),
            DropKind::ReversePath | DropKind::LocalSource | DropKind::InvalidSource => {
                Some(self.source_route())
            }
            DropKind::RouteInput => return self.route_input(),
            DropKind::TtlExpired => self.ttl(),
            DropKind::TtlOrHeader | DropKind::Forward => return self.forward(kind),
            DropKind::TooBig => self.mtu(),
            DropKind::NeighbourFailed | DropKind::NeighbourQueue | DropKind::NeighbourEntry => {
                self.neighbour()
            }
            DropKind::OtherHardwareAddress | DropKind::LinkRefused => self.link(),
            DropKind::BridgeNoPort => self.bridge_port(),
            DropKind::BridgeIngress => self.locked_port(),
            DropKind::Netfilter | DropKind::Ipvs => self.virtual_server(),
            DropKind::VxlanNoRemote => self.vxlan(),
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
        RouteLookup::new(self.namespace, query)
    }

    pub(super) fn destination_lookup(self) -> RouteLookup {
        let ingress = ingress_interface(self.hop).map_or("lo", |seen| &seen.interface);
        let (source, destination) = (self.hop.before.source, self.hop.after.destination);
        // Rules set the mark before the lookup.
        let mark = self.hop.matches.last().map_or(0, |step| step.mark);
        self.lookup(source.ip(), destination.ip(), ingress, mark)
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
        let uses_mark = self
            .namespace
            .sysctls
            .iter()
            .any(|sysctl| sysctl.key.ends_with(".src_valid_mark") && sysctl.value == "1");
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
        self.small_mtu(self.namespace, self.link_named(interface)?, 0)
    }

    /// Returns an interface if the packet is larger than its MTU and these tolerated bytes.
    fn small_mtu(self, namespace: &Namespace, link: &Link, tolerance: u32) -> Option<Fault> {
        let (mtu, length) = (link.mtu?, self.header()?.length);
        (length > mtu.saturating_add(tolerance)).then(|| Fault::Mtu {
            namespace: namespace.name.clone(),
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
            IcmpMeaning::HostUnreachable | IcmpMeaning::AddressUnreachable => self
                .neighbour()
                .filter(|neighbour| !self.is_static(neighbour))
                .or(Some(Fault::Route { lookup })),
            IcmpMeaning::Prohibited => None,
        }
    }

    /// Whether a neighbour has a static entry, which needs no reply.
    fn is_static(self, neighbour: &Fault) -> bool {
        let Fault::Neighbour { address, interface } = neighbour else {
            return false;
        };
        let mut entries = self.namespace.neighbours.iter();
        entries.any(|entry| entry.address == *address && entry.dev == *interface)
    }

    /// Returns the next hop of the packet.
    fn neighbour(self) -> Option<Fault> {
        let lookup = self.destination_lookup();
        let RouteDecision::Unicast {
            interfaces, via, ..
        } = lookup.decision
        else {
            return None;
        };
        Some(Fault::Neighbour {
            address: via.unwrap_or(lookup.address),
            interface: interfaces.into_iter().next()?,
        })
    }

    pub(super) fn link_named(self, name: &str) -> Option<&'a Link> {
        self.namespace.links.iter().find(|link| link.name == name)
    }

    /// Returns why a frame that left the namespace was not received: the fault of the link behind
    /// the egress interface.
    pub(super) fn link(self) -> Option<Fault> {
        let sent = self.hop.crossings.iter().rfind(|seen| seen.out)?;
        let link = self.link_named(&sent.interface)?;
        let LinkKind::Veth { namespace, peer } = &link.kind else {
            return match link.kind {
                LinkKind::Dummy => Some(Fault::Dummy {
                    interface: link.name.clone(),
                }),
                LinkKind::Vxlan { .. } => self.vxlan(),
                _ => None,
            };
        };
        let receiver = self.plan.namespace(namespace)?;
        let peer = receiver.links.iter().find(|other| other.name == *peer)?;
        if peer.down {
            return Some(Fault::Down {
                interface: InterfaceName::new(namespace, peer),
            });
        }
        if let Some(fault) = self.small_mtu(receiver, peer, VLAN_TAG) {
            return Some(fault);
        }
        let address = self.header()?.destination_mac?;
        // A bridge receives frames to all hardware addresses.
        let is_multicast = address.0[0] & 1 == 1;
        if peer.bridge.is_some() || peer.mac == address || is_multicast {
            return None;
        }
        let mut neighbours = self.namespace.neighbours.iter();
        let entry = neighbours.find(|entry| entry.mac == address && entry.dev == link.name);
        Some(Fault::HardwareAddress {
            address,
            owner: self.owner_of(address),
            receiver: InterfaceName::new(namespace, peer),
            neighbour: entry.map(|entry| entry.address),
            bridge: self.static_entry(address, link),
        })
    }

    fn owner_of(self, address: Mac) -> Option<InterfaceName> {
        self.plan.namespaces.iter().find_map(|namespace| {
            let link = namespace.links.iter().find(|link| link.mac == address)?;
            Some(InterfaceName::new(&namespace.name, link))
        })
    }

    fn vxlan(self) -> Option<Fault> {
        let Some(Fault::Neighbour { address, interface }) = self.neighbour() else {
            return None;
        };
        let link = self.link_named(&interface)?;
        if !matches!(link.kind, LinkKind::Vxlan { .. }) {
            return None;
        }
        let mut entries = self.namespace.neighbours.iter();
        let mac = entries.find(|entry| entry.address == address && entry.dev == interface);
        let mac = mac.map(|entry| entry.mac);
        let mut forwarding = self.namespace.forwarding.iter();
        if forwarding.any(|entry| Some(entry.mac) == mac && entry.dev == interface) {
            return None;
        }
        Some(Fault::Vxlan {
            interface,
            neighbour: address,
            address: mac,
        })
    }

    fn virtual_server(self) -> Option<Fault> {
        let to = self.hop.before.destination;
        let has_address = |key: &VirtualServerKey| {
            matches!(key, VirtualServerKey::Address { address, port, .. }
                if SocketAddr::new(*address, *port) == to)
        };
        let mut servers = self.namespace.ipvs.iter();
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
pub(super) fn unsent_route(plan: &Plan, probe: &Probe) -> Option<Fault> {
    let destination = probe.target.socket().ip();
    // Without a bound address, the kernel chooses the source after the lookup.
    let unspecified = match destination {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let query = RouteQuery {
        source: probe.bind.unwrap_or(unspecified),
        destination,
        mark: 0,
        ingress: "lo",
    };
    let namespace = plan.namespace(&probe.namespace)?;
    Some(Fault::Route {
        lookup: RouteLookup::new(namespace, query),
    })
}
