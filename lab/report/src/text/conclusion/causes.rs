//! Renders the cause of a loss as a clause in the user's terms, with the object at fault.

use std::net::SocketAddr;

use super::render_rule;
use crate::text::join_and;
use svclab_judge::{DropKind, Fault, InterfaceName, RouteDecision, RouteLookup, RuleReference};
use svclab_model::plan::IPV6_MIN_MTU;

/// Renders a kind of cause and its object. `ingress` is the interface that received the packet, if
/// another namespace sent the packet.
pub(super) fn render_cause(kind: DropKind, fault: Option<&Fault>, ingress: Option<&str>) -> String {
    let general = describe_kind(kind);
    match (kind, fault) {
        (_, None) => general.to_owned(),
        (DropKind::ReversePath, Some(Fault::SourceRoute { lookup })) => {
            format!("{general}: {}", render_reverse_path(lookup, ingress))
        }
        (DropKind::LocalSource, Some(Fault::SourceRoute { lookup })) => match &lookup.decision {
            RouteDecision::Local { interface } => format!(
                "the source {} is an address of {interface} in this namespace, and accept_local \
                 is disabled",
                lookup.address
            ),
            _ => general.to_owned(),
        },
        (DropKind::InvalidSource, Some(Fault::SourceRoute { lookup })) => {
            render_refusal(lookup).unwrap_or_else(|| general.to_owned())
        }
        (DropKind::RouteRefused, Some(Fault::Route { lookup })) => {
            let unused = render_unused(lookup).map(|unused| {
                format!(
                    "the kernel found no usable route to {}; {unused}",
                    lookup.address
                )
            });
            unused.unwrap_or_else(|| render_route(lookup))
        }
        (
            DropKind::TooBig,
            Some(Fault::Route {
                lookup:
                    RouteLookup {
                        decision: RouteDecision::Unicast { route, .. },
                        ..
                    },
            }),
        ) => format!("the packet is larger than the MTU of the route `{route}`"),
        (DropKind::NeighbourQueue, Some(Fault::Neighbour { address, interface })) => format!(
            "no reply from the neighbour {address} on {interface}, and the queue of waiting \
             packets is full"
        ),
        (DropKind::NeighbourEntry, Some(Fault::Neighbour { address, interface })) => {
            format!("no usable entry for the neighbour {address} on {interface}")
        }
        (_, Some(fault)) => render_fault(fault),
    }
}

/// Renders the object at fault as a clause.
pub(super) fn render_fault(fault: &Fault) -> String {
    match fault {
        Fault::Route { lookup } | Fault::SourceRoute { lookup } => render_route(lookup),
        Fault::Neighbour { address, interface } => {
            format!("no reply from the neighbour {address} on {interface}")
        }
        Fault::Mtu {
            namespace,
            interface,
            mtu,
            length,
        } => format!(
            "the packet of {length} bytes is larger than the MTU {mtu} of {interface} in \
             {namespace}"
        ),
        Fault::Ttl { ttl, set_by } => render_ttl(*ttl, set_by.as_ref()),
        Fault::RoutingLoop { namespaces, rounds } => format!(
            "the TTL expired after {rounds} rounds in a routing loop between {}",
            join_and(namespaces)
        ),
        Fault::HardwareAddress {
            address,
            owner,
            receiver,
            neighbour,
            bridge,
        } => {
            let owner = owner.as_ref().map_or_else(
                || "no interface has this address".to_owned(),
                |owner| format!("the address of {}", render_interface(owner)),
            );
            let neighbour = neighbour.map_or_else(String::new, |neighbour| {
                format!("; the static entry of the neighbour {neighbour} has this address")
            });
            let bridge = bridge.as_ref().map_or_else(String::new, |bridge| {
                format!(
                    "; a static forwarding entry of the bridge {bridge} sends such frames there"
                )
            });
            format!(
                "the frame was addressed to {address} ({owner}) and not to {}{neighbour}{bridge}",
                render_interface(receiver)
            )
        }
        Fault::Hairpin { .. }
        | Fault::BridgePort { .. }
        | Fault::DisabledPort { .. }
        | Fault::UnconnectedNeighbour { .. }
        | Fault::IsolatedPorts { .. }
        | Fault::UnknownHardwareAddress { .. }
        | Fault::ReturnedFrame { .. }
        | Fault::LockedPort { .. } => render_bridge_fault(fault),
        Fault::NoIpv6 { interface, mtu } => format!(
            "{interface} has no IPv6: its MTU of {mtu} bytes is smaller than {IPV6_MIN_MTU}, the \
             minimum of IPv6"
        ),
        Fault::Down { interface } => format!("{} is down", render_interface(interface)),
        Fault::Dummy { interface } => {
            format!("the dummy interface {interface} discards all packets")
        }
        Fault::Vxlan {
            interface,
            neighbour,
            address: Some(address),
        } => format!(
            "{interface} has no forwarding entry for {address}, the hardware address of the \
             neighbour {neighbour}"
        ),
        Fault::Vxlan {
            interface,
            neighbour,
            address: None,
        } => format!("{interface} has no entry for the neighbour {neighbour}"),
        Fault::VxlanRemote {
            interface,
            neighbour,
            address,
            remote,
        } => format!(
            "no reply from {remote}, the tunnel end to which {interface} sends frames to {address}, \
             the hardware address of the neighbour {neighbour}"
        ),
        Fault::UsedAddresses {
            destination,
            failed_inserts,
            rule,
        } => render_used_addresses(*destination, *failed_inserts, rule.as_ref()),
        Fault::IpsecPolicy { destination } => {
            format!("an IPsec policy (xfrm) refused the packet to {destination}")
        }
        Fault::QueueRule { rule } => format!("no program reads the queue of {}", render_rule(rule)),
        Fault::IngressRule { rule, device } => {
            format!("{} in a chain of the device {device}", render_rule(rule))
        }
        Fault::VirtualServer { address, servers } => match servers {
            0 => format!("the IPVS virtual server {address} has no real server"),
            _ => format!("all real servers of the IPVS virtual server {address} have weight 0"),
        },
    }
}

fn render_used_addresses(
    destination: SocketAddr,
    failed_inserts: u64,
    rule: Option<&RuleReference>,
) -> String {
    let translated = rule.map_or_else(String::new, |rule| {
        format!(", and {} found no free source port", render_rule(rule))
    });
    format!(
        "conntrack could not add the connection to {destination}, because another connection has \
         the same translated addresses{translated} (conntrack.insert_failed grew by \
         {failed_inserts})"
    )
}

fn render_ttl(ttl: u8, set_by: Option<&RuleReference>) -> String {
    let set_by = set_by.map_or_else(String::new, |rule| {
        format!("; set by {}", render_rule(rule))
    });
    format!("the TTL of {ttl} expired{set_by}")
}

/// Renders a bridge at fault, or one of its ports.
fn render_bridge_fault(fault: &Fault) -> String {
    match fault {
        Fault::Hairpin { bridge, port } => format!(
            "the bridge {bridge} sends no frame back through the port {port} that received it, \
             because hairpin mode is off"
        ),
        Fault::BridgePort {
            bridge,
            port,
            down: true,
        } => format!("the port {port} of the bridge {bridge} is down"),
        Fault::BridgePort { bridge, port, .. } => format!(
            "the bridge {bridge} did not use the port {port} to the destination: the kernel \
             does not report why"
        ),
        Fault::UnconnectedNeighbour {
            address,
            bridge,
            owner,
        } => format!(
            "no reply from the neighbour {address} on {bridge}: the address belongs to {}, which is \
             not connected to {bridge}",
            render_interface(owner)
        ),
        Fault::DisabledPort { bridge, port } => {
            format!("the port {port} of the bridge {bridge} is not in the forwarding state")
        }
        Fault::IsolatedPorts {
            bridge,
            ingress,
            port,
        } => format!(
            "the bridge {bridge} sends no frame from the port {ingress} to the port {port}, \
             because both are isolated"
        ),
        Fault::UnknownHardwareAddress {
            bridge,
            port,
            address,
        } => {
            let address = address.map_or_else(
                || "the hardware address of the destination".to_owned(),
                |address| address.to_string(),
            );
            format!(
                "the bridge {bridge} has no entry for {address}, and the port {port} to the \
                 destination does not flood"
            )
        }
        Fault::ReturnedFrame {
            sender,
            address,
            without_arp,
        } => {
            let arp = if *without_arp {
                ", because ARP is off there"
            } else {
                ""
            };
            format!(
                "{} sent the frame to its own address {address}{arp}",
                render_interface(sender)
            )
        }
        Fault::LockedPort { bridge, port } => format!(
            "the port {port} of the bridge {bridge} is locked, and the bridge has no entry for the \
             source hardware address of the frame"
        ),
        _ => String::new(),
    }
}

fn render_interface(name: &InterfaceName) -> String {
    format!("{} in {}", name.interface, name.namespace)
}

/// Renders the route to an address, or its absence. The kernel found no usable route.
fn render_route(lookup: &RouteLookup) -> String {
    let address = lookup.address;
    if let Some(refusal) = render_refusal(lookup) {
        return refusal;
    }
    if let RouteDecision::None { tables } = &lookup.decision {
        let tables = render_tables(tables);
        let thrown = render_thrown(&lookup.thrown);
        return format!("no route to {address} in {tables}{thrown}");
    }
    let unused = render_unused(lookup);
    let unused = unused.map_or_else(String::new, |unused| format!("; {unused}"));
    format!("no route to {address}{unused}")
}

/// Renders the route of the kernel that did not apply. `None` if the kernel has no such route.
fn render_unused(lookup: &RouteLookup) -> Option<String> {
    let configured = match &lookup.decision {
        RouteDecision::Local { interface } => {
            format!("the address belongs to {interface}")
        }
        RouteDecision::Unicast { route, .. } => format!("the kernel has the route `{route}`"),
        _ => return None,
    };
    Some(format!("after the probes, {configured}"))
}

/// Renders the route or the routing rule that refuses packets to an address. `None` if there is
/// none.
fn render_refusal(lookup: &RouteLookup) -> Option<String> {
    let rule = lookup.rule.as_ref();
    let address = lookup.address;
    match &lookup.decision {
        RouteDecision::Refusal { route, .. } => {
            let rule = rule.map_or_else(String::new, |rule| {
                format!("; the routing rule `{rule}` selects its table")
            });
            Some(format!("the route `{route}` refuses {address}{rule}"))
        }
        RouteDecision::RuleRefusal => {
            let rule = rule.map_or("?", String::as_str);
            Some(format!("the routing rule `{rule}` refuses {address}"))
        }
        _ => None,
    }
}

/// Renders why the route to the source does not lead through the ingress interface.
fn render_reverse_path(lookup: &RouteLookup, ingress: Option<&str>) -> String {
    let source = lookup.address;
    if let Some(refusal) = render_refusal(lookup) {
        return refusal;
    }
    let through = |name: &str| format!("not through {name}");
    let expected = ingress.map_or_else(|| "not through the ingress interface".to_owned(), through);
    match &lookup.decision {
        RouteDecision::Unicast {
            route, interfaces, ..
        } => {
            if ingress.is_some_and(|ingress| interfaces.iter().any(|name| name == ingress)) {
                return format!(
                    "after the probes, the kernel has the route `{route}` to the source {source}"
                );
            }
            let rule = lookup.rule.as_ref();
            let rule = rule.map_or_else(String::new, |rule| {
                format!("; the routing rule `{rule}` selects its table")
            });
            format!(
                "the route to the source {source} is `{route}`, through {} and {expected}{rule}",
                join_and(interfaces)
            )
        }
        RouteDecision::Local { interface } => {
            format!("the source {source} is an address of {interface} in this namespace")
        }
        RouteDecision::None { tables } => {
            let tables = render_tables(tables);
            let thrown = render_thrown(&lookup.thrown);
            format!("no route to the source {source} in {tables}{thrown}")
        }
        RouteDecision::Refusal { .. } | RouteDecision::RuleRefusal => String::new(),
    }
}

/// Renders the tables of a lookup, without those that are empty on most nodes.
fn render_tables(tables: &[u32]) -> String {
    // The tables `default` and `local` (Linux v6.12, `include/uapi/linux/rtnetlink.h`).
    let shown = tables.iter().filter(|table| !matches!(table, 253 | 255));
    let names: Vec<String> = shown
        .map(|table| match table {
            254 => "main".to_owned(),
            number => number.to_string(),
        })
        .collect();
    let noun = if names.len() == 1 { "table" } else { "tables" };
    format!("{noun} {}", join_and(names))
}

fn render_thrown(routes: &[String]) -> String {
    if routes.is_empty() {
        return String::new();
    }
    let routes = routes.iter().map(|route| format!("`{route}`"));
    format!("; {} ended the lookup in its table", join_and(routes))
}

/// Describes a kind of cause without its object.
#[expect(
    clippy::too_many_lines,
    reason = "the function has one clause for each kind"
)]
#[must_use]
pub const fn describe_kind(kind: DropKind) -> &'static str {
    match kind {
        DropKind::NoRoute => "no route",
        DropKind::RouteRefused => "a blackhole, unreachable or prohibit route refused the packet",
        DropKind::NotForwarding => "the destination is not a local address",
        DropKind::ReversePath => "reverse path filtering (rp_filter)",
        DropKind::LocalSource => {
            "the source is an address of this namespace, and accept_local is disabled"
        }
        DropKind::InvalidSource => "the source is no valid unicast address",
        DropKind::InvalidDestination => "the destination is no valid address",
        DropKind::LoopbackAddress => {
            "addresses of 127.0.0.0/8 are valid only on lo, unless route_localnet is set"
        }
        DropKind::Ipv6Loopback => "packets from and to ::1 are valid only on lo",
        DropKind::RouteInput => {
            "the kernel refused the addresses of the packet in its route lookup, and gives no reason"
        }
        DropKind::TtlExpired => "the TTL expired",
        DropKind::TtlMinimum => "the TTL is below the minimum of the socket",
        DropKind::TtlOrHeader => {
            "the TTL expired or the IP header is invalid: the kernel counts both together"
        }
        DropKind::Forward => "the kernel refused to forward the packet, and gives no reason",
        DropKind::InvalidHeader => "the IP header is invalid",
        DropKind::IpInput => {
            "the IP header is invalid, or the frame was addressed to another interface; the kernel \
             does not report which"
        }
        DropKind::Checksum => "a checksum is wrong",
        DropKind::Truncated => "the packet is shorter than its headers state",
        DropKind::Fragment => "the fragments of the packet could not be reassembled",
        DropKind::OtherHardwareAddress => {
            "the frame was addressed to the hardware address of another interface"
        }
        DropKind::MulticastFrame => "a multicast or broadcast frame contained a unicast packet",
        DropKind::UnknownProtocol => "no handler accepts the protocol of the packet",
        DropKind::Ipv6Disabled => "IPv6 is disabled on the interface",
        DropKind::TooBig => "the packet is larger than the MTU of its path",
        DropKind::LinkRefused => {
            "the packet is larger than the MTU of the link, or the other end is down"
        }
        DropKind::NeighbourFailed => "no reply from the neighbour",
        DropKind::NeighbourQueue => {
            "no reply from the neighbour, and the queue of waiting packets is full"
        }
        DropKind::NeighbourEntry => "no usable entry for the neighbour",
        DropKind::BridgePortState => "the bridge port is not in the forwarding state",
        DropKind::BridgeIngress => {
            "the bridge refused the frame: state, lock or VLAN of the port; the kernel does not \
             report which"
        }
        DropKind::BridgeNoPort => {
            "the bridge had no port for the frame: hairpin mode, isolation, state or flooding of \
             the ports; the kernel does not report which"
        }
        DropKind::SourceHardwareAddress => {
            "the source hardware address of the frame is invalid or belongs to the receiver"
        }
        DropKind::Netfilter => {
            "netfilter: no recorded rule dropped the packet, and the kernel does not report which \
             hook did"
        }
        DropKind::NetfilterQueue => {
            "no program reads the queue (NFQUEUE) to which a rule sent the packet"
        }
        DropKind::Ipvs => "IPVS could not send the packet to a real server",
        DropKind::NoSocket => "no listening socket",
        DropKind::NoConnection => "no connection matches the ICMP error",
        DropKind::SocketBacklog => "the backlog queue of the socket is full",
        DropKind::SocketBuffer => "the receive buffer of the socket is full",
        DropKind::ProtocolMemory => "the memory limit of the protocol is reached",
        DropKind::SocketFilter => "a filter of the socket dropped the packet",
        DropKind::AcceptQueue => "the accept queue of the listening socket is full",
        DropKind::TcpFlags => "the TCP flags are invalid in this state of the connection",
        DropKind::TcpWindow => "the TCP sequence number is outside of the receive window",
        DropKind::TcpDuplicate => "the socket received this TCP segment before",
        DropKind::TcpTimestamp => "the TCP timestamp is older than an earlier one (PAWS)",
        DropKind::TcpAcknowledgment => "the TCP acknowledgment number is invalid",
        DropKind::TcpReset => "the TCP reset is invalid",
        DropKind::TcpSyn => "a SYN is invalid in this state of the connection",
        DropKind::TcpClosed => "the TCP socket is closed",
        DropKind::TcpAuthentication => "the TCP signature is missing or wrong",
        DropKind::TcpQueue => "the TCP queue for segments out of order is full",
        DropKind::TcpFastOpen => "the TCP Fast Open request was refused",
        DropKind::TcpState => "the TCP socket refused the segment, and the kernel gives no reason",
        DropKind::Ignored => "the socket layer ignored the packet, and the kernel gives no reason",
        DropKind::QueueDiscipline => {
            "the queueing discipline (qdisc) of the egress interface dropped the packet"
        }
        DropKind::CpuBacklog => "the receive queue of a CPU is full (netdev_max_backlog)",
        DropKind::TrafficControl => "a tc filter dropped the packet",
        DropKind::Xdp => "an XDP program dropped the packet",
        DropKind::Bpf => "a BPF program of the cgroup dropped the packet",
        DropKind::SecurityModule => "a Linux security module dropped the packet",
        DropKind::Ipsec => "an IPsec policy (xfrm) refused the packet",
        DropKind::InterfaceDown => "the interface is down",
        DropKind::InterfaceTransmit => {
            "the egress interface is down, or packets loop between interfaces; the kernel does not \
             report which"
        }
        DropKind::InterfaceRemoved => "the interface was removed",
        DropKind::Recursion => "the packet passed through too many nested interfaces",
        DropKind::Memory => "the kernel or the device had no memory for the packet",
        DropKind::VxlanHeader => "the VXLAN header is invalid",
        DropKind::VxlanVni => "no VXLAN interface has the VNI of the packet",
        DropKind::VxlanEntry => {
            "the frame contradicts a static forwarding entry of the VXLAN interface"
        }
        DropKind::VxlanNoRemote => "the VXLAN interface has no forwarding entry for the frame",
        DropKind::TunnelTransmit => {
            "the tunnel could not send the packet: route, MTU or recursion; the kernel does not \
             report which"
        }
        DropKind::TunnelReceive => "no tunnel interface accepts the packet",
        DropKind::TunnelEcn => {
            "the ECN bits of the inner and the outer header contradict each other"
        }
        DropKind::TunnelMetadata => "the packet has no metadata for the tunnel interface",
        DropKind::TapFilter => "a filter of the tun or tap device dropped the packet",
        DropKind::QueueRemoved => {
            "the packet waited in the queue of a socket or interface that was removed"
        }
        DropKind::Unspecified => "the kernel gives no reason",
        DropKind::Undescribed => "svclab has no description of the kernel's reason",
    }
}
