//! Merges interfaces, addresses, routes, neighbours and sysctls of a namespace, and joins those
//! that depend on each other.

use std::fmt::Write as _;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::atoms::{Atoms, Owned, Where};
use super::difference::Kind;
use crate::bisect::merge::{self, Merged, Slot};
use svclab_model::plan::{
    Forwarding, Link, LinkKind, Namespace, Neighbour, PolicyRule, Route, RouteKind, Sysctl,
};

/// Merged network configuration of a namespace.
#[derive(Debug, Clone)]
pub struct Ground {
    /// Interfaces without their addresses.
    pub links: Merged<Link>,
    /// Addresses by interface name.
    addresses: Vec<(String, Merged<IpNetwork>)>,
    routes: Merged<Route>,
    policy: Merged<PolicyRule>,
    neighbours: Merged<Neighbour>,
    forwarding: Merged<Forwarding>,
    sysctls: Merged<Sysctl>,
}

impl Ground {
    /// Merges the network configuration of two namespaces.
    pub fn of(good: &Namespace, bad: &Namespace, atoms: &mut Atoms) -> Self {
        let namespace = good.name.as_str();
        let place = |of, place: &str| Where {
            namespace,
            of,
            place: place.to_owned(),
        };
        let bare = |all: &[Link]| -> Vec<Link> {
            let bare = all.iter().map(|link| Link {
                addresses: Vec::new(),
                ..link.clone()
            });
            bare.collect()
        };
        let (one, other) = (bare(&good.links), bare(&bad.links));
        let at = place(Kind::Link, "interfaces");
        let of = |link: &Link| (told(link), Owned::Link(link.name.clone()));
        let links = atoms.keyed(&at, &one, &other, |link| link.name.clone(), of);
        let addresses = addresses(good, bad, atoms);
        let at = place(Kind::Route, "routes");
        let of = |route: &Route| (by_route(route), Owned::Nobody);
        let routes = atoms.keyed(&at, &good.routes, &bad.routes, by_place, of);
        let at = place(Kind::RoutingRule, "routing rules");
        let of = |rule: &PolicyRule| (rule.to_string(), Owned::Nobody);
        let name = |rule: &PolicyRule| (rule.v6, rule.to_string());
        let policy = atoms.keyed(&at, &good.policy, &bad.policy, name, of);
        let at = place(Kind::Neighbour, "neighbours");
        let of = |one: &Neighbour| {
            let text = format!("{} lladdr {} dev {}", one.address, one.mac, one.dev);
            (text, Owned::Nobody)
        };
        let name = |one: &Neighbour| (one.address, one.dev.clone());
        let neighbours = atoms.keyed(&at, &good.neighbours, &bad.neighbours, name, of);
        let at = place(Kind::Forwarding, "forwarding entries");
        let of = |one: &Forwarding| {
            let text = format!("{} dev {} dst {}", one.mac, one.dev, one.to);
            (text, Owned::Nobody)
        };
        let name = |one: &Forwarding| (one.mac, one.dev.clone());
        let forwarding = atoms.keyed(&at, &good.forwarding, &bad.forwarding, name, of);
        let at = place(Kind::Sysctl, "sysctl");
        let of = |one: &Sysctl| (format!("{} = {}", one.key, one.value), Owned::Nobody);
        let name = |one: &Sysctl| one.key.clone();
        let sysctls = atoms.keyed(&at, &good.sysctls, &bad.sysctls, name, of);
        let ground = Self {
            links,
            addresses,
            routes,
            policy,
            neighbours,
            forwarding,
            sysctls,
        };
        ground.tie(atoms);
        ground
    }

    /// Writes the network configuration with the differences that `with` selects into `to`.
    pub fn with(&self, with: &impl Fn(usize) -> bool, to: &mut Namespace) {
        let links = self.links.with(with).map(|link| {
            let own = self.addresses.iter().find(|(name, _)| *name == link.name);
            let own = own.into_iter().flat_map(|(_, all)| all.with(with));
            Link {
                addresses: own.copied().collect(),
                ..link.clone()
            }
        });
        to.links = links.collect();
        to.routes = self.routes.with(with).cloned().collect();
        to.policy = self.policy.with(with).cloned().collect();
        to.neighbours = self.neighbours.with(with).cloned().collect();
        to.forwarding = self.forwarding.with(with).cloned().collect();
        to.sysctls = self.sysctls.with(with).cloned().collect();
    }

    fn tie(&self, atoms: &mut Atoms) {
        for link in &self.links.slots {
            if let Some(difference) = link.from.difference() {
                let all = self.on(&link.item.name);
                for one in all {
                    atoms.tie(difference, one);
                }
            }
        }
        for route in &self.routes.slots {
            let own = route.from.difference();
            for gate in [
                route.item.via.filter(|_| !route.item.onlink),
                route.item.source,
            ]
            .into_iter()
            .flatten()
            {
                let Some(holding) = self.holding(&route.item, gate) else {
                    continue;
                };
                // A route of both sides may use one address in good and another in bad.
                atoms.tie_all(own.into_iter().chain(holding));
            }
        }
    }

    /// Returns all differences of objects that belong to an interface.
    fn on(&self, link: &str) -> Vec<usize> {
        let mut all = Vec::new();
        let mut take = |from: merge::From| all.extend(from.difference());
        for (name, addresses) in &self.addresses {
            if name == link {
                addresses.slots.iter().for_each(|slot| take(slot.from));
            }
        }
        let of = |dev: &str| dev == link;
        self.routes
            .slots
            .iter()
            .filter(|slot| of(&slot.item.dev))
            .for_each(|slot| take(slot.from));
        self.neighbours
            .slots
            .iter()
            .filter(|slot| of(&slot.item.dev))
            .for_each(|slot| take(slot.from));
        self.forwarding
            .slots
            .iter()
            .filter(|slot| of(&slot.item.dev))
            .for_each(|slot| take(slot.from));
        self.sysctls
            .slots
            .iter()
            .filter(|slot| slot.item.link.as_deref() == Some(link))
            .for_each(|slot| take(slot.from));
        for Slot { item, from } in &self.links.slots {
            let over = matches!(&item.kind, LinkKind::Vxlan { dev, .. } if dev == link);
            if over || item.bridge.as_deref() == Some(link) {
                take(*from);
            }
        }
        all
    }

    /// Returns the differences that provide the address that a route needs as next hop or source.
    /// Returns `None` if an object of both sides provides it.
    fn holding(&self, route: &Route, needed: IpAddr) -> Option<Vec<usize>> {
        let mut all = Vec::new();
        let is_source = route.source == Some(needed);
        for (link, addresses) in &self.addresses {
            for slot in &addresses.slots {
                let holds = if is_source {
                    slot.item.ip() == needed
                } else {
                    *link == route.dev && slot.item.contains(needed)
                };
                if holds {
                    all.push(slot.from.difference()?);
                }
            }
        }
        for slot in self.routes.slots.iter().filter(|_| !is_source) {
            let on_link = slot.item.via.is_none()
                && slot.item.dev == route.dev
                && slot.item.to.contains(needed);
            if on_link && slot.item.to != route.to {
                all.push(slot.from.difference()?);
            }
        }
        Some(all)
    }
}

/// Merges the addresses of each interface. Their order matters.
fn addresses(
    good: &Namespace,
    bad: &Namespace,
    atoms: &mut Atoms,
) -> Vec<(String, Merged<IpNetwork>)> {
    let mut all: Vec<(String, Merged<IpNetwork>)> = Vec::new();
    for link in good.links.iter().chain(&bad.links) {
        if all.iter().any(|(name, _)| *name == link.name) {
            continue;
        }
        let of = |side: &Namespace| -> Vec<IpNetwork> {
            let found = side.links.iter().find(|own| own.name == link.name);
            found.map_or_else(Vec::new, |own| own.addresses.clone())
        };
        let (one, other) = (of(good), of(bad));
        let same = |address: &IpNetwork| *address;
        let merged = merge::ordered(&one, &other, same, same, atoms.next());
        let place = Where {
            namespace: &good.name,
            of: Kind::Address,
            place: format!("interface {}", link.name),
        };
        atoms.add(&place, &merged, &one, &other, |address| {
            (address.to_string(), Owned::Link(link.name.clone()))
        });
        all.push((link.name.clone(), merged));
    }
    all
}

/// Joins the differences of both ends of each veth pair.
pub fn tie_cables(grounds: &[(&str, &Ground)], atoms: &mut Atoms) {
    let mut tied = Vec::new();
    for (name, ground) in grounds {
        for slot in &ground.links.slots {
            let (Some(own), LinkKind::Veth { namespace, peer }) =
                (slot.from.difference(), &slot.item.kind)
            else {
                continue;
            };
            let there = grounds.iter().filter(|(other, _)| other == namespace);
            let ends = there.flat_map(|(_, ground)| &ground.links.slots);
            let ends = ends.filter(|end| end.item.name == *peer && end.item.leads_to(name));
            tied.extend(ends.filter_map(|end| Some((own, end.from.difference()?))));
        }
    }
    for (one, other) in tied {
        atoms.tie(one, other);
    }
}

/// Describes an interface in the style of `ip link`.
fn told(link: &Link) -> String {
    let kind = match &link.kind {
        LinkKind::Veth { namespace, peer } => format!("to {namespace}/{peer}"),
        LinkKind::Bridge => "bridge".to_owned(),
        LinkKind::Dummy => "dummy".to_owned(),
        LinkKind::Vxlan {
            vni,
            port,
            dev,
            local,
        } => format!("vxlan id {vni} dev {dev} local {local} dstport {port}"),
    };
    let mut text = format!("{} {kind} address {}", link.name, link.mac);
    if let Some(mtu) = link.mtu {
        let _ = write!(text, " mtu {mtu}");
    }
    if let Some(bridge) = &link.bridge {
        let _ = write!(text, " master {bridge}");
    }
    if link.hairpin {
        text.push_str(" hairpin on");
    }
    text.push_str(if link.down { " down" } else { " up" });
    text
}

/// Returns the key of a route in the kernel's routing tables.
fn by_place(route: &Route) -> (IpNetwork, Option<u32>, Option<u32>) {
    (route.to, route.table, route.metric)
}

/// Renders a route in the format of `ip route`.
fn by_route(route: &Route) -> String {
    let mut text = match route.kind {
        RouteKind::Unicast => String::new(),
        kind => format!("{} ", kind.word()),
    };
    text += &match route.to.prefix() {
        0 => "default".to_owned(),
        _ => route.to.to_string(),
    };
    let told = |word: &str, value: Option<String>| {
        value.map_or_else(String::new, |value| format!(" {word} {value}"))
    };
    text += &told("via", route.via.map(|via| via.to_string()));
    text += &told("dev", Some(route.dev.clone()).filter(|dev| !dev.is_empty()));
    text += &told("table", route.table.map(|table| table.to_string()));
    text += &told("src", route.source.map(|source| source.to_string()));
    text += &told("metric", route.metric.map(|metric| metric.to_string()));
    if route.onlink {
        text += " onlink";
    }
    text
}
