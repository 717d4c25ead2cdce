//! Configures interfaces, addresses, routes and neighbours over netlink. Each namespace has one
//! socket, and one thread drives all of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use ipnetwork::IpNetwork;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{InfoData, InfoVeth};
use netlink_packet_route::neighbour::NeighbourFlags;
use netlink_packet_route::route::{RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags};
use rtnetlink::{
    Handle, LinkBridge, LinkBridgePort, LinkDummy, LinkMessageBuilder, LinkUnspec, LinkVeth,
    LinkVxlan, RouteMessageBuilder, RouteNextHopBuilder,
};
use tokio::task::JoinHandle;

use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::plan::{
    Link, LinkKind, MultipathRoute, Namespace, Route, RouteKind, RoutingAction, RoutingRule,
};
use svclab_model::protocol::{Failure, FailureKind, IP_ADDR, IP_ROUTE, IP_RULE};

/// Index of the loopback interface in every namespace.
const LOOPBACK: u32 = 1;

/// Index of the first interface of the plan. The others follow in the plan's order, so that no
/// index needs to be queried. A new namespace may contain a few devices of loaded modules (`tunl0`,
/// `sit0`), whose indexes are lower.
const FIRST_INDEX: u32 = 100;

/// Netlink socket of a namespace, and the indexes of its interfaces.
pub struct NamespaceNetlink {
    pub(crate) handle: Handle,
    driver: JoinHandle<()>,
    indexes: HashMap<String, u32>,
}

impl Drop for NamespaceNetlink {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl NamespaceNetlink {
    /// Opens a netlink socket in a namespace and brings its loopback interface up.
    ///
    /// # Errors
    ///
    /// When the namespace cannot be entered or no descriptor is left.
    pub async fn open(ns: &NetNs, plan: &Namespace) -> Result<Self, Failure> {
        let (connection, handle, _) = ns
            .enter(rtnetlink::new_connection)
            .and_then(|opened| opened)
            .map_err(|error| failure::cannot_enter(&plan.name, &error))?;
        let driver = tokio::task::spawn_local(connection);
        let indexes = plan
            .links
            .iter()
            .map(|link| link.name.clone())
            .zip(FIRST_INDEX..)
            .chain([("lo".to_owned(), LOOPBACK)])
            .collect();
        let netlink = Self {
            handle,
            driver,
            indexes,
        };
        netlink
            .set_link_up(LOOPBACK)
            .await
            .map_err(|error| step_failure(&plan.name, "bring up lo", &error))?;
        Ok(netlink)
    }

    pub(crate) fn index(&self, plan: &Namespace, dev: &str) -> Result<u32, Failure> {
        self.indexes.get(dev).copied().ok_or_else(|| {
            failure::bug(format!(
                "the plan uses interface {dev}, which {} does not have",
                plan.name
            ))
        })
    }

    async fn set_link_up(&self, index: u32) -> Result<(), rtnetlink::Error> {
        let up = LinkUnspec::new_with_index(index).up().build();
        self.handle.link().set(up).execute().await
    }

    /// Returns the names of the interfaces by index.
    pub fn names(&self) -> HashMap<u32, String> {
        self.indexes
            .iter()
            .map(|(name, index)| (*index, name.clone()))
            .collect()
    }

    /// Attaches ports to their bridges, adds addresses, and brings all interfaces up.
    ///
    /// # Errors
    ///
    /// When the kernel rejects a change.
    pub async fn bring_up(&self, plan: &Namespace) -> Result<(), Failure> {
        for link in &plan.links {
            let index = self.index(plan, &link.name)?;
            if let Some(bridge) = &link.bridge {
                let controller = self.index(plan, bridge)?;
                let port = LinkUnspec::new_with_index(index)
                    .controller(controller)
                    .build();
                self.handle
                    .link()
                    .set(port)
                    .execute()
                    .await
                    .map_err(|error| {
                        step_failure(
                            &plan.name,
                            &format!("attach {} to bridge {bridge}", link.name),
                            &error,
                        )
                    })?;
                if link.hairpin {
                    let hairpin = LinkBridgePort::new(index).hairpin(true).build();
                    self.handle
                        .link()
                        .set_port(hairpin)
                        .execute()
                        .await
                        .map_err(|error| {
                            step_failure(
                                &plan.name,
                                &format!("enable hairpin mode on {}", link.name),
                                &error,
                            )
                        })?;
                }
            }
            for address in &link.addresses {
                self.handle
                    .address()
                    .add(index, address.ip(), address.prefix())
                    .execute()
                    .await
                    .map_err(|error| {
                        let step = format!("add address {address} to {}", link.name);
                        let failure = step_failure(&plan.name, &step, &error);
                        let line = format!("{address} dev {}", link.name);
                        failure::with_rejected_input(failure, &plan.name, IP_ADDR, line)
                    })?;
            }
        }
        for address in &plan.loopback {
            let added = self
                .handle
                .address()
                .add(LOOPBACK, address.ip(), address.prefix());
            added.execute().await.map_err(|error| {
                let step = format!("add address {address} to lo");
                let failure = step_failure(&plan.name, &step, &error);
                failure::with_rejected_input(
                    failure,
                    &plan.name,
                    IP_ADDR,
                    format!("{address} dev lo"),
                )
            })?;
        }
        for link in plan.links.iter().filter(|link| !link.down) {
            let index = self.index(plan, &link.name)?;
            self.set_link_up(index).await.map_err(|error| {
                step_failure(&plan.name, &format!("bring up {}", link.name), &error)
            })?;
        }
        Ok(())
    }

    /// Adds neighbours, forwarding entries and routes.
    ///
    /// # Errors
    ///
    /// When the kernel rejects a change.
    pub async fn add_routes(&self, plan: &Namespace) -> Result<(), Failure> {
        for neighbour in &plan.neighbours {
            let index = self.index(plan, &neighbour.dev)?;
            self.handle
                .neighbours()
                .add(index, neighbour.address)
                .link_layer_address(&neighbour.mac.0)
                .replace()
                .execute()
                .await
                .map_err(|error| {
                    step_failure(
                        &plan.name,
                        &format!(
                            "add the neighbour {} on {}",
                            neighbour.address, neighbour.dev
                        ),
                        &error,
                    )
                })?;
        }
        for entry in &plan.forwarding {
            let index = self.index(plan, &entry.dev)?;
            self.handle
                .neighbours()
                .add_bridge(index, &entry.mac.0)
                .destination(entry.to)
                .flags(NeighbourFlags::Own)
                .execute()
                .await
                .map_err(|error| {
                    step_failure(
                        &plan.name,
                        &format!(
                            "add the forwarding entry {} to {} on {}",
                            entry.mac, entry.to, entry.dev
                        ),
                        &error,
                    )
                })?;
        }
        for route in &plan.routes {
            let index = self.output_interface(plan, route)?;
            let message = route_message(route, index).map_err(|error| {
                failure::bug(format!(
                    "the route to {} in {} mixes address families: {error}",
                    route.to, plan.name
                ))
            })?;
            self.handle
                .route()
                .add(message)
                .execute()
                .await
                .map_err(|error| {
                    let step = format!("add the route to {} through {}", route.to, route.dev);
                    let failure = step_failure(&plan.name, &step, &error);
                    failure::with_rejected_input(failure, &plan.name, IP_ROUTE, route.to_string())
                })?;
        }
        for route in &plan.multipath_routes {
            let message = self.multipath_message(plan, route)?;
            let added = self.handle.route().add(message).execute().await;
            added.map_err(|error| {
                let failure = step_failure(&plan.name, &format!("add the route `{route}`"), &error);
                failure::with_rejected_input(failure, &plan.name, IP_ROUTE, route.to_string())
            })?;
        }
        // These routes are removed last, because next hops must be reachable while routes are
        // added.
        for (to, dev) in &plan.removed_routes {
            let index = self.index(plan, dev)?;
            let result = self.remove_kernel_route(*to, index).await;
            result.map_err(|error| {
                let step = format!("remove the route to {to} through {dev}");
                step_failure(&plan.name, &step, &error)
            })?;
        }
        Ok(())
    }

    /// Removes a route that the kernel created together with an address.
    async fn remove_kernel_route(&self, to: IpNetwork, index: u32) -> Result<(), rtnetlink::Error> {
        let builder = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(to.network(), to.prefix())
            .map_err(|error| rtnetlink::Error::InvalidNla(error.to_string()))?;
        let builder = builder
            .output_interface(index)
            .protocol(RouteProtocol::Kernel);
        let scope = if to.is_ipv4() {
            RouteScope::Link
        } else {
            RouteScope::Universe
        };
        let message = builder.scope(scope).build();
        self.handle.route().del(message).execute().await
    }

    fn multipath_message(
        &self,
        plan: &Namespace,
        route: &MultipathRoute,
    ) -> Result<RouteMessage, Failure> {
        let mixed = |error: &dyn std::fmt::Display| {
            failure::bug(format!(
                "the route `{route}` in {} mixes address families: {error}",
                plan.name
            ))
        };
        let mut builder = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(route.to.network(), route.to.prefix())
            .map_err(|error| mixed(&error))?;
        let mut hops = Vec::with_capacity(route.next_hops.len());
        for way in &route.next_hops {
            let mut hop = if route.to.is_ipv4() {
                RouteNextHopBuilder::new_ipv4()
            } else {
                RouteNextHopBuilder::new_ipv6()
            };
            hop = hop.interface(self.index(plan, &way.dev)?);
            // The kernel's weight starts at 0.
            hop = hop.weight(u8::try_from(way.weight.saturating_sub(1)).unwrap_or(u8::MAX));
            if let Some(via) = way.via {
                hop = hop.via(via).map_err(|error| mixed(&error))?;
            }
            if way.onlink {
                hop = hop.onlink();
            }
            hops.push(hop.build());
        }
        builder = builder.multipath(hops);
        if let Some(table) = route.table {
            builder = builder.table_id(table);
        }
        if let Some(metric) = route.metric {
            builder = builder.priority(metric);
        }
        if let Some(source) = route.source {
            builder = builder.pref_source(source).map_err(|error| mixed(&error))?;
        }
        Ok(builder.build())
    }

    /// Returns the index of a route's interface, or `None` for a route without an interface.
    pub(crate) fn output_interface(
        &self,
        plan: &Namespace,
        route: &Route,
    ) -> Result<Option<u32>, Failure> {
        if route.dev.is_empty() {
            return Ok(None);
        }
        self.index(plan, &route.dev).map(Some)
    }

    /// Adds the routing rules.
    ///
    /// # Errors
    ///
    /// When the kernel rejects a rule.
    pub async fn add_routing_rules(&self, plan: &Namespace) -> Result<(), Failure> {
        for rule in &plan.routing_rules {
            self.add_routing_rule(rule).await.map_err(|error| {
                let step = format!("add the routing rule `{rule}`");
                let failure = step_failure(&plan.name, &step, &error);
                failure::with_rejected_input(failure, &plan.name, IP_RULE, rule.to_string())
            })?;
        }
        Ok(())
    }

    async fn add_routing_rule(&self, rule: &RoutingRule) -> Result<(), rtnetlink::Error> {
        let mut request = self.handle.rule().add().priority(rule.priority);
        if let Some(dev) = &rule.input_interface {
            request = request.input_interface(dev);
        }
        if let Some(dev) = &rule.output_interface {
            request = request.output_interface(dev);
        }
        // The kernel accepts a rule without an action, but this rule breaks route lookups.
        request = match rule.action {
            RoutingAction::Table(table) => request.table_id(table).action(RuleAction::ToTable),
            RoutingAction::Blackhole => request.action(RuleAction::Blackhole),
            RoutingAction::Unreachable => request.action(RuleAction::Unreachable),
            RoutingAction::Prohibit => request.action(RuleAction::Prohibit),
        };
        let message = request.message_mut();
        if !matches!(rule.action, RoutingAction::Table(_)) {
            message.header.table = 0;
        }
        let protocol = RuleAttribute::Protocol(RouteProtocol::Static);
        message.attributes.push(protocol);
        if rule.inverted {
            message.header.flags |= RuleFlags::Invert;
        }
        if let Some((mark, mask)) = rule.mark {
            message.attributes.push(RuleAttribute::FwMark(mark));
            message.attributes.push(RuleAttribute::FwMask(mask));
        }
        if let Some(length) = rule.suppress_prefix_length {
            message
                .attributes
                .push(RuleAttribute::SuppressPrefixLen(length));
        }
        if let Some(from) = rule.from {
            message.header.src_len = from.prefix();
            message
                .attributes
                .push(RuleAttribute::Source(from.network()));
        }
        if let Some(to) = rule.to {
            message.header.dst_len = to.prefix();
            message
                .attributes
                .push(RuleAttribute::Destination(to.network()));
        }
        if rule.v6 {
            request.v6().execute().await
        } else {
            request.v4().execute().await
        }
    }
}

pub(crate) fn route_message(
    route: &Route,
    index: Option<u32>,
) -> Result<netlink_packet_route::route::RouteMessage, Box<dyn std::error::Error>> {
    let mut builder = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(route.to.network(), route.to.prefix())?;
    if let Some(index) = index {
        builder = builder.output_interface(index);
    }
    if let Some(via) = route.via {
        builder = builder.gateway(via)?;
    } else if route.kind == RouteKind::Local {
        builder = builder.scope(RouteScope::Host);
    } else if route.kind.is_unicast() {
        builder = builder.scope(RouteScope::Link);
    }
    match route.kind {
        RouteKind::Unicast => {}
        RouteKind::Local => builder = builder.kind(RouteType::Local),
        RouteKind::Blackhole => builder = builder.kind(RouteType::BlackHole),
        RouteKind::Unreachable => builder = builder.kind(RouteType::Unreachable),
        RouteKind::Prohibit => builder = builder.kind(RouteType::Prohibit),
        RouteKind::Throw => builder = builder.kind(RouteType::Throw),
    }
    if let Some(table) = route.table {
        builder = builder.table_id(table);
    }
    if let Some(metric) = route.metric {
        builder = builder.priority(metric);
    }
    if let Some(source) = route.source {
        builder = builder.pref_source(source)?;
    }
    if route.onlink {
        builder = builder.onlink();
    }
    Ok(builder.build())
}

/// Creates every interface of every namespace: bridges, veth pairs between namespaces, tunnels. All
/// interfaces stay down.
///
/// # Errors
///
/// When the kernel rejects an interface, or the plan contains only one end of a veth pair.
pub async fn make_links(
    namespaces: &[(NetNs, NamespaceNetlink)],
    plans: &[Namespace],
) -> Result<(), Failure> {
    let indexes: HashMap<&str, usize> = plans
        .iter()
        .enumerate()
        .map(|(index, plan)| (plan.name.as_str(), index))
        .collect();
    for (position, plan) in plans.iter().enumerate() {
        let netlink = &namespaces[position].1;
        for link in &plan.links {
            let index = netlink.index(plan, &link.name)?;
            let request = match &link.kind {
                LinkKind::Bridge => with_mtu(
                    LinkBridge::new(&link.name)
                        .index(index)
                        .address(link.mac.0.to_vec()),
                    link,
                )
                .build(),
                LinkKind::Dummy => with_mtu(
                    LinkDummy::new(&link.name)
                        .index(index)
                        .address(link.mac.0.to_vec()),
                    link,
                )
                .build(),
                LinkKind::Vxlan {
                    vni,
                    port,
                    dev,
                    local,
                } => {
                    let tunnel = LinkVxlan::new(&link.name, *vni)
                        .dev(netlink.index(plan, dev)?)
                        .port(*port)
                        .learning(false);
                    let tunnel = match local {
                        IpAddr::V4(local) => tunnel.local(*local),
                        IpAddr::V6(local) => tunnel.local6(*local),
                    };
                    with_mtu(tunnel.index(index).address(link.mac.0.to_vec()), link).build()
                }
                LinkKind::Veth { namespace, peer } => {
                    let one_end = || {
                        failure::bug(format!(
                            "the plan has only one end of the veth pair {} in {}",
                            link.name, plan.name
                        ))
                    };
                    let peer_position = *indexes.get(namespace.as_str()).ok_or_else(one_end)?;
                    let peer_link = plans[peer_position]
                        .links
                        .iter()
                        .find(|other| other.name == *peer)
                        .ok_or_else(one_end)?;
                    // Both ends refer to their veth pair, which is created once.
                    if (peer_position, peer) < (position, &link.name) {
                        continue;
                    }
                    let peer_request = with_mtu(
                        LinkUnspec::new_with_name(peer)
                            .index(
                                namespaces[peer_position]
                                    .1
                                    .index(&plans[peer_position], peer)?,
                            )
                            .address(peer_link.mac.0.to_vec())
                            .setns_by_fd(namespaces[peer_position].0.as_raw_fd()),
                        peer_link,
                    )
                    .build();
                    with_mtu(
                        LinkVeth::new(&link.name, peer)
                            .index(index)
                            .address(link.mac.0.to_vec()),
                        link,
                    )
                    .set_info_data(InfoData::Veth(InfoVeth::Peer(peer_request)))
                    .build()
                }
            };
            netlink
                .handle
                .link()
                .add(request)
                .execute()
                .await
                .map_err(|error| cannot_create_link(&plan.name, link, &error))?;
        }
    }
    Ok(())
}

fn with_mtu<T>(builder: LinkMessageBuilder<T>, link: &Link) -> LinkMessageBuilder<T> {
    match link.mtu {
        Some(mtu) => builder.mtu(mtu),
        None => builder,
    }
}

/// Whether any interface of the namespace has an address of the family.
pub fn has_address_of(plan: &Namespace, family: AddressFamily) -> bool {
    plan.links
        .iter()
        .flat_map(|link| &link.addresses)
        .any(|address| {
            matches!(
                (address, family),
                (IpNetwork::V4(_), AddressFamily::Inet) | (IpNetwork::V6(_), AddressFamily::Inet6)
            )
        })
}

pub(crate) fn errno(error: &rtnetlink::Error) -> i32 {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.raw_code().abs(),
        _ => 0,
    }
}

fn describe(error: &rtnetlink::Error) -> String {
    match errno(error) {
        0 => error.to_string(),
        code => nix::errno::Errno::from_raw(code).desc().to_owned(),
    }
}

fn cannot_create_link(namespace: &str, link: &Link, error: &rtnetlink::Error) -> Failure {
    let mut failure = step_failure(namespace, &format!("create interface {}", link.name), error);
    // The kernel returns this error for a link kind whose module is missing.
    if errno(error) == nix::errno::Errno::EOPNOTSUPP as i32 {
        let module = match link.kind {
            LinkKind::Veth { .. } => "veth",
            LinkKind::Bridge => "bridge",
            LinkKind::Dummy => "dummy",
            LinkKind::Vxlan { .. } => "vxlan",
        };
        failure.remedy = Some(format!("run `modprobe {module}` as root"));
    }
    failure
}

pub(crate) fn step_failure(namespace: &str, step: &str, error: &rtnetlink::Error) -> Failure {
    Failure {
        kind: FailureKind::Machine,
        message: format!("cannot {step} in {namespace}: {}", describe(error)),
        remedy: None,
        rejected: None,
    }
}
