//! Reads interfaces, routes, routing rules, neighbours and forwarding entries of a namespace.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt as _;
use ipnetwork::IpNetwork;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::{
    BridgePortState, InfoBridge, InfoBridgePort, InfoData, InfoPortData, InfoVxlan, LinkAttribute,
    LinkExtentMask, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHop,
    RouteNextHopFlags, RouteType, RouteVia,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::tc::{TcAttribute, TcMessage};
use rtnetlink::{Handle, IpVersion};

use crate::net::netlink::MTU_LOCK;
use svclab_model::evidence::{
    ForwardingEntry, LinkState, NeighbourEntry, NetworkState, Queue, VxlanState,
};
use svclab_model::plan::{
    Mac, MultipathRoute, NextHop, PortSettings, Route, RouteKind, RouteSettings, RoutingAction,
    RoutingRule,
};

/// Names of a namespace's interfaces, by index.
pub(super) type LinkNames = HashMap<u32, String>;

/// Reads the interfaces of a namespace, with their addresses. Also returns their names.
pub(super) async fn read_links(
    handle: &Handle,
) -> Result<(Vec<LinkState>, LinkNames), rtnetlink::Error> {
    let mut addresses: BTreeMap<u32, Vec<IpNetwork>> = BTreeMap::new();
    let mut responses = handle.address().get().execute();
    while let Some(message) = responses.try_next().await? {
        // For a point-to-point interface, `Local` is the address of the interface and `Address` is
        // the address of its peer.
        let local_address = message.attributes.iter().find_map(|each| match each {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
        let peer_address = message.attributes.iter().find_map(|each| match each {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        if let Some(address) = local_address.or(peer_address)
            && let Ok(address) = IpNetwork::new(address, message.header.prefix_len)
        {
            addresses
                .entry(message.header.index)
                .or_default()
                .push(address);
        }
    }
    // Statistics are most of the kernel's answer.
    let request = handle.link().get();
    let request = request.set_filter_mask(AddressFamily::Unspec, vec![LinkExtentMask::SkipStats]);
    let messages: Vec<LinkMessage> = request.execute().try_collect().await?;
    let names = link_names(&messages);
    let links = messages.iter().filter_map(|message| {
        let index = message.header.index;
        let mut link = link_state(message, &names)?;
        link.addresses = addresses.remove(&index).unwrap_or_default();
        Some(link)
    });
    let links = links.collect();
    Ok((links, names))
}

fn link_names(messages: &[LinkMessage]) -> LinkNames {
    let names = messages.iter().filter_map(|message| {
        let name = message.attributes.iter().find_map(|each| match each {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        });
        Some((message.header.index, name?))
    });
    names.collect()
}

/// Converts an interface, without its addresses.
fn link_state(message: &LinkMessage, names: &LinkNames) -> Option<LinkState> {
    let mut link = LinkState {
        name: names.get(&message.header.index)?.clone(),
        flags: message.header.flags.bits(),
        ..LinkState::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::Address(bytes) => {
                link.mac = mac(bytes).filter(|mac| *mac != Mac([0; 6]));
            }
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Controller(index) => link.bridge = names.get(index).cloned(),
            LinkAttribute::LinkInfo(parts) => {
                for part in parts {
                    add_link_info(&mut link, part);
                }
            }
            _ => {}
        }
    }
    Some(link)
}

fn add_link_info(link: &mut LinkState, part: &LinkInfo) {
    match part {
        LinkInfo::Kind(kind) => link.kind = Some(kind.to_string()),
        LinkInfo::Data(InfoData::Bridge(data)) => {
            link.filters_vlans = data.contains(&InfoBridge::VlanFiltering(true));
        }
        LinkInfo::Data(InfoData::Vxlan(data)) => link.vxlan = Some(vxlan_state(data)),
        LinkInfo::PortData(InfoPortData::BridgePort(data)) => link.port = Some(port_settings(data)),
        _ => {}
    }
}

fn vxlan_state(data: &[InfoVxlan]) -> VxlanState {
    let mut state = VxlanState::default();
    for each in data {
        match each {
            InfoVxlan::Id(vni) => state.vni = *vni,
            InfoVxlan::Port(port) => state.port = *port,
            InfoVxlan::Local(local) => state.local = Some((*local).into()),
            InfoVxlan::Local6(local) => state.local = Some((*local).into()),
            _ => {}
        }
    }
    state
}

fn port_settings(data: &[InfoBridgePort]) -> PortSettings {
    let mut settings = PortSettings::default();
    for each in data {
        match each {
            InfoBridgePort::State(state) => {
                settings.forwarding = *state == BridgePortState::Forwarding;
            }
            InfoBridgePort::HairpinMode(on) => settings.hairpin = *on,
            InfoBridgePort::Isolated(on) => settings.isolated = *on,
            InfoBridgePort::Learning(on) => settings.learning = *on,
            InfoBridgePort::UnicastFlood(on) => settings.flood = *on,
            InfoBridgePort::Locked(on) => settings.locked = *on,
            _ => {}
        }
    }
    settings
}

fn mac(bytes: &[u8]) -> Option<Mac> {
    bytes.try_into().ok().map(Mac)
}

/// Reads the routing state of a namespace, whose interfaces have `names`.
pub(super) async fn read_network(
    handle: &Handle,
    names: &LinkNames,
) -> Result<NetworkState, rtnetlink::Error> {
    let mut state = NetworkState::default();
    let mut responses = handle.route().get(RouteMessage::default()).execute();
    while let Some(message) = responses.try_next().await? {
        add_route(&mut state, &message, names);
    }
    for version in [IpVersion::V4, IpVersion::V6] {
        let mut responses = handle.rule().get(version).execute();
        while let Some(message) = responses.try_next().await? {
            state.routing_rules.extend(routing_rule(&message));
        }
    }
    let mut responses = handle.neighbours().get().execute();
    while let Some(message) = responses.try_next().await? {
        state.neighbours.extend(neighbour(&message, names));
    }
    let request = handle.neighbours().get();
    let request = request.set_address_family(AddressFamily::Bridge);
    let mut responses = request.execute();
    while let Some(message) = responses.try_next().await? {
        state.forwarding.extend(forwarding_entry(&message, names));
    }
    let mut responses = handle.qdisc().get().execute();
    while let Some(message) = responses.try_next().await? {
        state.queues.extend(queue(&message, names));
    }
    Ok(state)
}

fn add_route(state: &mut NetworkState, message: &RouteMessage, names: &LinkNames) {
    let kind = match message.header.kind {
        RouteType::Unicast => RouteKind::Unicast,
        RouteType::Local => RouteKind::Local,
        RouteType::BlackHole => RouteKind::Blackhole,
        RouteType::Unreachable => RouteKind::Unreachable,
        RouteType::Prohibit => RouteKind::Prohibit,
        RouteType::Throw => RouteKind::Throw,
        _ => return,
    };
    let any = match message.header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return,
    };
    let (mut to, mut via, mut dev, mut source, mut metric) = (any, None, String::new(), None, None);
    let mut settings = RouteSettings {
        tos: Some(message.header.tos).filter(|tos| *tos != 0),
        ..RouteSettings::default()
    };
    let mut table = u32::from(message.header.table);
    let mut next_hops: &[RouteNextHop] = &[];
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => to = ip(address).unwrap_or(any),
            RouteAttribute::Gateway(address) => via = ip(address),
            RouteAttribute::Via(address) => via = via_address(address),
            RouteAttribute::Oif(index) => dev = names.get(index).cloned().unwrap_or_default(),
            RouteAttribute::PrefSource(address) => source = ip(address),
            RouteAttribute::Priority(priority) => metric = Some(*priority),
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Source(address) => {
                let length = message.header.source_prefix_length;
                settings.from = ip(address).and_then(|ip| IpNetwork::new(ip, length).ok());
            }
            RouteAttribute::Metrics(metrics) => add_metrics(&mut settings, metrics),
            RouteAttribute::MultiPath(hops) => next_hops = hops,
            _ => {}
        }
    }
    let Ok(to) = IpNetwork::new(to, message.header.destination_prefix_length) else {
        return;
    };
    if !next_hops.is_empty() {
        state.multipath_routes.push(MultipathRoute {
            to,
            next_hops: next_hops.iter().map(|hop| next_hop(hop, names)).collect(),
            source,
            table: other_table(table),
            metric,
            settings,
        });
        return;
    }
    state.routes.push(Route {
        to,
        via,
        dev,
        onlink: message.header.flags.contains(RouteFlags::Onlink),
        source,
        kind,
        table: other_table(table),
        metric,
        settings,
    });
}

fn add_metrics(settings: &mut RouteSettings, metrics: &[RouteMetric]) {
    for each in metrics {
        match each {
            RouteMetric::Lock(locked) => settings.mtu_locked = locked & MTU_LOCK != 0,
            RouteMetric::Mtu(mtu) => settings.mtu = Some(*mtu),
            RouteMetric::Advmss(mss) => settings.advertised_mss = Some(*mss),
            RouteMetric::Hoplimit(limit) => settings.hop_limit = Some(*limit),
            _ => {}
        }
    }
}

/// Returns the number of a table other than the main table.
fn other_table(table: u32) -> Option<u32> {
    (table != u32::from(RouteHeader::RT_TABLE_MAIN)).then_some(table)
}

fn next_hop(hop: &RouteNextHop, names: &LinkNames) -> NextHop {
    NextHop {
        via: hop.attributes.iter().find_map(|each| match each {
            RouteAttribute::Gateway(address) => ip(address),
            RouteAttribute::Via(address) => via_address(address),
            _ => None,
        }),
        dev: names.get(&hop.interface_index).cloned().unwrap_or_default(),
        // The kernel's weight starts at 0.
        weight: u16::from(hop.hops) + 1,
        onlink: hop.flags.contains(RouteNextHopFlags::Onlink),
    }
}

const fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

const fn via_address(address: &RouteVia) -> Option<IpAddr> {
    match address {
        RouteVia::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteVia::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

fn routing_rule(message: &RuleMessage) -> Option<RoutingRule> {
    let v6 = message.header.family == AddressFamily::Inet6;
    let action = RoutingAction::Table(u32::from(message.header.table));
    let mut rule = RoutingRule {
        inverted: message.header.flags.contains(RuleFlags::Invert),
        other_conditions: message.header.tos != 0,
        ..RoutingRule::new(v6, 0, action)
    };
    let (mut mark, mut mark_mask) = (None, u32::MAX);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Source(address) => {
                rule.from = IpNetwork::new(*address, message.header.src_len).ok();
            }
            RuleAttribute::Destination(address) => {
                rule.to = IpNetwork::new(*address, message.header.dst_len).ok();
            }
            RuleAttribute::FwMark(value) => mark = Some(*value),
            RuleAttribute::FwMask(value) => mark_mask = *value,
            RuleAttribute::Iifname(name) => rule.input_interface = Some(name.clone()),
            RuleAttribute::Oifname(name) => rule.output_interface = Some(name.clone()),
            // The kernel sends -1 for rules without this property.
            RuleAttribute::SuppressPrefixLen(length) if *length != u32::MAX => {
                rule.suppress_prefix_length = Some(*length);
            }
            RuleAttribute::Table(table) => rule.action = RoutingAction::Table(*table),
            RuleAttribute::IpProtocol(protocol) => rule.ip_protocol = Some(u8::from(*protocol)),
            RuleAttribute::SourcePortRange(ports) => {
                rule.source_ports = Some((ports.start, ports.end));
            }
            RuleAttribute::DestinationPortRange(ports) => {
                rule.destination_ports = Some((ports.start, ports.end));
            }
            RuleAttribute::UidRange(_)
            | RuleAttribute::L3MDev(true)
            | RuleAttribute::TunId(1..)
            | RuleAttribute::Other(_) => rule.other_conditions = true,
            _ => {}
        }
    }
    rule.mark = mark.map(|mark| (mark, mark_mask));
    rule.action = match message.header.action {
        RuleAction::ToTable => rule.action,
        RuleAction::Blackhole => RoutingAction::Blackhole,
        RuleAction::Unreachable => RoutingAction::Unreachable,
        RuleAction::Prohibit => RoutingAction::Prohibit,
        _ => return None,
    };
    Some(rule)
}

fn neighbour(message: &NeighbourMessage, names: &LinkNames) -> Option<NeighbourEntry> {
    let address = message.attributes.iter().find_map(|each| match each {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
        _ => None,
    })?;
    // Entries of multicast and local addresses need no resolution.
    if message.header.state == NeighbourState::Noarp {
        return None;
    }
    Some(NeighbourEntry {
        address,
        interface: names.get(&message.header.ifindex)?.clone(),
        mac: hardware_address(message),
        permanent: message.header.state == NeighbourState::Permanent,
    })
}

fn hardware_address(message: &NeighbourMessage) -> Option<Mac> {
    message.attributes.iter().find_map(|each| match each {
        NeighbourAttribute::LinkLayerAddress(bytes) => mac(bytes),
        _ => None,
    })
}

fn forwarding_entry(message: &NeighbourMessage, names: &LinkNames) -> Option<ForwardingEntry> {
    let mac = hardware_address(message).filter(|mac| mac.0[0] & 1 == 0)?;
    // The family of the message is that of bridges, and not that of the address.
    let remote = message.attributes.iter().find_map(|each| match each {
        NeighbourAttribute::Destination(NeighbourAddress::Other(bytes)) => {
            let v4 = <[u8; 4]>::try_from(&**bytes).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(&**bytes).map(IpAddr::from))
                .ok()
        }
        _ => None,
    });
    let state = message.header.state;
    Some(ForwardingEntry {
        interface: names.get(&message.header.ifindex)?.clone(),
        mac,
        remote,
        permanent: matches!(state, NeighbourState::Permanent | NeighbourState::Noarp),
    })
}

/// Converts a queueing discipline. Those that the kernel created have no handle (Linux v6.12,
/// `net/sched/sch_generic.c`, `attach_one_default_qdisc`).
fn queue(message: &TcMessage, names: &LinkNames) -> Option<Queue> {
    if message.header.handle.major == 0 {
        return None;
    }
    let index = u32::try_from(message.header.index).ok()?;
    let kind = message.attributes.iter().find_map(|each| match each {
        TcAttribute::Kind(kind) => Some(kind.clone()),
        _ => None,
    });
    let dropped = message.attributes.iter().find_map(|each| match each {
        TcAttribute::Stats(stats) => Some(stats.drops),
        _ => None,
    });
    Some(Queue {
        interface: names.get(&index)?.clone(),
        kind: kind?,
        dropped: dropped.unwrap_or(0),
    })
}
