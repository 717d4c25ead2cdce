//! Finds the routes at fault: to the destination, and back to the source.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::LastHop;
use crate::conclusion::drop_kind::DropKind;
use crate::conclusion::fault::Fault;
use crate::conclusion::icmp_meaning::IcmpMeaning;
use crate::state::LabState;
use crate::state::route_lookup::{RouteDecision, RouteLookup, RouteQuery};
use svclab_journey::journey::ingress_interface;
use svclab_model::plan::Probe;

impl LastHop<'_> {
    /// Explains a packet of this namespace whose destination rules have rewritten. The kernel then
    /// looks the route up again, and reports a failure as a drop by netfilter (Linux v6.12,
    /// `net/ipv4/netfilter.c`, `ip_route_me_harder`). `None` for other packets.
    pub(super) fn refused_reroute(self) -> Option<(DropKind, Option<Fault>)> {
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

    /// Explains a packet that IPVS could not send, because the namespace has no route to the real
    /// server (Linux v6.12, `net/netfilter/ipvs/ip_vs_xmit.c`, `__ip_vs_get_out_rt`). `None` for other
    /// packets.
    pub(super) fn unroutable_real_server(self) -> Option<(DropKind, Option<Fault>)> {
        let is_chosen = self.hop.before.destination != self.hop.after.destination;
        let lookup = self.destination_lookup();
        (is_chosen && lookup.is_unroutable()).then(|| explain_route(lookup, DropKind::NoRoute))
    }

    /// Whether packets from loopback addresses may leave through an interface (Linux v6.12,
    /// `net/ipv4/route.c`, `__mkroute_output`).
    pub(super) fn routes_loopback(self, interface: &str) -> bool {
        let names = ["all".to_owned(), interface.replace('.', "/")];
        names.iter().any(|name| {
            let key = format!("net.ipv4.conf.{name}.route_localnet");
            self.own.sysctls.get(&key).is_some_and(|value| value == "1")
        })
    }

    /// Returns the route to the source. The kernel looks the source up as a packet of its own, by
    /// default without mark (Linux v6.12, `net/ipv4/fib_frontend.c`, `__fib_validate_source`).
    pub(in crate::conclusion) fn source_route(self) -> Fault {
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
    pub(super) fn route_input(self) -> (DropKind, Option<Fault>) {
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
    pub(super) fn route_input_v6(self) -> (DropKind, Option<Fault>) {
        if self.has_ipv6_loopback() {
            return (DropKind::Ipv6Loopback, None);
        }
        explain_route(self.destination_lookup(), DropKind::NoRoute)
    }

    /// Whether the packet is from or to `::1`.
    pub(super) fn has_ipv6_loopback(self) -> bool {
        [self.source(), self.destination()].contains(&IpAddr::V6(Ipv6Addr::LOCALHOST))
    }

    /// Returns the object for which the kernel rejected the packet with an ICMP error.
    pub(in crate::conclusion) fn rejection(self, meaning: IcmpMeaning) -> Option<Fault> {
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
pub(in crate::conclusion) fn unsent_route(lab: &LabState<'_>, probe: &Probe) -> Option<Fault> {
    let namespace = lab.observed(&probe.namespace)?;
    Some(Fault::Route {
        lookup: RouteLookup::new(&namespace.network, RouteQuery::of_probe(probe)),
    })
}
