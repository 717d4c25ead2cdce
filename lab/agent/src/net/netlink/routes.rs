//! Adds routes, neighbours, forwarding entries and routing rules.

use std::error::Error;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::neighbour::{NeighbourFlags, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{
    RuleAction, RuleAttribute, RuleFlags, RuleMessage, RulePortRange,
};
use netlink_packet_route::{IpProtocol, RouteNetlinkMessage};
use rtnetlink::{RouteMessageBuilder, RouteNextHopBuilder};

use super::batch::{Batch, CREATE};
use super::{MTU_LOCK, NamespaceNetlink, step_failure};
use crate::runtime::failure;
use svclab_model::plan::{
    Forwarding, ForwardingTarget, Mac, MultipathRoute, Namespace, Route, RouteKind, RouteSettings,
    RoutingAction, RoutingRule,
};
use svclab_model::protocol::{Failure, IP_ROUTE, IP_RULE};

impl NamespaceNetlink {
    /// Adds neighbours, forwarding entries and routes.
    pub(crate) fn add_routes(&self, plan: &Namespace) -> Result<(), Failure> {
        let name = &plan.name;
        let mut batch = Batch::new(self);
        for neighbour in &plan.neighbours {
            let (address, dev) = (neighbour.address, &neighbour.dev);
            let mut request = self
                .handle
                .neighbours()
                .add(self.index(plan, dev)?, address)
                .link_layer_address(&neighbour.mac.0);
            let message = RouteNetlinkMessage::NewNeighbour(request.message_mut().clone());
            batch.push(message, NLM_F_CREATE | NLM_F_REPLACE, move |error| {
                let step = format_args!("add the neighbour {address} on {dev}");
                step_failure(name, step, &error)
            });
        }
        for entry in &plan.forwarding {
            // An entry of the address that is all zeros is added to those that the device has. Any
            // other entry replaces the one that the device has or has learned.
            let mode = if entry.mac == Mac::ZERO {
                NLM_F_APPEND
            } else {
                NLM_F_REPLACE
            };
            let message = RouteNetlinkMessage::NewNeighbour(self.forwarding_message(plan, entry)?);
            batch.push(message, NLM_F_CREATE | mode, move |error| {
                step_failure(
                    name,
                    format_args!("add the forwarding entry `{entry}`"),
                    &error,
                )
            });
        }
        for route in &plan.routes {
            let (to, dev) = (route.to, &route.dev);
            let index = self.output_interface(plan, route)?;
            let message = route_message(route, index).map_err(|error| {
                failure::bug(format!(
                    "the route to {to} in {name} mixes address families: {error}"
                ))
            })?;
            batch.push(
                RouteNetlinkMessage::NewRoute(message),
                CREATE,
                move |error| {
                    let step = format_args!("add the route to {to} through {dev}");
                    let failure = step_failure(name, step, &error);
                    failure::with_rejected_input(failure, name, IP_ROUTE, route.to_string())
                },
            );
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
            batch.push(
                RouteNetlinkMessage::NewRoute(message),
                CREATE,
                move |error| {
                    let step = format_args!("add the route `{route}`");
                    let failure = step_failure(name, step, &error);
                    failure::with_rejected_input(failure, name, IP_ROUTE, route.to_string())
                },
            );
        }
        // These routes are removed last, because next hops must be reachable while routes are
        // added.
        for (to, dev) in &plan.removed_routes {
            let fail = move |error: &dyn std::fmt::Display| {
                let reason =
                    format!("cannot remove the route to {to} through {dev} in {name}: {error}");
                failure::bug(reason)
            };
            let message =
                kernel_route(*to, self.index(plan, dev)?).map_err(|error| fail(&*error))?;
            batch.push(RouteNetlinkMessage::DelRoute(message), 0, move |error| {
                let step = format_args!("remove the route to {to} through {dev}");
                step_failure(name, step, &error)
            });
        }
        batch.send()
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

    /// Adds the routing rules, and deletes the kernel's own rules that the plan does not keep.
    pub(crate) fn add_routing_rules(&self, plan: &Namespace) -> Result<(), Failure> {
        let mut batch = Batch::new(self);
        for rule in &plan.routing_rules {
            let message = RouteNetlinkMessage::NewRule(self.routing_rule_message(rule));
            batch.push(message, CREATE, move |error| {
                let step = format_args!("add the routing rule `{rule}`");
                let failure = step_failure(&plan.name, step, &error);
                failure::with_rejected_input(failure, &plan.name, IP_RULE, rule.to_string())
            });
        }
        for rule in &plan.removed_routing_rules {
            let mut message = self.routing_rule_message(rule);
            let is_protocol =
                |attribute: &RuleAttribute| matches!(attribute, RuleAttribute::Protocol(_));
            message
                .attributes
                .retain(|attribute| !is_protocol(attribute));
            batch.push(RouteNetlinkMessage::DelRule(message), 0, move |error| {
                let step = format_args!("delete the routing rule `{rule}`");
                step_failure(&plan.name, step, &error)
            });
        }
        batch.send()
    }

    fn routing_rule_message(&self, rule: &RoutingRule) -> RuleMessage {
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
        if let Some(protocol) = rule.ip_protocol {
            let protocol = RuleAttribute::IpProtocol(IpProtocol::from(protocol));
            message.attributes.push(protocol);
        }
        if let Some((start, end)) = rule.source_ports {
            let range = RulePortRange { start, end };
            message
                .attributes
                .push(RuleAttribute::SourcePortRange(range));
        }
        if let Some((start, end)) = rule.destination_ports {
            let range = RulePortRange { start, end };
            message
                .attributes
                .push(RuleAttribute::DestinationPortRange(range));
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
            request.v6().message_mut().clone()
        } else {
            request.v4().message_mut().clone()
        }
    }
}

/// Returns the route that the kernel created together with an address.
fn kernel_route(to: IpNetwork, index: u32) -> Result<RouteMessage, Box<dyn Error>> {
    let scope = if to.is_ipv4() {
        RouteScope::Link
    } else {
        RouteScope::Universe
    };
    Ok(RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(to.network(), to.prefix())?
        .output_interface(index)
        .protocol(RouteProtocol::Kernel)
        .scope(scope)
        .build())
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
    finish_route(
        builder,
        route.table,
        route.metric,
        route.source,
        route.settings,
    )
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
    finish_route(
        builder,
        route.table,
        route.metric,
        route.source,
        route.settings,
    )
}

fn add_settings(message: &mut RouteMessage, settings: RouteSettings) {
    message.header.tos = settings.tos.unwrap_or(0);
    if let Some(from) = settings.from {
        message.header.source_prefix_length = from.prefix();
        let source = RouteAttribute::Source(from.network().into());
        message.attributes.push(source);
    }
    let lock = settings.mtu_locked.then_some(RouteMetric::Lock(MTU_LOCK));
    let metrics: Vec<RouteMetric> = lock
        .into_iter()
        .chain(settings.mtu.map(RouteMetric::Mtu))
        .chain(settings.advertised_mss.map(RouteMetric::Advmss))
        .chain(settings.hop_limit.map(RouteMetric::Hoplimit))
        .collect();
    if !metrics.is_empty() {
        message.attributes.push(RouteAttribute::Metrics(metrics));
    }
}

fn finish_route(
    mut builder: RouteMessageBuilder<IpAddr>,
    table: Option<u32>,
    metric: Option<u32>,
    source: Option<IpAddr>,
    settings: RouteSettings,
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
    let mut message = builder.build();
    add_settings(&mut message, settings);
    Ok(message)
}
