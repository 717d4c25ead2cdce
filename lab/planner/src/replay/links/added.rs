//! Adds dumped interfaces that the plan does not have. An interface with an unknown peer becomes a
//! veth pair to a namespace of its own.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::IpNetwork;

use super::matching::{TUNNEL_KINDS, hosts_behind, link_kind};
use super::{LinkReplacer, is_down, lacks_carrier, mtu, plan_addresses};
use crate::replay::report::{count_noun, list_names};
use svclab_model::plan::{Link, LinkKind, Mac, Namespace, Neighbour, PortSettings, Route, Sysctl};
use svclab_ruleset::link::Link as Dumped;
use svclab_ruleset::link::kind::LinkDetails;

/// Prefix of namespaces behind interfaces with an unknown peer.
const UNKNOWN_PEER_PREFIX: &str = "beyond";

/// Whether a namespace stands for the unknown other end of a dumped veth interface.
#[must_use]
pub fn is_unknown_peer(namespace: &str) -> bool {
    let rest = namespace.strip_prefix(UNKNOWN_PEER_PREFIX);
    rest.is_some_and(|rest| rest.starts_with('/'))
}

/// Interface in such a namespace.
const PEER_INTERFACE: &str = "eth0";

/// Gateway address in such a namespace.
const PEER_GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// Devices that kernel modules create in each namespace (Linux v6.12, `net/ipv4/ip_tunnel.c`,
/// `ip_tunnel_init_net`, and related functions).
const FALLBACK_DEVICES: [&str; 10] = [
    "tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6tnl0", "ip6gre0",
    "teql0",
];

impl LinkReplacer<'_> {
    /// Adds interfaces that the plan does not have.
    pub(super) fn add_unmatched(&mut self, pairs: &BTreeMap<String, String>) {
        let mut down = 0_usize;
        let mut ports: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, dumped) in self.links {
            if name == "lo" {
                self.add_loopback_addresses(dumped);
                continue;
            }
            if pairs.contains_key(name) {
                continue;
            }
            let own_addresses = plan_addresses(dumped);
            let kind_of = link_kind(self.dump, name);
            let is_unused = own_addresses.is_empty() && hosts_behind(self.dump, name).is_empty();
            if is_unused
                && !dumped.attributes.has("master")
                && (is_down(dumped) || FALLBACK_DEVICES.contains(&name.as_str()))
            {
                down += 1;
                continue;
            }
            if let Some(bridge) = dumped.attributes.get("master") {
                let ports = ports.entry(bridge.to_owned()).or_default();
                ports.push(name.clone());
                continue;
            }
            match kind_of.as_deref() {
                Some("dummy") => self.add_link(name, dumped, LinkKind::Dummy),
                Some("bridge") => self.add_link(name, dumped, LinkKind::Bridge),
                Some("vxlan") => self.add_tunnel(name, dumped),
                Some(tunnel) if TUNNEL_KINDS.contains(&tunnel) => {
                    self.account.add_omitted(
                        format!("tunnel {name}, {tunnel}"),
                        "svclab builds a veth pair to an unknown peer instead",
                        "packets through the tunnel reach no other node",
                    );
                    self.add_veth_to_unknown_peer(name, dumped);
                }
                other_kind => {
                    let noun = match other_kind {
                        None => "hardware",
                        Some("veth") => "veth of a pod without an object",
                        Some(other) => other,
                    };
                    let description = format!("{name}, {noun}: a veth pair to an unknown peer");
                    self.account.add_simulated(description);
                    self.add_veth_to_unknown_peer(name, dumped);
                }
            }
        }
        for (bridge, ports) in ports {
            self.account.add_omitted(
                format!(
                    "{} of {bridge}: {}",
                    count_noun(ports.len(), "port", "ports"),
                    list_names(&ports)
                ),
                "the pods behind them are unknown; pods with objects have separate ports",
                "rules with such a port match no packets",
            );
        }
        if down > 0 {
            self.account.add_omitted(
                count_noun(down, "interface", "interfaces"),
                "down or created by a kernel module, without an address",
                "",
            );
        }
    }

    fn add_loopback_addresses(&mut self, lo: &Dumped) {
        let is_default = |address: &IpNetwork| {
            let first = [
                IpAddr::from([127, 0, 0, 1]),
                IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
            ];
            first.contains(&address.ip())
        };
        let additional = plan_addresses(lo)
            .into_iter()
            .filter(|address| !is_default(address));
        let more = additional.collect();
        if let Some(namespace) = self.namespace() {
            namespace.loopback = more;
        }
    }

    fn add_link(&mut self, name: &str, dumped: &Dumped, kind: LinkKind) {
        let link = Link {
            name: name.to_owned(),
            kind,
            mac: Mac::from_names(self.node, name),
            addresses: plan_addresses(dumped),
            bridge: None,
            port: PortSettings::default(),
            down: is_down(dumped),
            mtu: mtu(dumped),
        };
        if let Some(namespace) = self.namespace() {
            namespace.links.push(link);
        }
    }

    fn add_tunnel(&mut self, name: &str, dumped: &Dumped) {
        let details = self.dump.kinds.as_ref().and_then(|kinds| kinds.get(name));
        let tunnel_kind = details.and_then(|kind: &LinkDetails| {
            let dev = kind.detail("dev")?;
            let node_namespace = self.plan.namespace(self.node)?;
            node_namespace.links.iter().find(|link| link.name == dev)?;
            Some(LinkKind::Vxlan {
                vni: kind.detail("id")?.parse().ok()?,
                port: kind.detail("dstport")?.parse().ok()?,
                dev: dev.to_owned(),
                local: kind.detail("local")?.parse().ok()?,
            })
        });
        match tunnel_kind {
            Some(kind) => {
                self.account
                    .add_simulated(format!("no peers behind {name}: no object describes them"));
                self.add_link(name, dumped, kind);
            }
            None => self.account.add_omitted(
                format!("tunnel {name}"),
                "`ip -d link`, which prints its parameters, was not dumped",
                "packets through the tunnel are not sent",
            ),
        }
    }

    /// Adds a veth pair to a namespace of its own, which has the addresses that routes have behind
    /// the interface.
    fn add_veth_to_unknown_peer(&mut self, name: &str, dumped: &Dumped) {
        let peer_namespace = format!("{UNKNOWN_PEER_PREFIX}/{}/{name}", self.node);
        let near_kind = LinkKind::Veth {
            namespace: peer_namespace.clone(),
            peer: PEER_INTERFACE.to_owned(),
        };
        self.add_link(name, dumped, near_kind);
        let host_addresses = hosts_behind(self.dump, name);
        let (own_mac, far_mac) = (
            Mac::from_names(self.node, name),
            Mac::from_names(&peer_namespace, PEER_INTERFACE),
        );
        if let Some(namespace) = self.namespace() {
            let neighbours = host_addresses.iter().map(|address| Neighbour {
                address: *address,
                mac: far_mac,
                dev: name.to_owned(),
            });
            namespace.neighbours.extend(neighbours);
        }
        let far_kind = LinkKind::Veth {
            namespace: self.node.to_owned(),
            peer: name.to_owned(),
        };
        let link = Link {
            name: PEER_INTERFACE.to_owned(),
            kind: far_kind,
            mac: far_mac,
            addresses: host_addresses
                .iter()
                .map(|ip| IpNetwork::from(*ip))
                .collect(),
            bridge: None,
            port: PortSettings::default(),
            down: lacks_carrier(dumped),
            mtu: mtu(dumped),
        };
        let route = |to: IpNetwork, via: Option<IpAddr>| Route {
            via,
            ..Route::new(to, PEER_INTERFACE)
        };
        let setting = |key: &str, value: &str| Sysctl {
            key: key.to_owned(),
            value: value.to_owned(),
            link: None,
            optional: true,
        };
        let default_network = IpNetwork::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let routes = default_network.map(|all| {
            let router = IpAddr::V4(PEER_GATEWAY);
            vec![
                route(IpNetwork::from(router), None),
                route(all, Some(router)),
            ]
        });
        self.plan.namespaces.push(Namespace {
            name: peer_namespace,
            links: vec![link],
            routes: routes.unwrap_or_default(),
            neighbours: vec![Neighbour {
                address: PEER_GATEWAY.into(),
                mac: own_mac,
                dev: PEER_INTERFACE.to_owned(),
            }],
            sysctls: vec![
                setting("net.ipv4.ip_forward", "0"),
                setting("net.ipv4.conf.all.rp_filter", "0"),
                setting("net.ipv4.conf.default.rp_filter", "0"),
            ],
            ..Namespace::default()
        });
    }
}
