//! Adds routes, neighbours, forwarding entries and routing rules.

use std::error::Error;
use std::net::IpAddr;

use futures_util::StreamExt as _;
use ipnetwork::IpNetwork;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourFlags, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags};
use rtnetlink::{RouteMessageBuilder, RouteNextHopBuilder};

use super::{NamespaceNetlink, StepResult as _};
use crate::runtime::failure;
use svclab_model::plan::{
    Forwarding, ForwardingTarget, Mac, MultipathRoute, Namespace, Route, RouteKind, RoutingAction,
    RoutingRule,
};
use svclab_model::protocol::{Failure, IP_ROUTE, IP_RULE};

impl NamespaceNetlink {
    /// Adds neighbours, forwarding entries and routes.
    pub(crate) async fn add_routes(&self, plan: &Namespace) -> Result<(), Failure> {
        let name = &plan.name;
        for neighbour in &plan.neighbours {
            let (address, dev) = (neighbour.address, &neighbour.dev);
            let request = self
                .handle
                .neighbours()
                .add(self.index(plan, dev)?, address)
                .link_layer_address(&neighbour.mac.0)
                .replace();
            let step = format_args!("add the neighbour {address} on {dev}");
            request.execute().await.in_step(name, step)?;
        }
        for entry in &plan.forwarding {
            let message = self.forwarding_message(plan, entry)?;
            let result = self.add_forwarding(message, entry.mac).await;
            result.in_step(name, format_args!("add the forwarding entry `{entry}`"))?;
        }
        for route in &plan.routes {
            let (to, dev) = (route.to, &route.dev);
            let index = self.output_interface(plan, route)?;
            let message = route_message(route, index).map_err(|error| {
                failure::bug(format!(
                    "the route to {to} in {name} mixes address families: {error}"
                ))
            })?;
            let result = self.handle.route().add(message).execute().await;
            let step = format_args!("add the route to {to} through {dev}");
            result.in_step_of(name, step, IP_ROUTE, route)?;
        }
        for route in &plan.multipath_routes {
            let hops = route.next_hops.iter();
            let indexes: Vec<u32> = hops
                .map(|hop| self.index(plan, &hop.dev))
                .collect::<Result<_, _>>()?;
            let message = multipath_message(route, &indexes).map_err(|error| {
                failure::bug(format!(
                    "the route `{route}` in {name} mixes address families: {error}"
                ))
            })?;
            let result = self.handle.route().add(message).execute().await;
            let step = format_args!("add the route `{route}`");
            result.in_step_of(name, step, IP_ROUTE, route)?;
        }
        // These routes are removed last, because next hops must be reachable while routes are
        // added.
        for (to, dev) in &plan.removed_routes {
            let index = self.index(plan, dev)?;
            let result = self.remove_kernel_route(*to, index).await;
            result.in_step(name, format_args!("remove the route to {to} through {dev}"))?;
        }
        Ok(())
    }

    /// Adds a forwarding entry. An entry of the address that is all zeros is added to those that the
    /// device has; any other entry replaces the one that the device has or has learned.
    async fn add_forwarding(
        &self,
        message: NeighbourMessage,
        mac: Mac,
    ) -> Result<(), rtnetlink::Error> {
        let mut request = NetlinkMessage::from(RouteNetlinkMessage::NewNeighbour(message));
        let mode = if mac == Mac::ZERO {
            NLM_F_APPEND
        } else {
            NLM_F_REPLACE
        };
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | mode;
        let mut handle = self.handle.clone();
        let mut responses = handle.request(request)?;
        while let Some(response) = responses.next().await {
            if let NetlinkPayload::Error(error) = response.payload {
                return Err(rtnetlink::Error::NetlinkError(error));
            }
        }
        Ok(())
    }

    /// Encodes a forwarding entry.
    pub(super) fn forwarding_message(
        &self,
        plan: &Namespace,
        entry: &Forwarding,
    ) -> Result<NeighbourMessage, Failure> {
        let index = self.index(plan, &entry.dev)?;
        let request = self.handle.neighbours().add_bridge(index, &entry.mac.0);
        let mut request = match entry.to {
            ForwardingTarget::Remote(remote) => {
                request.destination(remote).flags(NeighbourFlags::Own)
            }
            ForwardingTarget::Port => request
                .flags(NeighbourFlags::Controller)
                .state(NeighbourState::Noarp),
            ForwardingTarget::StickyPort => request
                .flags(NeighbourFlags::Controller | NeighbourFlags::Sticky)
                .state(NeighbourState::Noarp),
            ForwardingTarget::Node => request.flags(NeighbourFlags::Controller),
        };
        Ok(request.message_mut().clone())
    }

    /// Removes a route that the kernel created together with an address.
    async fn remove_kernel_route(&self, to: IpNetwork, index: u32) -> Result<(), rtnetlink::Error> {
        let scope = if to.is_ipv4() {
            RouteScope::Link
        } else {
            RouteScope::Universe
        };
        let message = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(to.network(), to.prefix())
            .map_err(|error| rtnetlink::Error::InvalidNla(error.to_string()))?
            .output_interface(index)
            .protocol(RouteProtocol::Kernel)
            .scope(scope)
            .build();
        self.handle.route().del(message).execute().await
    }

    /// Returns the index of a route's interface, or `None` for a route without an interface.
    pub(super) fn output_interface(
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
    pub(crate) async fn add_routing_rules(&self, plan: &Namespace) -> Result<(), Failure> {
        for rule in &plan.routing_rules {
            let result = self.add_routing_rule(rule).await;
            let step = format_args!("add the routing rule `{rule}`");
            result.in_step_of(&plan.name, step, IP_RULE, rule)?;
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

pub(super) fn route_message(
    route: &Route,
    index: Option<u32>,
) -> Result<RouteMessage, Box<dyn Error>> {
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
    if route.onlink {
        builder = builder.onlink();
    }
    finish_route(builder, route.table, route.metric, route.source)
}

/// Encodes a route with several next hops. `indexes` are those of their interfaces.
fn multipath_message(
    route: &MultipathRoute,
    indexes: &[u32],
) -> Result<RouteMessage, Box<dyn Error>> {
    let mut hops = Vec::with_capacity(indexes.len());
    for (next_hop, index) in route.next_hops.iter().zip(indexes) {
        let mut hop = if route.to.is_ipv4() {
            RouteNextHopBuilder::new_ipv4()
        } else {
            RouteNextHopBuilder::new_ipv6()
        };
        // The kernel's weight starts at 0.
        let weight = u8::try_from(next_hop.weight.saturating_sub(1)).unwrap_or(u8::MAX);
        hop = hop.interface(*index).weight(weight);
        if let Some(via) = next_hop.via {
            hop = hop.via(via)?;
        }
        if next_hop.onlink {
            hop = hop.onlink();
        }
        hops.push(hop.build());
    }
    let builder = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(route.to.network(), route.to.prefix())?
        .multipath(hops);
    finish_route(builder, route.table, route.metric, route.source)
}

fn finish_route(
    mut builder: RouteMessageBuilder<IpAddr>,
    table: Option<u32>,
    metric: Option<u32>,
    source: Option<IpAddr>,
) -> Result<RouteMessage, Box<dyn Error>> {
    if let Some(table) = table {
        builder = builder.table_id(table);
    }
    if let Some(metric) = metric {
        builder = builder.priority(metric);
    }
    if let Some(source) = source {
        builder = builder.pref_source(source)?;
    }
    Ok(builder.build())
}
