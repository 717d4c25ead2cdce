//! Collects what the packets of failing connections met: namespaces, chains and addresses.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;

use super::Failures;
use crate::bisect::{Difference, Kind};
use svclab_model::evidence::KERNEL_DEFAULTS;
use svclab_model::plan::{Namespace, Plan};
use svclab_planner::cluster::Cluster;
use svclab_ruleset::iptables::Rule;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::nft::References;

/// Sysctls that decide about packets, by their end, besides [`KERNEL_DEFAULTS`].
const PACKET_SYSCTLS: [&str; 19] = [
    ".accept_local",
    ".arp_announce",
    ".arp_filter",
    ".arp_ignore",
    ".bridge-nf-call-ip6tables",
    ".bridge-nf-call-iptables",
    ".conntrack",
    ".disable_ipv6",
    ".forwarding",
    ".fwmark_reflect",
    ".icmp_echo_ignore_all",
    ".ip_forward",
    ".ip_local_port_range",
    ".ip_nonlocal_bind",
    ".nf_conntrack_tcp_be_liberal",
    ".proxy_arp",
    ".route_localnet",
    ".rp_filter",
    ".src_valid_mark",
];

/// Namespaces, chains and addresses that packets met.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::why) struct Met {
    /// Namespaces that the packets passed, and those that they were sent to.
    namespaces: BTreeSet<String>,
    /// Chains whose rules were evaluated, each with its namespace.
    chains: BTreeSet<(String, String)>,
    /// Sources and destinations at any place of the path.
    sockets: BTreeSet<SocketAddr>,
}

impl Met {
    pub(in crate::why) fn new(failures: &Failures<'_>) -> Self {
        let mut met = Self::default();
        for journey in &failures.journeys {
            met.namespaces.insert(journey.from.clone());
            let probe = failures.book.probe(&journey.probe);
            met.sockets.extend(probe.map(|probe| probe.target.socket()));
            met.sockets.extend(
                probe
                    .and_then(|probe| probe.bind)
                    .map(|ip| SocketAddr::new(ip, 0)),
            );
            let addresses = journey.addresses.into_iter();
            met.sockets
                .extend(addresses.flat_map(|pair| [pair.source, pair.destination]));
        }
        for hop in failures.hops() {
            met.namespaces.insert(hop.namespace.clone());
            for pair in [hop.before, hop.after] {
                met.sockets.extend([pair.source, pair.destination]);
            }
            for step in &hop.matches {
                let chains = [Some(&step.chain), step.target.as_ref()]
                    .into_iter()
                    .flatten();
                met.chains
                    .extend(chains.map(|chain| (hop.namespace.clone(), chain.clone())));
            }
        }
        // Packets to a service go on to its endpoints.
        let services: Vec<SocketAddr> = met.sockets.iter().copied().collect();
        let endpoints = services
            .into_iter()
            .flat_map(|service| endpoints_behind(failures.cluster, service));
        met.sockets.extend(endpoints.collect::<Vec<_>>());
        let owners = failures.plan.namespaces.iter();
        let owners = owners.filter(|namespace| met.owns_address(namespace));
        let owners: Vec<String> = owners.map(|namespace| namespace.name.clone()).collect();
        met.namespaces.extend(owners);
        met.extend_to_nodes_of_pods(failures.plan);
        met
    }

    /// Adds what other failing connections met.
    pub(in crate::why) fn extend(&mut self, other: Self) {
        self.namespaces.extend(other.namespaces);
        self.chains.extend(other.chains);
        self.sockets.extend(other.sockets);
    }

    /// Adds the chains to which missing rules lead that the packets would have met.
    pub(in crate::why) fn extend_to_missing_chains(&mut self, differences: &[&Difference]) {
        loop {
            let targets: Vec<(String, String)> = differences
                .iter()
                .filter(|missing| missing.kind == Kind::Rule && self.includes(missing))
                .flat_map(|missing| {
                    let targets = targets(missing).into_iter();
                    targets.map(|target| (missing.namespace.clone(), target))
                })
                .collect();
            let count = self.chains.len();
            self.chains.extend(targets);
            if self.chains.len() == count {
                return;
            }
        }
    }

    fn owns_address(&self, namespace: &Namespace) -> bool {
        let links = namespace.links.iter().flat_map(|link| &link.addresses);
        let mut addresses = links.chain(&namespace.loopback);
        addresses.any(|own| self.has_address(own.ip()))
    }

    /// Adds the namespaces at the other ends of the pods' links: packets to a pod pass its node.
    fn extend_to_nodes_of_pods(&mut self, plan: &Plan) {
        let pods = plan.namespaces.iter();
        let pods = pods.filter(|pod| pod.name.starts_with("pod/") && self.has(&pod.name));
        let nodes: Vec<String> = plan
            .namespaces
            .iter()
            .filter(|node| {
                let mut links = pods.clone().flat_map(|pod| &pod.links);
                links.any(|link| link.is_veth_to(&node.name))
            })
            .map(|node| node.name.clone())
            .collect();
        self.namespaces.extend(nodes);
    }

    fn has(&self, namespace: &str) -> bool {
        self.namespaces.contains(namespace)
    }

    fn has_address(&self, address: IpAddr) -> bool {
        self.sockets.iter().any(|socket| socket.ip() == address)
    }

    fn has_address_in(&self, network: IpNetwork) -> bool {
        self.sockets
            .iter()
            .any(|socket| network.contains(socket.ip()))
    }

    /// Whether the packets may have met an object that differs.
    pub(in crate::why) fn includes(&self, difference: &Difference) -> bool {
        if !self.has(&difference.namespace) {
            return false;
        }
        let texts = [&difference.good, &difference.bad].into_iter().flatten();
        let mut texts = texts.map(String::as_str);
        match difference.kind {
            Kind::Rule | Kind::Policy => {
                self.meets_chain(&difference.namespace, &difference.location)
                    && (difference.kind == Kind::Policy || texts.any(|rule| self.may_match(rule)))
            }
            Kind::SetEntry => texts.any(|entry| self.has_network_of(entry.split([',', ' ']))),
            Kind::Route => texts.any(|route| self.has_network_of(route.split(' '))),
            Kind::VirtualServer | Kind::RealServer => {
                let mut all = texts.chain([difference.location.as_str()]);
                let sockets = || self.sockets.iter().map(ToString::to_string);
                all.any(|text| {
                    let mut words = text.split(' ');
                    words.any(|word| sockets().any(|socket| socket == word)) || text.contains("-f ")
                })
            }
            Kind::Sysctl => texts.any(|sysctl| {
                let key = sysctl.split(' ').next().unwrap_or_default();
                PACKET_SYSCTLS.iter().any(|end| key.ends_with(end))
                    || KERNEL_DEFAULTS.iter().any(|(own, _)| *own == key)
            }),
            // The lab defines its servers, health checks and manual commands.
            Kind::Server | Kind::HealthChecks | Kind::Command => false,
            _ => true,
        }
    }

    /// Whether packets met a chain, given as `iptables nat PREROUTING`. The kernel does not trace
    /// a built-in chain without a matching rule.
    fn meets_chain(&self, namespace: &str, location: &str) -> bool {
        let mut words = location.split(' ').rev();
        let (Some(chain), Some(table)) = (words.next(), words.next()) else {
            return false;
        };
        let is_built_in = Table::from_name(table).is_some_and(|table| table.is_built_in(chain));
        is_built_in
            || self
                .chains
                .contains(&(namespace.to_owned(), chain.to_owned()))
    }

    /// Whether the addresses and ports of an iptables rule are those of a packet.
    fn may_match(&self, rule: &str) -> bool {
        let words: Vec<&str> = rule.split_ascii_whitespace().collect();
        let is_port = |text: &str| {
            let port = text.parse::<u16>();
            port.map_or(true, |port| {
                self.sockets.iter().any(|socket| socket.port() == port)
            })
        };
        let excludes = |index: usize, pair: &[&str]| {
            let is_inverted = index > 0 && words[index - 1] == "!";
            let matches = match pair[0] {
                "-s" | "-d" => pair[1]
                    .parse()
                    .is_ok_and(|network| self.has_address_in(network)),
                "--dport" | "--sport" => is_port(pair[1]),
                _ => true,
            };
            !is_inverted && !matches
        };
        let mut pairs = words.windows(2).enumerate();
        !pairs.any(|(index, pair)| excludes(index, pair))
    }

    /// Whether one of the words is an address or network with an address of a packet. Words
    /// without any network may concern all packets.
    fn has_network_of<'t>(&self, words: impl Iterator<Item = &'t str>) -> bool {
        let networks = words.map(|word| match word {
            "default" => "0.0.0.0/0",
            word => word,
        });
        let mut networks = networks.filter_map(|word| word.parse::<IpNetwork>().ok());
        let first = networks.next();
        first.is_none_or(|network| self.has_address_in(network))
            || networks.any(|network| self.has_address_in(network))
    }
}

/// Returns the targets of a missing rule: of iptables, a chain or another target; of nftables, chains.
fn targets(missing: &Difference) -> Vec<String> {
    let rule = missing.good.as_deref().unwrap_or_default();
    if missing.location.starts_with("nft ") {
        let chains = References::parse(rule).chains.into_iter();
        return chains.map(str::to_owned).collect();
    }
    let parsed = Rule::from_words(rule).ok();
    let target = parsed.as_ref().and_then(Rule::target);
    target.into_iter().map(Cow::into_owned).collect()
}

/// Returns the endpoints of the services that have an address and port, or this node port.
pub(super) fn endpoints_behind(cluster: &Cluster, service: SocketAddr) -> Vec<SocketAddr> {
    let is_node = |ip: IpAddr| {
        let mut nodes = cluster.nodes.iter().flat_map(|node| &node.addresses);
        nodes.any(|own| own.ip() == ip)
    };
    let mut endpoints = Vec::new();
    for called in &cluster.services {
        let ports = called.ports.iter().filter(|port| {
            let is_own = called.has_address(service.ip()) && port.port == service.port();
            is_own || (port.node_port == Some(service.port()) && is_node(service.ip()))
        });
        for port in ports {
            let slices = cluster
                .slices
                .iter()
                .filter(|slice| slice.belongs_to(called));
            for slice in slices {
                let addresses = slice
                    .endpoints
                    .iter()
                    .flat_map(|endpoint| &endpoint.addresses);
                let sockets = addresses.flat_map(|address| {
                    let numbers = slice.port_numbers(&port.name);
                    numbers.map(|number| SocketAddr::new(*address, number))
                });
                endpoints.extend(sockets);
            }
        }
    }
    endpoints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met() -> Met {
        let socket = |text: &str| text.parse().expect("a socket address");
        Met {
            namespaces: BTreeSet::from(["node-1".to_owned()]),
            chains: BTreeSet::from([("node-1".to_owned(), "KUBE-SERVICES".to_owned())]),
            sockets: BTreeSet::from([socket("10.244.1.9:40000"), socket("10.96.0.10:80")]),
        }
    }

    fn difference(kind: Kind, location: &str, good: &str) -> Difference {
        Difference {
            namespace: "node-1".to_owned(),
            kind,
            location: location.to_owned(),
            good: Some(good.to_owned()),
            bad: None,
            owner: None,
        }
    }

    #[test]
    fn met_rules_of_other_chains_or_services_are_excluded() {
        let services = "iptables nat KUBE-SERVICES";
        for (location, rule, is_met) in [
            (
                services,
                "-d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A",
                true,
            ),
            (
                services,
                "-d 10.96.0.11/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-B",
                false,
            ),
            (
                services,
                "-d 10.96.0.10/32 -p tcp -m tcp --dport 81 -j KUBE-SVC-A",
                false,
            ),
            (
                services,
                "! -s 10.1.0.0/16 -d 10.96.0.10 -j KUBE-MARK-MASQ",
                true,
            ),
            ("iptables nat PREROUTING", "-j KUBE-SERVICES", true),
            ("iptables nat KUBE-SVC-B", "-j KUBE-SEP-B", false),
        ] {
            let difference = difference(Kind::Rule, location, rule);
            assert_eq!(met().includes(&difference), is_met, "{difference}");
        }
    }

    #[test]
    fn met_chains_of_missing_rules_are_included() {
        let rule = |location: &str, good: &str| difference(Kind::Rule, location, good);
        let jump = rule("iptables nat POSTROUTING", "-j FLANNEL-POSTRTG");
        let own = rule("iptables nat FLANNEL-POSTRTG", "-j MASQUERADE");
        let other = rule("iptables nat OTHER", "-j MASQUERADE");
        let all = [&own, &jump, &other];
        let mut met = met();
        assert_eq!(all.map(|rule| met.includes(rule)), [false, true, false]);
        met.extend_to_missing_chains(&all);
        assert_eq!(all.map(|rule| met.includes(rule)), [true, true, false]);
    }

    #[test]
    fn met_routes_and_entries_are_those_of_addresses() {
        for (kind, text, is_met) in [
            (Kind::Route, "10.96.0.0/16 dev eth0", true),
            (Kind::Route, "10.97.0.0/16 dev eth0", false),
            (Kind::Route, "default via 192.0.2.1 dev eth0", true),
            (Kind::SetEntry, "10.96.0.10,tcp:80", true),
            (Kind::SetEntry, "10.96.0.12,tcp:80", false),
            (Kind::Sysctl, "net.ipv4.conf.eth0.rp_filter = 1", true),
            (Kind::Sysctl, "net.ipv4.conf.eth0.send_redirects = 1", false),
        ] {
            let difference = difference(kind, "", text);
            assert_eq!(met().includes(&difference), is_met, "{difference}");
        }
        let elsewhere = Difference {
            namespace: "node-2".to_owned(),
            ..difference(Kind::Route, "", "10.96.0.0/16 dev eth0")
        };
        assert!(!met().includes(&elsewhere));
    }
}
