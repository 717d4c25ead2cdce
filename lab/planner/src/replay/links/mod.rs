//! Replays interfaces and addresses of a dumped node. Veth pairs of the plan to the fabric or to a
//! pod simulate the node's hardware and the veth pairs of its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::IpNetwork;

use super::link_layer::pods_behind_ports;
use super::naming::rename_link;
use super::report::{ReplayReport, count_noun, list_names};
use svclab_dump::NodeDump;
use svclab_model::plan::{
    Link, LinkKind, Mac, Namespace, Neighbour, Plan, PortSettings, Route, RouteKind, Sysctl,
};
use svclab_ruleset::link::kind::LinkDetails;
use svclab_ruleset::link::{Link as Dumped, Links};

/// Prefix of namespaces behind interfaces with an unknown peer.
const UNKNOWN_PEER_PREFIX: &str = "beyond";

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

/// Kinds of tunnels that a replay does not build.
const TUNNEL_KINDS: [&str; 14] = [
    "bareudp",
    "erspan",
    "geneve",
    "gre",
    "gretap",
    "ip6gre",
    "ip6gretap",
    "ip6tnl",
    "ipip",
    "sit",
    "vti",
    "vti6",
    "wireguard",
    "xfrm",
];

/// Replaces the interfaces and addresses of the node with those of the dump.
pub fn replay_links(plan: &mut Plan, node: &str, dump: &NodeDump, report: &mut ReplayReport) {
    let Some(links) = &dump.links else {
        report.add_simulated("interfaces and addresses of the lab: `ip addr` was not dumped");
        return;
    };
    let pairs = match_links(plan, node, dump, links);
    for (dumped, planned) in &pairs {
        if dumped != planned {
            rename_link(plan, node, planned, dumped);
        }
    }
    let mut replacer = LinkReplacer {
        plan,
        node,
        dump,
        links,
        account: report,
    };
    replacer.update_matched(&pairs);
    replacer.add_unmatched(&pairs);
    replacer.remove_unmatched(&pairs);
    let count = links
        .values()
        .map(|link| link.addresses.len())
        .sum::<usize>();
    let interfaces = count_noun(links.len(), "interface", "interfaces");
    let addresses = count_noun(count, "address", "addresses");
    report.add_replayed(format!("{interfaces} with {addresses}"));
}

fn find_namespace<'p>(plan: &'p Plan, node: &str) -> Option<&'p Namespace> {
    plan.namespaces
        .iter()
        .find(|namespace| namespace.name == node)
}

/// Returns the interface of the plan for each interface of the dump, by name.
fn match_links(
    plan: &Plan,
    node: &str,
    dump: &NodeDump,
    links: &Links,
) -> BTreeMap<String, String> {
    let mut pairs: BTreeMap<String, String> = BTreeMap::new();
    let Some(namespace) = find_namespace(plan, node) else {
        return pairs;
    };
    let names = links.keys().filter(|name| *name != "lo");
    for name in names.clone() {
        if namespace.links.iter().any(|link| link.name == *name) {
            pairs.insert(name.clone(), name.clone());
        }
    }
    let pods = pods_behind_ports(dump);
    for (name, link) in links.iter().filter(|(name, _)| *name != "lo") {
        if pairs.contains_key(name) {
            continue;
        }
        let is_unmatched = |link: &&Link| !pairs.values().any(|taken| *taken == link.name);
        let has_address = |ip: IpAddr| link.addresses.iter().any(|own| own.network.ip() == ip);
        let by_address = namespace.links.iter().filter(is_unmatched).find(|planned| {
            planned
                .addresses
                .iter()
                .any(|address| has_address(address.ip()))
        });
        let by_route = || {
            let host_addresses = hosts_behind(dump, name);
            let mut routes = namespace.routes.iter();
            let route = routes
                .find(|route| route.via.is_none() && host_addresses.contains(&route.to.ip()))?;
            let mut planned = namespace.links.iter().filter(is_unmatched);
            planned.find(|planned| planned.name == route.dev)
        };
        let by_pod = || {
            let addresses = pods.get(name.as_str())?;
            let mut planned = namespace.links.iter().filter(is_unmatched);
            planned.find(|planned| leads_to(plan, planned, addresses))
        };
        let by_kind = || {
            let is_tunnel = matches!(link_kind(dump, name).as_deref(), Some("vxlan"));
            let mut planned = namespace.links.iter().filter(is_unmatched);
            planned.find(|planned| is_tunnel && matches!(planned.kind, LinkKind::Vxlan { .. }))
        };
        if let Some(found) = by_address
            .or_else(by_route)
            .or_else(by_pod)
            .or_else(by_kind)
        {
            pairs.insert(name.clone(), found.name.clone());
        }
    }
    pairs
}

/// Whether the other end of a veth pair has one of these addresses.
fn leads_to(plan: &Plan, link: &Link, addresses: &[IpAddr]) -> bool {
    let LinkKind::Veth { namespace, peer } = &link.kind else {
        return false;
    };
    let ends = find_namespace(plan, namespace)
        .into_iter()
        .flat_map(|ns| &ns.links);
    let mut ends = ends.filter(|end| end.name == *peer);
    ends.any(|end| {
        end.addresses
            .iter()
            .any(|own| addresses.contains(&own.ip()))
    })
}

/// Returns the host addresses that routes have behind an interface.
fn hosts_behind(dump: &NodeDump, dev: &str) -> Vec<IpAddr> {
    let routes = dump.routes.values().flatten();
    let on_link = |route: &&svclab_ruleset::route::Route| {
        route.kind.is_none()
            && route.attributes.get("dev") == Some(dev)
            && !route.attributes.has("via")
    };
    let host_addresses = routes.filter(on_link).filter_map(|route| {
        let to: IpNetwork = route.to.parse().ok()?;
        let full_prefix = if to.is_ipv4() { 32 } else { 128 };
        (to.prefix() == full_prefix).then(|| to.ip())
    });
    host_addresses.collect()
}

/// Returns the kind of an interface, from the dump or else guessed from its name.
fn link_kind(dump: &NodeDump, name: &str) -> Option<String> {
    if let Some(kinds) = &dump.kinds {
        return kinds.get(name)?.kind.as_deref().map(str::to_owned);
    }
    let link = dump.links.as_ref().and_then(|links| links.get(name));
    let layer = link.and_then(|link| link.link_layer.as_ref());
    if let Some((layer, _)) = layer.filter(|(layer, _)| TUNNEL_KINDS.contains(&&**layer)) {
        return Some(layer.to_string());
    }
    let is_controller = dump
        .links
        .iter()
        .flat_map(Links::values)
        .any(|link| link.attributes.get("master") == Some(name));
    let has_prefix = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
    let guessed = if has_prefix(&["kube-ipvs", "nodelocaldns", "dummy"]) {
        "dummy"
    } else if is_controller || has_prefix(&["docker", "br-", "cni", "cbr", "virbr"]) {
        "bridge"
    } else if has_prefix(&["flannel.", "vxlan"]) {
        "vxlan"
    } else if has_prefix(&["veth", "cali", "lxc"]) {
        "veth"
    } else {
        return None;
    };
    Some(guessed.to_owned())
}

/// Returns the addresses of an interface that the plan contains.
fn plan_addresses(link: &Dumped) -> Vec<IpNetwork> {
    let dumped_addresses = link.addresses.iter();
    // The kernel creates link-local addresses itself, and from another hardware address.
    let static_addresses = dumped_addresses.filter(|address| {
        !matches!(address.network, IpNetwork::V6(six) if six.ip().is_unicast_link_local())
    });
    static_addresses.map(|address| address.network).collect()
}

fn is_down(link: &Dumped) -> bool {
    !link.flags.iter().any(|flag| &**flag == "UP")
}

/// Whether an interface is up, but its cable or the other end of its veth pair is not.
fn lacks_carrier(link: &Dumped) -> bool {
    link.flags.iter().any(|flag| &**flag == "NO-CARRIER")
}

fn find_link_mut<'p>(plan: &'p mut Plan, namespace: &str, name: &str) -> Option<&'p mut Link> {
    let mut namespaces = plan.namespaces.iter_mut();
    let found = namespaces.find(|own| own.name == namespace)?;
    found.links.iter_mut().find(|link| link.name == name)
}

/// Replaces the settings of a vxlan device. Other kinds stay.
fn replace_tunnel(planned: &mut LinkKind, dumped: &LinkDetails, links: &Links) {
    let LinkKind::Vxlan {
        vni,
        port,
        dev,
        local,
    } = planned
    else {
        return;
    };
    let number = |name| dumped.detail(name).and_then(|text| text.parse().ok());
    *vni = number("id").unwrap_or(*vni);
    let udp = dumped.detail("dstport").and_then(|text| text.parse().ok());
    *port = udp.unwrap_or(*port);
    let address = dumped.detail("local").and_then(|text| text.parse().ok());
    *local = address.unwrap_or(*local);
    let underlay = dumped
        .detail("dev")
        .filter(|name| links.contains_key(*name));
    if let Some(underlay) = underlay {
        underlay.clone_into(dev);
    }
}

struct LinkReplacer<'a> {
    plan: &'a mut Plan,
    node: &'a str,
    dump: &'a NodeDump,
    links: &'a Links,
    account: &'a mut ReplayReport,
}

impl LinkReplacer<'_> {
    fn namespace(&mut self) -> Option<&mut Namespace> {
        let mut namespaces = self.plan.namespaces.iter_mut();
        namespaces.find(|namespace| namespace.name == self.node)
    }

    /// Updates interfaces that the plan has. Veth pairs keep their peers; everything else is
    /// replaced.
    fn update_matched(&mut self, pairs: &BTreeMap<String, String>) {
        let links = self.links;
        let kinds = self.dump.kinds.as_ref();
        let mut peer_mtus: Vec<(String, String, u32)> = Vec::new();
        let mut peers_down: Vec<(String, String)> = Vec::new();
        let Some(namespace) = self.namespace() else {
            return;
        };
        let names: Vec<String> = namespace
            .links
            .iter()
            .map(|link| link.name.clone())
            .collect();
        for link in &mut namespace.links {
            let Some(dumped) = links
                .get(&link.name)
                .filter(|_| pairs.contains_key(&link.name))
            else {
                continue;
            };
            link.addresses = plan_addresses(dumped);
            link.down = is_down(dumped);
            if let LinkKind::Veth { namespace, peer } = &link.kind
                && lacks_carrier(dumped)
            {
                peers_down.push((namespace.clone(), peer.clone()));
            }
            let bridge = dumped.attributes.get("master");
            let bridge = bridge.filter(|bridge| {
                names.iter().any(|name| name == bridge) || links.contains_key(*bridge)
            });
            link.bridge = bridge.map(str::to_owned);
            if let Some(kind) = kinds.and_then(|kinds| kinds.get(&link.name)) {
                replace_tunnel(&mut link.kind, kind, links);
            }
            let mtu = dumped
                .attributes
                .get("mtu")
                .and_then(|mtu| mtu.parse().ok());
            if let Some(mtu) = mtu.filter(|mtu| *mtu != link.mtu.unwrap_or(1500)) {
                link.mtu = Some(mtu);
                // A veth pair carries only packets that fit the MTU of both ends.
                if let LinkKind::Veth { namespace, peer } = &link.kind {
                    peer_mtus.push((namespace.clone(), peer.clone(), mtu));
                }
            }
        }
        for (peer_namespace, peer, mtu) in peer_mtus {
            if let Some(link) = find_link_mut(self.plan, &peer_namespace, &peer) {
                link.mtu = Some(mtu);
            }
        }
        for (peer_namespace, peer) in peers_down {
            if let Some(link) = find_link_mut(self.plan, &peer_namespace, &peer) {
                link.down = true;
            }
        }
    }

    /// Adds interfaces that the plan does not have.
    fn add_unmatched(&mut self, pairs: &BTreeMap<String, String>) {
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
            mtu: dumped
                .attributes
                .get("mtu")
                .and_then(|mtu| mtu.parse().ok()),
        };
        if let Some(namespace) = self.namespace() {
            namespace.links.push(link);
        }
    }

    fn add_tunnel(&mut self, name: &str, dumped: &Dumped) {
        let details = self.dump.kinds.as_ref().and_then(|kinds| kinds.get(name));
        let tunnel_kind = details.and_then(|kind: &LinkDetails| {
            let dev = kind.detail("dev")?;
            let node_namespace = find_namespace(self.plan, self.node)?;
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
            mtu: dumped
                .attributes
                .get("mtu")
                .and_then(|mtu| mtu.parse().ok()),
        };
        let route = |to: IpNetwork, via: Option<IpAddr>| Route {
            to,
            via,
            dev: PEER_INTERFACE.to_owned(),
            onlink: false,
            source: None,
            kind: RouteKind::Unicast,
            table: None,
            metric: None,
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

    /// Removes interfaces of the plan that the dump does not have. Veth pairs of pods remain, with
    /// their bridges.
    fn remove_unmatched(&mut self, pairs: &BTreeMap<String, String>) {
        let Some(namespace) = self.namespace() else {
            return;
        };
        let is_matched = |name: &str| pairs.contains_key(name);
        let bridge_names: BTreeSet<String> = namespace
            .links
            .iter()
            .filter_map(|link| link.bridge.clone())
            .collect();
        let dumped_names: BTreeSet<String> = self.links.keys().cloned().collect();
        let Some(namespace) = self.namespace() else {
            return;
        };
        let is_kept = |link: &Link| {
            is_matched(&link.name)
                || dumped_names.contains(&link.name)
                || matches!(link.kind, LinkKind::Veth { .. })
                || bridge_names.contains(&link.name)
        };
        let (kept, removed): (Vec<Link>, Vec<Link>) = std::mem::take(&mut namespace.links)
            .into_iter()
            .partition(is_kept);
        namespace.links = kept;
        let simulated: Vec<String> = namespace
            .links
            .iter()
            .filter(|link| !dumped_names.contains(&link.name))
            .map(|link| link.name.clone())
            .collect();
        let exists = |dev: &str| !removed.iter().any(|link| link.name == dev);
        namespace.routes.retain(|route| exists(&route.dev));
        namespace
            .neighbours
            .retain(|neighbour| exists(&neighbour.dev));
        namespace.forwarding.retain(|entry| exists(&entry.dev));
        namespace
            .sysctls
            .retain(|setting| setting.link.as_deref().is_none_or(exists));
        if !simulated.is_empty() {
            let description = format!("veth pairs to pods of the lab: {}", list_names(&simulated));
            self.account.add_simulated(description);
        }
    }
}
