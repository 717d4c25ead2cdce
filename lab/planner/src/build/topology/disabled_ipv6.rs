//! Removes from interfaces without IPv6 what the kernel neither keeps nor accepts there: addresses,
//! neighbours and routes of IPv6 (Linux v6.12, `net/ipv6/addrconf.c`, `addrconf_disable_ipv6` and
//! `inet6_addr_add`; `net/ipv6/route.c`, `fib6_nh_init`). Interfaces whose MTU is too small for IPv6
//! also lose their IPv6 sysctls (`addrconf_notify`).

use std::collections::BTreeSet;

use ipnetwork::IpNetwork;

use svclab_model::plan::{IPV6_MIN_MTU, Namespace};

/// Removes IPv6 from the interfaces on which the sysctls of the namespace or the MTU disable it.
pub(crate) fn remove_disabled_ipv6(namespace: &mut Namespace) {
    let links = namespace.links.iter();
    let small = links.filter(|link| link.mtu.is_some_and(|mtu| mtu < IPV6_MIN_MTU));
    let small: BTreeSet<String> = small.map(|link| link.name.clone()).collect();
    namespace.sysctls.retain(|sysctl| {
        let is_small = sysctl
            .link
            .as_ref()
            .is_some_and(|link| small.contains(link));
        !(is_small && sysctl.key.starts_with("net.ipv6."))
    });
    let disabled: BTreeSet<String> = namespace
        .sysctls
        .iter()
        .filter(|sysctl| sysctl.key.ends_with(".disable_ipv6") && sysctl.value != "0")
        .filter_map(|sysctl| sysctl.link.clone())
        .chain(small)
        .collect();
    let is_disabled = |dev: &str| disabled.contains(dev);
    for link in &mut namespace.links {
        if is_disabled(&link.name) {
            link.addresses.retain(IpNetwork::is_ipv4);
        }
    }
    namespace
        .neighbours
        .retain(|neighbour| neighbour.address.is_ipv4() || !is_disabled(&neighbour.dev));
    namespace
        .routes
        .retain(|route| route.to.is_ipv4() || !is_disabled(&route.dev));
    namespace
        .removed_routes
        .retain(|(to, dev)| to.is_ipv4() || !is_disabled(dev));
    for route in &mut namespace.multipath_routes {
        if route.to.is_ipv6() {
            route.next_hops.retain(|hop| !is_disabled(&hop.dev));
        }
    }
    namespace
        .multipath_routes
        .retain(|route| !route.next_hops.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::{Link, LinkKind, Mac, Neighbour, PortSettings, Route, Sysctl};

    #[test]
    fn remove_disabled_ipv6_keeps_ipv4_and_other_interfaces() {
        let mac = || "02:00:00:00:00:01".parse::<Mac>().unwrap();
        let link = |name: &str| Link {
            name: name.to_owned(),
            addresses: vec![
                "10.0.0.1/24".parse().unwrap(),
                "fd00::1/64".parse().unwrap(),
            ],
            kind: LinkKind::Bridge,
            mac: mac(),
            bridge: None,
            port: PortSettings::default(),
            down: false,
            mtu: None,
        };
        let sysctl = |key: &str, link: &str| Sysctl {
            key: key.to_owned(),
            value: "1".to_owned(),
            link: Some(link.to_owned()),
            optional: false,
        };
        let neighbour = |address: &str, dev: &str| Neighbour {
            address: address.parse().unwrap(),
            mac: mac(),
            dev: dev.to_owned(),
        };
        let route = |to: &str, dev: &str| Route::new(to.parse().unwrap(), dev);
        let small = Link {
            mtu: Some(1200),
            ..link("eth2")
        };
        let mut namespace = Namespace {
            links: vec![link("eth0"), link("eth1"), small],
            neighbours: vec![
                neighbour("10.0.0.2", "eth0"),
                neighbour("fd00::2", "eth0"),
                neighbour("fd00::2", "eth1"),
            ],
            routes: vec![route("10.1.0.0/16", "eth0"), route("fd01::/16", "eth0")],
            sysctls: vec![
                sysctl("net.ipv6.conf.eth0.disable_ipv6", "eth0"),
                sysctl("net.ipv6.conf.eth2.accept_ra", "eth2"),
                sysctl("net.ipv4.conf.eth2.rp_filter", "eth2"),
            ],
            ..Namespace::default()
        };
        remove_disabled_ipv6(&mut namespace);
        let addresses = namespace.links.iter().map(|link| link.addresses.len());
        assert_eq!(addresses.collect::<Vec<_>>(), [1, 2, 1]);
        assert_eq!(namespace.sysctls.len(), 2);
        assert_eq!(namespace.neighbours.len(), 2);
        assert_eq!(namespace.routes.len(), 1);
    }
}
