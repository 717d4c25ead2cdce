//! Selects the tracked connections that do not go where the rules of the node send new ones.
//!
//! The kernel translates a packet as for the connection to which it belongs. Rules of NAT apply to
//! the first packet of a connection only, and not at all once the connection is confirmed (Linux
//! v6.12, `net/netfilter/nf_nat_core.c`, `nf_nat_inet_fn` and `nf_nat_setup_info`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;

use super::NodeDump;
use svclab_ruleset::Protocol;
use svclab_ruleset::conntrack::Connection;
use svclab_ruleset::iptables::Rule;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::network::is_single;

/// Connections of clients to one target that have the same server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StaleTarget {
    /// Protocol of the connections.
    pub protocol: Protocol,
    /// Address to which the clients send.
    pub target: SocketAddr,
    /// Address that packets have after translation. It is the target if they are not translated.
    pub server: SocketAddr,
}

impl fmt::Display for StaleTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            protocol,
            target,
            server,
        } = self;
        let protocol = protocol.name().to_uppercase();
        write!(f, "stale {protocol} connections to {target}: ")?;
        if server == target {
            write!(f, "not translated, although rules translate {target}")
        } else {
            write!(f, "they go to {server}, which no rule names")
        }
    }
}

impl NodeDump {
    /// Returns the stale connections of the dump.
    ///
    /// A TCP connection is only stale if its server never replied: the client of another one has
    /// the port in use, and a SYN replaces a closed connection (Linux v6.12,
    /// `net/netfilter/nf_conntrack_proto_tcp.c`, `tcp_conntracks`). Connections in a zone are those
    /// of other programs, such as Open vSwitch.
    #[must_use]
    pub fn stale_connections(&self) -> BTreeMap<StaleTarget, Vec<&Connection>> {
        let connections = self.connections.iter().flatten();
        let candidates = connections.filter_map(|connection| {
            let target = target_of(connection)?;
            let can_be_stale = match target.protocol {
                Protocol::Tcp => connection.is_unreplied,
                Protocol::Udp => true,
                Protocol::Sctp => false,
            };
            (can_be_stale && connection.zone == 0).then_some((target, connection))
        });
        let mut targets: BTreeMap<StaleTarget, Vec<&Connection>> = BTreeMap::new();
        for (target, connection) in candidates {
            targets.entry(target).or_default().push(connection);
        }
        if targets.is_empty() {
            return targets;
        }
        let (named, translated) = (self.named_addresses(), self.translated_targets());
        let translates_to_any = self.translates_to_ranges();
        targets.retain(|stale, _| {
            let server = stale.server.ip();
            if stale.server == stale.target {
                let (protocol, target) = (stale.protocol, stale.target);
                translated.addresses.contains(&(protocol, target))
                    || (translated.own_ports.contains(&(protocol, target.port()))
                        && self.is_own_address(target.ip()))
            } else {
                // Without an address of the family, another program translates, or the rules were
                // not dumped. REDIRECT translates to an address of the node.
                named.iter().any(|own| own.is_ipv4() == server.is_ipv4())
                    && !named.contains(&server)
                    && !self.is_own_address(server)
                    && !translates_to_any
            }
        });
        targets
    }

    fn nat_rules(&self) -> impl Iterator<Item = &Rule> {
        let tables = self.rules.values().flat_map(|rules| &rules.tables);
        let tables = tables.filter(|table| table.table == Table::Nat);
        let chains = tables.flat_map(|table| &table.chains);
        chains.flat_map(|chain| &chain.rules)
    }

    /// Returns all addresses in rules of NAT, in elements of maps and in servers of IPVS.
    fn named_addresses(&self) -> BTreeSet<IpAddr> {
        let mut named = BTreeSet::new();
        for rule in self.nat_rules() {
            named.extend(addresses_in(rule.source_text()));
        }
        for table in self.nft.iter().flat_map(|nft| &nft.tables) {
            let rules = table.chains.iter().flat_map(|chain| &chain.rules);
            named.extend(rules.flat_map(|rule| addresses_in(&rule.text)));
            let elements = table.sets.iter().flat_map(|set| &set.elements);
            named.extend(
                elements
                    .filter_map(|element| element.value.as_deref())
                    .flat_map(addresses_in),
            );
        }
        let servers = self.servers.iter().flat_map(|servers| servers.values());
        let servers = servers.flat_map(|server| server.servers.keys());
        named.extend(servers.map(SocketAddr::ip));
        named
    }

    /// Whether rules translate to prefixes or ranges of addresses.
    fn translates_to_ranges(&self) -> bool {
        let is_range = |text: &str| {
            let words = text.split_ascii_whitespace();
            let mut bounds = words.filter_map(|word| word.split_once('-'));
            bounds.any(|(first, _)| addresses_in(first).next().is_some())
        };
        let tables = self.nft.iter().flat_map(|nft| &nft.tables);
        let rules = tables
            .flat_map(|table| &table.chains)
            .flat_map(|chain| &chain.rules);
        let mut native = rules.filter(|rule| rule.text.contains("dnat "));
        self.nat_rules().any(|rule| {
            let target = rule.target();
            target.as_deref() == Some("NETMAP")
                || target.as_deref() == Some("DNAT") && is_range(rule.source_text())
        }) || native.any(|rule| rule.text.contains(" prefix ") || is_range(&rule.text))
    }

    fn is_own_address(&self, address: IpAddr) -> bool {
        let links = self.links.iter().flat_map(|links| links.values());
        let mut own = links.flat_map(|link| &link.addresses);
        address.is_loopback() || own.any(|own| own.network.ip() == address)
    }

    /// Returns the destinations that rules of iptables and maps of nftables translate.
    fn translated_targets(&self) -> TranslatedTargets {
        let mut targets = TranslatedTargets::default();
        for rule in self.nat_rules() {
            targets.add_rule(rule);
        }
        let tables = self.nft.iter().flat_map(|nft| &nft.tables);
        let maps = tables
            .flat_map(|table| &table.sets)
            .filter(|set| set.is_map);
        for element in maps.flat_map(|map| &map.elements) {
            targets.add_element(&element.key);
        }
        targets
    }
}

/// Destinations that rules translate.
#[derive(Debug, Default)]
struct TranslatedTargets {
    addresses: BTreeSet<(Protocol, SocketAddr)>,
    /// Ports of every address of the node: node ports and host ports.
    own_ports: BTreeSet<(Protocol, u16)>,
}

/// Beginnings of chains that translate the destination: those of kube-proxy, and of the portmap
/// plugin (containernetworking/plugins v1.4.0, `plugins/meta/portmap/portmap.go`).
const TRANSLATING_CHAINS: [&str; 2] = ["KUBE-", "CNI-DN-"];

/// Beginning of chains of kube-proxy that only mark packets.
const MARKING_CHAINS: &str = "KUBE-MARK-";

impl TranslatedTargets {
    fn add_rule(&mut self, rule: &Rule) {
        let split = rule.parts();
        let Some(protocol) = split.header("-p").and_then(Protocol::from_name) else {
            return;
        };
        let option_of_matches = |name| split.matches.iter().find_map(|module| module.value(name));
        let ports = option_of_matches("--dport").or_else(|| option_of_matches("--dports"));
        let ports = ports.into_iter().flat_map(|ports| ports.split(','));
        let ports = ports.filter_map(|port| port.parse::<u16>().ok());
        if let Some(address) = split.header("-d").and_then(single_address) {
            let sockets = ports.map(|port| (protocol, SocketAddr::new(address, port)));
            self.addresses.extend(sockets);
            return;
        }
        // Rules with other conditions do not translate every packet to the port.
        let is_plain = split.header.iter().all(|option| option.name == "-p");
        let mut modules = split.matches.iter().map(|module| &*module.name);
        let has_only_ports =
            modules.all(|name| matches!(name, "tcp" | "udp" | "multiport" | "comment"));
        let translates = rule.target().is_some_and(|target| {
            let is_of_chains = TRANSLATING_CHAINS
                .iter()
                .any(|start| target.starts_with(start));
            matches!(&*target, "DNAT" | "REDIRECT")
                || (is_of_chains && !target.starts_with(MARKING_CHAINS))
        });
        if is_plain && has_only_ports && translates {
            self.own_ports.extend(ports.map(|port| (protocol, port)));
        }
    }

    /// Adds the key of an element of a map.
    fn add_element(&mut self, key: &str) {
        let words: Vec<&str> = key.split(" . ").collect();
        let (protocol, port) = match words.as_slice() {
            [protocol, port] | [_, protocol, port] => (Protocol::from_name(protocol), port.parse()),
            _ => return,
        };
        let (Some(protocol), Ok(port)) = (protocol, port) else {
            return;
        };
        match words.as_slice() {
            [_, _] => {
                self.own_ports.insert((protocol, port));
            }
            [address, ..] => {
                if let Ok(address) = address.parse() {
                    let target = SocketAddr::new(address, port);
                    self.addresses.insert((protocol, target));
                }
            }
            [] => {}
        }
    }
}

/// Returns the target and the server of a connection. `None` for protocols without ports.
fn target_of(connection: &Connection) -> Option<StaleTarget> {
    let Connection {
        original, reply, ..
    } = connection;
    Some(StaleTarget {
        protocol: connection.protocol?,
        target: SocketAddr::new(original.destination, original.destination_port?),
        server: SocketAddr::new(reply.source, reply.source_port?),
    })
}

/// Returns the addresses in a text, with or without ports.
fn addresses_in(text: &str) -> impl Iterator<Item = IpAddr> + '_ {
    let words = text.split(|c: char| !c.is_ascii_hexdigit() && c != '.' && c != ':');
    words.filter_map(|word| {
        let address = || word.parse::<SocketAddr>().map(|address| address.ip());
        word.parse().or_else(|_| address()).ok()
    })
}

/// Returns the address of a prefix that covers no other address.
fn single_address(prefix: &str) -> Option<IpAddr> {
    let network: IpNetwork = prefix.parse().ok()?;
    is_single(network).then_some(network.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of conntrack entries, as protocol, destination, server and remaining words.
    fn entries(all: &[(&str, &str, &str, &str)]) -> String {
        let lines = all.iter().map(|(protocol, to, server, rest)| {
            let (address, port) = to.rsplit_once(' ').unwrap();
            let (server, server_port) = server.rsplit_once(' ').unwrap();
            format!(
                "{protocol} 1 30 src=10.244.1.5 dst={address} sport=4000 dport={port} src={server} \
                 dst=10.244.1.5 sport={server_port} dport=4000 {rest}mark=0 use=1\n"
            )
        });
        lines.collect()
    }

    /// Returns the stale connections of a dump with these files.
    fn stale(files: &[(&str, &str)]) -> String {
        let dump = NodeDump::from_texts(files);
        let stale = dump.stale_connections();
        let lines = stale
            .iter()
            .map(|(target, connections)| format!("{} {target}", connections.len()));
        lines.collect::<Vec<_>>().join("\n")
    }

    const UNREPLIED: &str = "[UNREPLIED] ";

    fn all_kinds() -> String {
        entries(&[
            ("udp", "10.96.0.10 53", "10.244.1.9 53", ""),
            ("udp", "10.96.0.10 53", "10.244.3.7 53", ""),
            ("udp", "10.96.0.10 53", "10.244.3.7 53", UNREPLIED),
            ("udp", "10.96.0.10 53", "10.244.3.8 53", "zone=1 "),
            ("udp", "10.96.0.10 53", "10.96.0.10 53", ""),
            ("udp", "10.96.0.10 54", "10.96.0.10 54", ""),
            ("udp", "fd00:96::a 53", "fd00:244::9 53", ""),
            ("udp", "fd00:96::a 53", "fd00:244::7 53", ""),
            ("tcp", "10.96.0.10 53", "10.244.3.7 53", ""),
            ("tcp", "10.96.0.10 53", "10.244.3.7 53", UNREPLIED),
            ("sctp", "10.96.0.10 53", "10.244.3.7 53", UNREPLIED),
        ])
    }

    #[test]
    fn stale_connections_of_both_rule_kinds_are_equal() {
        let v4 = "*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m udp \
                  --dport 53 -j DNAT --to-destination 10.244.1.9:53\nCOMMIT\n";
        let v6 = "*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -d fd00:96::a/128 -p udp -m udp \
                  --dport 53 -j DNAT --to-destination [fd00:244::9]:53\nCOMMIT\n";
        let rules = "table ip kube-proxy {
	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.10 . udp . 53 : goto service-a }
	}
	chain service-a {
		meta l4proto udp dnat to 10.244.1.9:53
	}
	chain service-b {
		meta l4proto udp dnat to [fd00:244::9]:53
	}
}
";
        let connections = ("conntrack-L", &*all_kinds());
        let iptables = stale(&[connections, ("iptables-save", v4), ("ip6tables-save", v6)]);
        insta::assert_snapshot!(iptables, @r"
        1 stale TCP connections to 10.96.0.10:53: they go to 10.244.3.7:53, which no rule names
        1 stale UDP connections to 10.96.0.10:53: not translated, although rules translate 10.96.0.10:53
        2 stale UDP connections to 10.96.0.10:53: they go to 10.244.3.7:53, which no rule names
        1 stale UDP connections to [fd00:96::a]:53: they go to [fd00:244::7]:53, which no rule names
        ");
        assert_eq!(stale(&[connections, ("nft", rules)]), iptables);
    }

    #[test]
    fn stale_connections_of_ipvs_go_to_unnamed_servers() {
        let servers = "-A -u 10.96.0.10:53 -s rr\n-a -u 10.96.0.10:53 -r 10.244.1.9:53 -m -w 1\n";
        let files = [("conntrack-L", &*all_kinds()), ("ipvsadm-save", servers)];
        insta::assert_snapshot!(stale(&files), @r"
        1 stale TCP connections to 10.96.0.10:53: they go to 10.244.3.7:53, which no rule names
        2 stale UDP connections to 10.96.0.10:53: they go to 10.244.3.7:53, which no rule names
        ");
    }

    #[test]
    fn stale_connections_of_other_translations_are_unknown() {
        let nat = |target: &str| {
            format!(
                "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 10.96.0.99/32 -j DNAT \
                 --to-destination 10.244.1.9\n-A PREROUTING -p udp -m udp --dport 53 -j {target}\nCOMMIT\n"
            )
        };
        let connection = entries(&[("udp", "10.96.0.10 53", "10.244.3.7 53", "")]);
        let found = |target: &str, address: &str| {
            let files = [
                ("conntrack-L", &*connection),
                ("iptables-save", &nat(target)),
                (
                    "ip-addr",
                    &format!("2: eth0: <UP> mtu 1500\n    inet {address}/24 scope global eth0\n"),
                ),
            ];
            !stale(&files).is_empty()
        };
        assert!(found("ACCEPT", "10.0.0.1"));
        assert!(!found("REDIRECT", "10.244.3.7"));
        assert!(!found("NETMAP --to 10.244.3.0/24", "10.0.0.1"));
        assert!(!found(
            "DNAT --to-destination 10.244.3.1-10.244.3.9",
            "10.0.0.1"
        ));
    }

    #[test]
    fn stale_connections_to_node_ports_are_not_translated() {
        let addresses = "2: eth0: <UP> mtu 1500\n    inet 192.168.1.11/24 scope global eth0\n";
        let ports = |target: &str| {
            format!(
                "*nat\n:KUBE-NODEPORTS - [0:0]\n:KUBE-EXT-A - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
                 -A KUBE-NODEPORTS -p udp -m comment --comment \"a/b\" -m udp --dport 30053 -j {target}\nCOMMIT\n"
            )
        };
        let map = "table ip kube-proxy {\n\tmap service-nodeports {\n\t\ttype inet_proto . \
                   inet_service : verdict\n\t\telements = { udp . 30053 : goto external-a }\n\t}\n}\n";
        let connection = |to: &str| entries(&[("udp", to, to, UNREPLIED)]);
        let is_stale = |to: &str, file: (&str, &str)| {
            !stale(&[
                ("conntrack-L", &connection(to)),
                ("ip-addr", addresses),
                file,
            ])
            .is_empty()
        };
        let jump = ports("KUBE-EXT-A");
        assert!(is_stale("192.168.1.11 30053", ("iptables-save", &jump)));
        assert!(is_stale("192.168.1.11 30053", ("nft", map)));
        assert!(!is_stale("192.168.1.12 30053", ("iptables-save", &jump)));
        assert!(!is_stale("192.168.1.11 30054", ("nft", map)));
        let mark = ports("KUBE-MARK-MASQ");
        assert!(!is_stale("192.168.1.11 30053", ("iptables-save", &mark)));
    }

    #[test]
    fn stale_connections_without_rules_are_unknown() {
        assert_eq!(stale(&[("conntrack-L", &all_kinds())]), "");
        let empty = [("conntrack-L", &*all_kinds()), ("iptables-save", "")];
        assert_eq!(stale(&empty), "");
    }
}
