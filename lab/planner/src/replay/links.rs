//! Replays interfaces and addresses of a dumped node. Veth pairs of the plan to the fabric or to a
//! pod simulate the node's hardware and the veth pairs of its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::IpNetwork;

use super::account::{Account, counted};
use super::naming::rename;
use svclab_dump::NodeDump;
use svclab_model::plan::{
    Link, LinkKind, Mac, Namespace, Neighbour, Plan, Route, RouteKind, Sysctl,
};
use svclab_ruleset::link::kind::Kind;
use svclab_ruleset::link::{Link as Dumped, Links};

/// Prefix of namespaces behind interfaces with an unknown peer.
const BEYOND: &str = "beyond";

/// Interface in such a namespace.
const FAR: &str = "eth0";

/// Gateway address in such a namespace.
const ROUTER: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// Devices that kernel modules create in each namespace (Linux v6.12, `net/ipv4/ip_tunnel.c`,
/// `ip_tunnel_init_net`, and related functions).
const FALLBACK: [&str; 10] = [
    "tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6tnl0", "ip6gre0",
    "teql0",
];

/// Replaces the interfaces and addresses of the node with those of the dump.
pub fn put(plan: &mut Plan, node: &str, dump: &NodeDump, account: &mut Account) {
    let Some(links) = &dump.links else {
        account.stands_in("interfaces and addresses as the lab has them: `ip addr` was not dumped");
        return;
    };
    let pairs = pairs(plan, node, dump, links);
    for (dumped, planned) in &pairs {
        if dumped != planned {
            rename(plan, node, planned, dumped);
        }
    }
    let mut made = Making {
        plan,
        node,
        dump,
        links,
        account,
    };
    made.paired(&pairs);
    made.unknown(&pairs);
    made.gone(&pairs);
    let count = links
        .values()
        .map(|link| link.addresses.len())
        .sum::<usize>();
    let interfaces = counted(links.len(), "interface", "interfaces");
    let addresses = counted(count, "address", "addresses");
    account.is_real(format!("{interfaces} with {addresses}"));
}

fn namespace<'p>(plan: &'p Plan, node: &str) -> Option<&'p Namespace> {
    plan.namespaces
        .iter()
        .find(|namespace| namespace.name == node)
}

/// Returns the interface of the plan for each interface of the dump, by name.
fn pairs(plan: &Plan, node: &str, dump: &NodeDump, links: &Links) -> BTreeMap<String, String> {
    let mut pairs: BTreeMap<String, String> = BTreeMap::new();
    let Some(namespace) = namespace(plan, node) else {
        return pairs;
    };
    let names = links.keys().filter(|name| *name != "lo");
    for name in names.clone() {
        if namespace.links.iter().any(|link| link.name == *name) {
            pairs.insert(name.clone(), name.clone());
        }
    }
    for (name, link) in links.iter().filter(|(name, _)| *name != "lo") {
        if pairs.contains_key(name) {
            continue;
        }
        let free = |link: &&Link| !pairs.values().any(|taken| *taken == link.name);
        let own = |ip: IpAddr| link.addresses.iter().any(|own| own.network.ip() == ip);
        let by_address = namespace
            .links
            .iter()
            .filter(free)
            .find(|planned| planned.addresses.iter().any(|address| own(address.ip())));
        let by_route = || {
            let led = hosts(dump, name);
            let mut routes = namespace.routes.iter();
            let route = routes.find(|route| route.via.is_none() && led.contains(&route.to.ip()))?;
            let mut planned = namespace.links.iter().filter(free);
            planned.find(|planned| planned.name == route.dev)
        };
        let by_kind = || {
            let is_tunnel = matches!(kind(dump, name).as_deref(), Some("vxlan"));
            let mut planned = namespace.links.iter().filter(free);
            planned.find(|planned| is_tunnel && matches!(planned.kind, LinkKind::Vxlan { .. }))
        };
        if let Some(found) = by_address.or_else(by_route).or_else(by_kind) {
            pairs.insert(name.clone(), found.name.clone());
        }
    }
    pairs
}

/// Returns the host addresses that routes have behind an interface.
fn hosts(dump: &NodeDump, dev: &str) -> Vec<IpAddr> {
    let all = dump.routes.values().flatten();
    let on_link = |route: &&svclab_ruleset::route::Route| {
        route.kind.is_none()
            && route.attributes.get("dev") == Some(dev)
            && !route.attributes.has("via")
    };
    let single = all.filter(on_link).filter_map(|route| {
        let to: IpNetwork = route.to.parse().ok()?;
        let whole = if to.is_ipv4() { 32 } else { 128 };
        (to.prefix() == whole).then(|| to.ip())
    });
    single.collect()
}

/// Returns the kind of an interface, from the dump or else guessed from its name.
fn kind(dump: &NodeDump, name: &str) -> Option<String> {
    if let Some(kinds) = &dump.kinds {
        return kinds.get(name)?.is.as_deref().map(str::to_owned);
    }
    let is_controller = dump
        .links
        .iter()
        .flat_map(Links::values)
        .any(|link| link.attributes.get("master") == Some(name));
    let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
    let guessed = if begins(&["kube-ipvs", "nodelocaldns", "dummy"]) {
        "dummy"
    } else if is_controller || begins(&["docker", "br-", "cni", "cbr", "virbr"]) {
        "bridge"
    } else if begins(&["flannel.", "vxlan"]) {
        "vxlan"
    } else if begins(&["veth", "cali", "lxc"]) {
        "veth"
    } else {
        return None;
    };
    Some(guessed.to_owned())
}

/// Returns the addresses of an interface that the plan contains.
fn addresses(link: &Dumped) -> Vec<IpNetwork> {
    let all = link.addresses.iter();
    // The kernel creates link-local addresses itself, and from another hardware address.
    let lasting = all.filter(|address| {
        !matches!(address.network, IpNetwork::V6(six) if six.ip().is_unicast_link_local())
    });
    lasting.map(|address| address.network).collect()
}

fn is_down(link: &Dumped) -> bool {
    !link.flags.iter().any(|flag| &**flag == "UP")
}

struct Making<'a> {
    plan: &'a mut Plan,
    node: &'a str,
    dump: &'a NodeDump,
    links: &'a Links,
    account: &'a mut Account,
}

impl Making<'_> {
    fn namespace(&mut self) -> Option<&mut Namespace> {
        let mut all = self.plan.namespaces.iter_mut();
        all.find(|namespace| namespace.name == self.node)
    }

    /// Updates interfaces that the plan has. Veth pairs keep their peers; everything else is
    /// replaced.
    fn paired(&mut self, pairs: &BTreeMap<String, String>) {
        let links = self.links;
        let kinds = self.dump.kinds.as_ref();
        let mut far: Vec<(String, String, u32)> = Vec::new();
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
            link.addresses = addresses(dumped);
            link.down = is_down(dumped);
            let bridge = dumped.attributes.get("master");
            let bridge = bridge.filter(|bridge| {
                names.iter().any(|name| name == bridge) || links.contains_key(*bridge)
            });
            link.bridge = bridge.map(str::to_owned);
            if let Some(kind) = kinds.and_then(|kinds| kinds.get(&link.name)) {
                link.hairpin = kind.hairpin();
                if let LinkKind::Vxlan { vni, port, .. } = &mut link.kind {
                    let number = |name| kind.detail(name).and_then(|text| text.parse().ok());
                    *vni = number("id").unwrap_or(*vni);
                    let udp = kind.detail("dstport").and_then(|text| text.parse().ok());
                    *port = udp.unwrap_or(*port);
                }
            }
            let mtu = dumped
                .attributes
                .get("mtu")
                .and_then(|mtu| mtu.parse().ok());
            if let Some(mtu) = mtu.filter(|mtu| *mtu != link.mtu.unwrap_or(1500)) {
                link.mtu = Some(mtu);
                // A veth pair carries only packets that fit the MTU of both ends.
                if let LinkKind::Veth { namespace, peer } = &link.kind {
                    far.push((namespace.clone(), peer.clone(), mtu));
                }
            }
        }
        for (there, peer, mtu) in far {
            let mut all = self.plan.namespaces.iter_mut();
            let found = all.find(|namespace| namespace.name == there);
            let mut found = found.into_iter().flat_map(|namespace| &mut namespace.links);
            if let Some(link) = found.find(|link| link.name == peer) {
                link.mtu = Some(mtu);
            }
        }
    }

    /// Adds interfaces that the plan does not have.
    fn unknown(&mut self, pairs: &BTreeMap<String, String>) {
        let mut down = 0_usize;
        let mut ports: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, dumped) in self.links {
            if name == "lo" {
                self.loopback(dumped);
                continue;
            }
            if pairs.contains_key(name) {
                continue;
            }
            let own = addresses(dumped);
            let kind_of = kind(self.dump, name);
            let holds = own.is_empty() && hosts(self.dump, name).is_empty();
            if holds && (is_down(dumped) || FALLBACK.contains(&name.as_str())) {
                down += 1;
                continue;
            }
            if let Some(bridge) = dumped.attributes.get("master") {
                let ports = ports.entry(bridge.to_owned()).or_default();
                ports.push(name.clone());
                continue;
            }
            match kind_of.as_deref() {
                Some("dummy") => self.add(name, dumped, LinkKind::Dummy),
                Some("bridge") => self.add(name, dumped, LinkKind::Bridge),
                Some("vxlan") => self.tunnel(name, dumped),
                other => {
                    let what = match other {
                        None => "hardware",
                        Some("veth") => "the cable of a pod that no object tells of",
                        Some(other) => other,
                    };
                    let what = format!("{name}, {what}: a cable that leads to nobody");
                    self.account.stands_in(what);
                    self.dead_end(name, dumped);
                }
            }
        }
        for (bridge, ports) in ports {
            self.account.left_out(
                format!(
                    "{} of {bridge}: {}",
                    counted(ports.len(), "port", "ports"),
                    listed(&ports)
                ),
                "no object tells which pods they lead to; pods of the objects have ports of their own",
                "rules that name such a port match nothing",
            );
        }
        if down > 0 {
            self.account.left_out(
                counted(down, "interface", "interfaces"),
                "down, or a module's own, without an address",
                "",
            );
        }
    }

    fn loopback(&mut self, lo: &Dumped) {
        let own = |address: &IpNetwork| {
            let first = [
                IpAddr::from([127, 0, 0, 1]),
                IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
            ];
            first.contains(&address.ip())
        };
        let more = addresses(lo).into_iter().filter(|address| !own(address));
        let more = more.collect();
        if let Some(namespace) = self.namespace() {
            namespace.loopback = more;
        }
    }

    fn add(&mut self, name: &str, dumped: &Dumped, kind: LinkKind) {
        let link = Link {
            name: name.to_owned(),
            kind,
            mac: Mac::of(self.node, name),
            addresses: addresses(dumped),
            bridge: None,
            hairpin: false,
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

    fn tunnel(&mut self, name: &str, dumped: &Dumped) {
        let details = self.dump.kinds.as_ref().and_then(|kinds| kinds.get(name));
        let made = details.and_then(|kind: &Kind| {
            let dev = kind.detail("dev")?;
            let known = namespace(self.plan, self.node)?;
            known.links.iter().find(|link| link.name == dev)?;
            Some(LinkKind::Vxlan {
                vni: kind.detail("id")?.parse().ok()?,
                port: kind.detail("dstport")?.parse().ok()?,
                dev: dev.to_owned(),
                local: kind.detail("local")?.parse().ok()?,
            })
        });
        match made {
            Some(kind) => {
                self.account.stands_in(format!(
                    "what is behind {name}: nobody; no object tells of it"
                ));
                self.add(name, dumped, kind);
            }
            None => self.account.left_out(
                format!("the tunnel {name}"),
                "`ip -d link`, which tells what it is made of, was not dumped",
                "what was sent by it is not",
            ),
        }
    }

    /// Adds a veth pair to a namespace of its own, which has the addresses that routes have behind
    /// the interface.
    fn dead_end(&mut self, name: &str, dumped: &Dumped) {
        let there = format!("{BEYOND}/{}/{name}", self.node);
        let far = LinkKind::Veth {
            namespace: there.clone(),
            peer: FAR.to_owned(),
        };
        self.add(name, dumped, far);
        let behind = hosts(self.dump, name);
        let (own_mac, far_mac) = (Mac::of(self.node, name), Mac::of(&there, FAR));
        if let Some(namespace) = self.namespace() {
            let known = behind.iter().map(|address| Neighbour {
                address: *address,
                mac: far_mac,
                dev: name.to_owned(),
            });
            namespace.neighbours.extend(known);
        }
        let near = LinkKind::Veth {
            namespace: self.node.to_owned(),
            peer: name.to_owned(),
        };
        let link = Link {
            name: FAR.to_owned(),
            kind: near,
            mac: far_mac,
            addresses: behind.iter().map(|ip| IpNetwork::from(*ip)).collect(),
            bridge: None,
            hairpin: false,
            down: false,
            mtu: dumped
                .attributes
                .get("mtu")
                .and_then(|mtu| mtu.parse().ok()),
        };
        let route = |to: IpNetwork, via: Option<IpAddr>| Route {
            to,
            via,
            dev: FAR.to_owned(),
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
        let all = IpNetwork::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let routes = all.map(|all| {
            let router = IpAddr::V4(ROUTER);
            vec![
                route(IpNetwork::from(router), None),
                route(all, Some(router)),
            ]
        });
        self.plan.namespaces.push(Namespace {
            name: there,
            links: vec![link],
            routes: routes.unwrap_or_default(),
            neighbours: vec![Neighbour {
                address: ROUTER.into(),
                mac: own_mac,
                dev: FAR.to_owned(),
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
    fn gone(&mut self, pairs: &BTreeMap<String, String>) {
        let Some(namespace) = self.namespace() else {
            return;
        };
        let is_new = |name: &str| pairs.contains_key(name);
        let used: BTreeSet<String> = namespace
            .links
            .iter()
            .filter_map(|link| link.bridge.clone())
            .collect();
        let own: BTreeSet<String> = self.links.keys().cloned().collect();
        let Some(namespace) = self.namespace() else {
            return;
        };
        let stays = |link: &Link| {
            is_new(&link.name)
                || own.contains(&link.name)
                || matches!(link.kind, LinkKind::Veth { .. })
                || used.contains(&link.name)
        };
        let (kept, gone): (Vec<Link>, Vec<Link>) = std::mem::take(&mut namespace.links)
            .into_iter()
            .partition(stays);
        namespace.links = kept;
        let standing: Vec<String> = namespace
            .links
            .iter()
            .filter(|link| !own.contains(&link.name))
            .map(|link| link.name.clone())
            .collect();
        let there = |dev: &str| !gone.iter().any(|link| link.name == dev);
        namespace.routes.retain(|route| there(&route.dev));
        namespace.neighbours.retain(|one| there(&one.dev));
        namespace.forwarding.retain(|entry| there(&entry.dev));
        namespace
            .sysctls
            .retain(|setting| setting.link.as_deref().is_none_or(there));
        if !standing.is_empty() {
            let what = format!("cables to pods, as the lab has them: {}", listed(&standing));
            self.account.stands_in(what);
        }
    }
}

/// Renders the first names and the number of the others.
pub fn listed(names: &[String]) -> String {
    const MOST: usize = 6;
    let first = names[..names.len().min(MOST)].join(", ");
    match names.len().checked_sub(MOST) {
        Some(more) if more > 0 => format!("{first} and {more} more"),
        _ => first,
    }
}
