//! Merges multipath routes and routes that the kernel added and a program removed.

use ipnetwork::IpNetwork;

use super::difference::Kind;
use super::graph::{DifferenceGraph, OwnerKey, Scope};
use crate::bisect::merge::{Merged, SlotOrigin};
use svclab_model::plan::{MultipathRoute, Namespace};

/// Key of a route in the kernel's routing tables: network, table and metric.
pub type RouteKey = (IpNetwork, Option<u32>, Option<u32>);

/// Merged multipath routes and removed routes of a namespace.
#[derive(Debug, Clone)]
pub struct MergedSpecialRoutes {
    multipath: Merged<MultipathRoute>,
    /// Networks of interface addresses, with their interfaces.
    removed: Merged<(IpNetwork, String)>,
}

impl MergedSpecialRoutes {
    /// Merges the routes of two namespaces.
    pub fn new(good: &Namespace, bad: &Namespace, graph: &mut DifferenceGraph) -> Self {
        let scope = Scope {
            namespace: &good.name,
            kind: Kind::Route,
            location: "routes".to_owned(),
        };
        let multipath = graph.add_keyed(
            &scope,
            &good.multipath_routes,
            &bad.multipath_routes,
            multipath_key,
            |route| (route.to_string(), OwnerKey::Unknown),
        );
        let removed = graph.add_keyed(
            &scope,
            &good.removed_routes,
            &bad.removed_routes,
            Clone::clone,
            |(to, dev)| {
                let text = format!("removed: {to} dev {dev} proto kernel scope link");
                (text, OwnerKey::Link(dev.clone()))
            },
        );
        Self { multipath, removed }
    }

    /// Writes the routes with the differences that `with` selects into `to`. A route is removed
    /// only with the address whose route it is.
    pub fn write_to(&self, with: &impl Fn(usize) -> bool, to: &mut Namespace) {
        to.multipath_routes = self.multipath.selected(with).cloned().collect();
        let removed = self.removed.selected(with);
        let links = &to.links;
        let has_address = |(network, dev): &&(IpNetwork, String)| {
            let mut links = links.iter().filter(|link| link.name == *dev && !link.down);
            links.any(|link| {
                let mut addresses = link.addresses.iter();
                addresses.any(|own| {
                    own.network() == network.network() && own.prefix() == network.prefix()
                })
            })
        };
        to.removed_routes = removed.filter(has_address).cloned().collect();
    }

    /// Returns the differences of routes through an interface.
    pub fn differences_on(&self, link: &str) -> Vec<usize> {
        let multipath = self.multipath.slots.iter().filter(|slot| {
            let mut hops = slot.item.next_hops.iter();
            hops.any(|hop| hop.dev == link)
        });
        let removed = self.removed.slots.iter();
        let removed = removed.filter(|slot| slot.item.1 == link);
        let origins = multipath.map(|slot| slot.origin);
        let origins = origins.chain(removed.map(|slot| slot.origin));
        origins.filter_map(SlotOrigin::difference).collect()
    }

    /// Returns the difference of each multipath route that only one side has, with the key of the
    /// route.
    pub fn differing_keys(&self) -> impl Iterator<Item = (usize, RouteKey)> + '_ {
        let slots = self.multipath.slots.iter();
        slots.filter_map(|slot| Some((slot.origin.difference()?, multipath_key(&slot.item))))
    }

    /// Returns the multipath routes, each with its difference; `None` for a route of both sides.
    pub fn multipath(&self) -> impl Iterator<Item = (Option<usize>, &MultipathRoute)> + '_ {
        let slots = self.multipath.slots.iter();
        slots.map(|slot| (slot.origin.difference(), &slot.item))
    }
}

fn multipath_key(route: &MultipathRoute) -> RouteKey {
    (route.to, route.table, route.metric)
}
