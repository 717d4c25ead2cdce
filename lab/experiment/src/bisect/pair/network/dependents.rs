//! Joins differences of the network configuration that depend on each other.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::MergedNetwork;
use crate::bisect::merge::{Merged, Slot, SlotOrigin};
use crate::bisect::pair::graph::DifferenceGraph;
use svclab_model::plan::{LinkKind, Route, forwarding_switch};

/// Tests whether only the good side, or only the bad side, has an object.
const SIDES: [fn(SlotOrigin) -> bool; 2] = [SlotOrigin::is_only_good, SlotOrigin::is_only_bad];

impl MergedNetwork {
    /// Joins the differences that depend on each other.
    pub(super) fn join_dependent(&self, graph: &mut DifferenceGraph) {
        for link in &self.links.slots {
            if let Some(difference) = link.origin.difference() {
                let dependents = self.differences_on(&link.item.name);
                for dependent in dependents {
                    graph.join(difference, dependent);
                }
            }
        }
        for route in &self.routes.slots {
            let difference = route.origin.difference();
            for gate in [
                route.item.via.filter(|_| !route.item.onlink),
                route.item.source,
            ]
            .into_iter()
            .flatten()
            {
                let Some(providers) = self.providers(&route.item, gate) else {
                    continue;
                };
                // A route of both sides may use one address in good and another in bad.
                graph.join_all(difference.into_iter().chain(providers));
            }
        }
        for (link, addresses) in &self.addresses {
            self.join_lost_with_last_address(link, addresses, graph);
        }
        self.join_forwarding(graph);
    }

    /// Joins the forwarding of interfaces with the switch that sets it, if both have the same values:
    /// the kernel copies the value of the switch.
    fn join_forwarding(&self, graph: &mut DifferenceGraph) {
        let slots = &self.sysctls.slots;
        let value = |key: &str, side: fn(SlotOrigin) -> bool| {
            let mut changed = slots.iter().filter(|slot| side(slot.origin));
            let slot = changed.find(|slot| slot.item.key == key)?;
            Some((&slot.item.value, slot.origin.difference()?))
        };
        for slot in slots.iter().filter(|slot| slot.origin.is_only_bad()) {
            let key = &slot.item.key;
            let Some(switch) = forwarding_switch(key) else {
                continue;
            };
            let [good, bad] = SIDES.map(|side| value(key, side).zip(value(switch, side)));
            if let (Some((own_good, of_good)), Some((own_bad, of_bad))) = (good, bad)
                && own_good.0 == of_good.0
                && own_bad.0 == of_bad.0
            {
                graph.join(own_bad.1, of_bad.1);
            }
        }
    }

    /// Joins the IPv4 addresses of an interface that has none on the other side with its routes and
    /// neighbours that the other side lacks, too. The kernel removes them with the last address
    /// (Linux v6.12, `net/ipv4/fib_frontend.c`, `fib_inetaddr_event` and `fib_disable_ip`).
    fn join_lost_with_last_address(
        &self,
        link: &str,
        addresses: &Merged<IpNetwork>,
        graph: &mut DifferenceGraph,
    ) {
        let addresses = addresses.slots.iter().filter(|slot| slot.item.is_ipv4());
        let routes = self.routes.slots.iter();
        let routes = routes.filter(|slot| slot.item.to.is_ipv4() && slot.item.dev == link);
        let neighbours = self.neighbours.slots.iter();
        let neighbours =
            neighbours.filter(|slot| slot.item.address.is_ipv4() && slot.item.dev == link);
        let origins = routes
            .map(|slot| slot.origin)
            .chain(neighbours.map(|slot| slot.origin));
        for side in SIDES {
            let mut own = addresses.clone().map(|slot| slot.origin).peekable();
            let mut lost = origins.clone().filter(|origin| side(*origin)).peekable();
            if own.peek().is_none() || lost.peek().is_none() || !own.clone().all(side) {
                continue;
            }
            let lost = own.chain(lost);
            graph.join_all(lost.filter_map(SlotOrigin::difference));
        }
    }

    /// Returns all differences of objects that belong to an interface.
    fn differences_on(&self, link: &str) -> Vec<usize> {
        let mut differences = Vec::new();
        let mut take = |from: SlotOrigin| differences.extend(from.difference());
        for (name, addresses) in &self.addresses {
            if name == link {
                addresses.slots.iter().for_each(|slot| take(slot.origin));
            }
        }
        let is_on = |dev: &str| dev == link;
        self.ports
            .slots
            .iter()
            .filter(|slot| is_on(&slot.item.0))
            .for_each(|slot| take(slot.origin));
        self.routes
            .slots
            .iter()
            .filter(|slot| is_on(&slot.item.dev))
            .for_each(|slot| take(slot.origin));
        self.multipath_routes
            .slots
            .iter()
            .filter(|slot| slot.item.next_hops.iter().any(|hop| is_on(&hop.dev)))
            .for_each(|slot| take(slot.origin));
        self.removed_routes
            .slots
            .iter()
            .filter(|slot| is_on(&slot.item.1))
            .for_each(|slot| take(slot.origin));
        self.neighbours
            .slots
            .iter()
            .filter(|slot| is_on(&slot.item.dev))
            .for_each(|slot| take(slot.origin));
        self.forwarding
            .slots
            .iter()
            .filter(|slot| is_on(&slot.item.dev))
            .for_each(|slot| take(slot.origin));
        self.sysctls
            .slots
            .iter()
            .filter(|slot| slot.item.link.as_deref() == Some(link))
            .for_each(|slot| take(slot.origin));
        for Slot { item, origin: from } in &self.links.slots {
            let over = matches!(&item.kind, LinkKind::Vxlan { dev, .. } if dev == link);
            if over || item.bridge.as_deref() == Some(link) {
                take(*from);
            }
        }
        differences
    }

    /// Returns the differences that provide the address that a route needs as next hop or source.
    /// Returns `None` if an object of both sides provides it.
    fn providers(&self, route: &Route, needed: IpAddr) -> Option<Vec<usize>> {
        let mut differences = Vec::new();
        let is_source = route.source == Some(needed);
        for (link, addresses) in &self.addresses {
            for slot in &addresses.slots {
                let holds = if is_source {
                    slot.item.ip() == needed
                } else {
                    *link == route.dev && slot.item.contains(needed)
                };
                if holds {
                    differences.push(slot.origin.difference()?);
                }
            }
        }
        for slot in self.routes.slots.iter().filter(|_| !is_source) {
            let on_link = slot.item.via.is_none()
                && slot.item.dev == route.dev
                && slot.item.to.contains(needed);
            if on_link && slot.item.to != route.to {
                differences.push(slot.origin.difference()?);
            }
        }
        Some(differences)
    }
}
