//! Lists the tracked connections of a dumped node, which are not built, with their possible effects
//! on the packets of probes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::super::report::{ReplayReport, count_noun, list_names};
use svclab_dump::NodeDump;
use svclab_model::plan::{Plan, Probe, ProbeProtocol};
use svclab_ruleset::Protocol;
use svclab_ruleset::conntrack::{self, Connection, Tuple};

/// Reason for omitting connections.
const REASON: &str = "a lab starts without connections";

/// Number of source ports that source NAT can choose for one server: 1024 to 65535 (Linux v6.12,
/// `net/netfilter/nf_nat_core.c`, `nf_nat_l4proto_unique_tuple`).
const NAT_PORTS: usize = 64_512;

/// Percentage of used ports from which NAT can fail. The kernel tries 248 random ports in all; with
/// 95 % used ports, about 1 of 300,000 connections finds none, and with 98 % about 1 of 150.
const FEW_PORTS_PERCENT: usize = 95;

/// Lists the connections of the dump in the report. Packets of new connections meet a listed
/// connection only if they have its addresses and ports, or if its ports are in use for NAT.
pub fn list_connections(plan: &Plan, dump: &NodeDump, report: &mut ReplayReport) {
    let connections = dump.connections.as_deref().unwrap_or_default();
    let met = list_met_connections(plan, dump, report);
    list_used_ports(connections, report);
    if !connections.is_empty() && counts_connections(dump) {
        report.add_omitted(
            "connections that rules count (`connlimit`, `ct count`)",
            REASON,
            "the rules count fewer connections than on the node",
        );
    }
    let others = connections.len() - met;
    if others > 0 {
        let zones: Vec<String> = conntrack::zones(connections)
            .iter()
            .map(ToString::to_string)
            .collect();
        let zones = match zones.as_slice() {
            [] => String::new(),
            [zone] => format!(", zone {zone}"),
            zones => format!(", zones {}", zones.join(", ")),
        };
        let others = count_noun(others, "tracked connection", "tracked connections");
        let reason = format!("{REASON}; packets of probes belong to none of these connections");
        report.add_omitted(format!("{others}{zones}"), reason, "");
    }
}

/// Lists the connections to which packets of probes can belong: the kernel then translates the
/// packets as for these connections, and the rules do not decide. Returns the number of the
/// connections.
fn list_met_connections(plan: &Plan, dump: &NodeDump, report: &mut ReplayReport) -> usize {
    let connections = dump.connections.as_deref().unwrap_or_default();
    let owners = owners_of_addresses(plan);
    let stale = dump.stale_connections();
    let stale: BTreeSet<Tuple> = stale
        .into_values()
        .flatten()
        .map(|connection| connection.original)
        .collect();
    let mut listed: BTreeSet<Tuple> = BTreeSet::new();
    let mut targets: BTreeMap<(Protocol, SocketAddr), BTreeSet<&str>> = BTreeMap::new();
    let mut met: BTreeMap<(Protocol, SocketAddr), Vec<&Connection>> = BTreeMap::new();
    for probe in plan.probes() {
        let Ok(protocol) = Protocol::try_from(probe.protocol) else {
            continue;
        };
        let key = (protocol, probe.target.socket());
        for connection in connections {
            let is_stale = stale.contains(&connection.original);
            if may_meet(probe, protocol, connection, is_stale, &owners) {
                targets.entry(key).or_default().insert(&probe.name);
                if listed.insert(connection.original) {
                    met.entry(key).or_default().push(connection);
                }
            }
        }
    }
    for ((protocol, target), connections) in &met {
        let servers: BTreeSet<String> = connections
            .iter()
            .map(|connection| {
                let is_stale = stale.contains(&connection.original);
                describe_server(connection, is_stale, &owners)
            })
            .collect();
        let servers: Vec<String> = servers.into_iter().collect();
        let probes = targets.get(&(*protocol, *target)).into_iter().flatten();
        let probes: Vec<String> = probes.map(|probe| (*probe).to_owned()).collect();
        let name = protocol.name().to_uppercase();
        report.add_omitted(
            count_noun(
                connections.len(),
                &format!("tracked {name} connection to {target}"),
                &format!("tracked {name} connections to {target}"),
            ),
            REASON,
            format!(
                "packets of {} from the same source port go to {}; rules of NAT do not decide",
                list_names(&probes),
                list_names(&servers)
            ),
        );
    }
    listed.len()
}

/// Whether a packet of the probe can belong to the connection. The kernel of a client chooses a free
/// port for each TCP connection, but a UDP socket can keep its port, and a port of a stale
/// connection is free.
fn may_meet(
    probe: &Probe,
    protocol: Protocol,
    connection: &Connection,
    is_stale: bool,
    owners: &BTreeMap<IpAddr, BTreeSet<&str>>,
) -> bool {
    let original = &connection.original;
    let has_target = connection.protocol == Some(protocol)
        && original.destination == probe.target.address
        && original.destination_port == Some(probe.target.port);
    let has_port = match probe.source_port_of(0) {
        Some(first) => original.source_port.is_some_and(|port| {
            let last = probe.source_port_of(probe.connections.saturating_sub(1));
            let last = last.unwrap_or(first);
            (first..=last).contains(&port)
        }),
        None => is_stale || probe.protocol == ProbeProtocol::Udp,
    };
    // Other nodes and hosts can have the source of the probe after NAT.
    let has_source = owners.get(&original.source).is_none_or(|owners| {
        owners.contains(probe.namespace.as_str())
            || !owners.iter().any(|owner| owner.starts_with("pod/"))
    });
    has_target && has_port && has_source
}

/// Returns the namespaces that have each address.
fn owners_of_addresses(plan: &Plan) -> BTreeMap<IpAddr, BTreeSet<&str>> {
    let mut owners: BTreeMap<IpAddr, BTreeSet<&str>> = BTreeMap::new();
    for namespace in &plan.namespaces {
        for address in namespace.links.iter().flat_map(|link| &link.addresses) {
            let owners = owners.entry(address.ip()).or_default();
            owners.insert(namespace.name.as_str());
        }
    }
    owners
}

/// Returns the server of a connection after NAT, with a note if the lab has no such address.
fn describe_server(
    connection: &Connection,
    is_stale: bool,
    owners: &BTreeMap<IpAddr, BTreeSet<&str>>,
) -> String {
    let address = connection.reply.source;
    let port = connection.reply.source_port.unwrap_or_default();
    let server = SocketAddr::new(address, port);
    if is_stale && address == connection.original.destination {
        format!("{server} (stale: not translated)")
    } else if is_stale {
        format!("{server} (stale: no rule names it)")
    } else if owners.contains_key(&address) {
        server.to_string()
    } else {
        format!("{server} (no address of the lab)")
    }
}

/// Lists servers for which source NAT has few free ports.
fn list_used_ports(connections: &[Connection], report: &mut ReplayReport) {
    let mut used: BTreeMap<(Protocol, SocketAddr, IpAddr), usize> = BTreeMap::new();
    for connection in connections {
        let Connection {
            protocol,
            original,
            reply,
            ..
        } = connection;
        if let (Some(protocol), Some(port)) = (protocol, reply.source_port)
            && reply.destination != original.source
        {
            let server = SocketAddr::new(reply.source, port);
            *used
                .entry((*protocol, server, reply.destination))
                .or_default() += 1;
        }
    }
    for ((protocol, server, source), count) in used {
        if count * 100 >= NAT_PORTS * FEW_PORTS_PERCENT {
            let name = protocol.name().to_uppercase();
            report.add_omitted(
                format!("{count} tracked {name} connections from {source} to {server}"),
                REASON,
                "source NAT has few free ports, and the kernel drops packets for which it finds none",
            );
        }
    }
}

/// Whether rules of the dump count tracked connections.
fn counts_connections(dump: &NodeDump) -> bool {
    let tables = dump.rules.values().flat_map(|rules| &rules.tables);
    let chains = tables.flat_map(|table| &table.chains);
    let mut rules = chains.flat_map(|chain| &chain.rules);
    let tables = dump.nft.iter().flat_map(|nft| &nft.tables);
    let chains = tables.flat_map(|table| &table.chains);
    let mut nft_rules = chains.flat_map(|chain| &chain.rules);
    rules.any(|rule| rule.source_text().contains("-m connlimit"))
        || nft_rules.any(|rule| rule.to_string().contains("ct count"))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::num::NonZeroU16;

    use super::*;
    use svclab_dump::node::File;
    use svclab_model::plan::{Namespace, Stage, Target};
    use svclab_ruleset::tool::Format;

    /// Returns a plan with a client, a server and a node, and probes of the client.
    fn plan() -> Plan {
        let namespace = |name: &str, address: &str| -> Namespace {
            serde_json::from_value(serde_json::json!({
                "name": name,
                "links": [{"name": "eth0", "kind": {"is": "dummy"}, "mac": "0a:58:00:00:00:01", "addresses": [address]}],
                "routes": [], "neighbours": [], "forwarding": [], "sysctls": [],
            }))
            .expect("a namespace")
        };
        let probe = |name: &str, protocol: ProbeProtocol, port: u16| Probe {
            name: name.to_owned(),
            namespace: "pod/default/client".to_owned(),
            target: Target {
                address: [10, 96, 0, 10].into(),
                port,
            },
            protocol,
            connections: 1,
            concurrency: None,
            bind: None,
            source_port: None,
            bytes: None,
            datagrams: std::num::NonZeroU32::MIN,
            max_wait: std::time::Duration::from_secs(1),
            settle: false,
            after: None,
            lifetime: svclab_model::plan::Lifetime::Stage,
        };
        let fixed = Probe {
            source_port: NonZeroU16::new(4000),
            ..probe("fixed", ProbeProtocol::Tcp, 81)
        };
        Plan {
            namespaces: vec![
                namespace("node-1", "192.168.0.1/24"),
                namespace("pod/default/client", "10.244.1.5/32"),
                namespace("pod/default/dns", "10.244.1.9/32"),
            ],
            stages: vec![Stage::new(vec![
                probe("dns", ProbeProtocol::Udp, 53),
                probe("web", ProbeProtocol::Tcp, 80),
                probe("ping", ProbeProtocol::Ping, 0),
                fixed,
            ])],
            ..Plan::default()
        }
    }

    /// Returns a line of `conntrack -L`, with the destination 10.96.0.10.
    fn line(protocol: &str, source: &str, ports: (u16, u16), server: &str) -> String {
        let (from, to) = ports;
        format!(
            "{protocol} 1 30 src={source} dst=10.96.0.10 sport={from} dport={to} src={server} \
             dst=192.168.0.1 sport=8053 dport={from} [ASSURED] mark=0 use=1\n"
        )
    }

    /// Returns the omitted parts of a dump with connections and rules.
    fn omitted(connections: &str, rules: &str) -> String {
        let files = [("conntrack-L", connections), ("iptables-save", rules)];
        let files = files.map(|(name, text)| File {
            name: name.to_owned(),
            format: Format::from_file_name(name),
            text: text.to_owned(),
        });
        let read = NodeDump::parse(files.into());
        assert!(read.has_no_errors(), "{:?}", read.diagnostics);
        let mut report = ReplayReport::new("node-1");
        list_connections(&plan(), &read.dump, &mut report);
        let mut text = format!("may affect packets: {}\n", report.has_unknown_effects());
        for item in &report.omitted {
            let _ = writeln!(text, "{}", item.render_lines().join("\n"));
        }
        text
    }

    #[test]
    fn connections_of_other_packets_have_no_effect() {
        let lines = [
            // New TCP connections have other ports.
            line("tcp", "10.244.1.5", (4000, 80), "10.244.1.9"),
            // Another pod, another port, another protocol.
            line("udp", "10.244.1.9", (4000, 53), "10.244.1.9"),
            line("udp", "10.244.1.5", (4000, 54), "10.244.1.9"),
            line("sctp", "10.244.1.5", (4000, 53), "10.244.1.9"),
            line("tcp", "10.244.1.5", (4001, 81), "10.244.1.9"),
        ];
        insta::assert_snapshot!(omitted(&lines.concat(), ""), @r"
        may affect packets: false
        5 tracked connections: a lab starts without connections; packets of probes belong to none of these connections
        ");
    }

    #[test]
    fn connections_of_probed_packets_are_named() {
        let lines = [
            line("udp", "10.244.1.5", (5000, 53), "10.244.1.9"),
            line("udp", "192.168.0.1", (5001, 53), "10.244.3.7"),
            line("udp", "203.0.113.9", (5002, 53), "10.244.3.7"),
            line("tcp", "10.244.1.5", (4000, 81), "10.244.1.9"),
            line("tcp", "10.244.1.5", (4000, 80), "10.244.1.9"),
        ];
        insta::assert_snapshot!(omitted(&lines.concat(), ""), @r"
        may affect packets: true
        1 tracked TCP connection to 10.96.0.10:81: a lab starts without connections; packets of fixed from the same source port go to 10.244.1.9:8053; rules of NAT do not decide
        3 tracked UDP connections to 10.96.0.10:53: a lab starts without connections; packets of dns from the same source port go to 10.244.1.9:8053, 10.244.3.7:8053 (no address of the lab); rules of NAT do not decide
        1 tracked connection: a lab starts without connections; packets of probes belong to none of these connections
        ");
    }

    #[test]
    fn stale_connections_of_probed_packets_are_named() {
        let rules = "*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp \
                     --dport 80 -j DNAT --to-destination 10.244.1.9:8053\nCOMMIT\n";
        let unreplied = |line: String| line.replace("[ASSURED]", "[UNREPLIED]");
        let lines = [
            unreplied(line("tcp", "192.168.0.1", (4000, 80), "10.244.3.7")),
            unreplied(line("tcp", "10.244.1.5", (4001, 80), "10.96.0.10")).replace("8053", "80"),
            unreplied(line("tcp", "10.244.1.5", (4002, 80), "10.244.1.9")),
            unreplied(line("tcp", "10.244.1.5", (4004, 80), "10.244.3.7"))
                .replace("use=1", "zone=1"),
            line("tcp", "10.244.1.5", (4003, 80), "10.244.3.7"),
        ];
        insta::assert_snapshot!(omitted(&lines.concat(), rules), @r"
        may affect packets: true
        2 tracked TCP connections to 10.96.0.10:80: a lab starts without connections; packets of web from the same source port go to 10.244.3.7:8053 (stale: no rule names it), 10.96.0.10:80 (stale: not translated); rules of NAT do not decide
        3 tracked connections, zone 1: a lab starts without connections; packets of probes belong to none of these connections
        ");
    }

    #[test]
    fn used_ports_and_counting_rules_are_named() {
        let lines = |count: u16| -> String {
            let ports = (0..count).map(|port| (port + 1024, 9));
            ports
                .map(|ports| line("tcp", "10.244.1.5", ports, "10.9.9.9"))
                .collect()
        };
        let rules = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -m connlimit --connlimit-upto 9 \
                     --connlimit-mask 32 --connlimit-saddr -j ACCEPT\nCOMMIT\n";
        insta::assert_snapshot!(omitted(&lines(61_287), rules), @r"
        may affect packets: true
        61287 tracked TCP connections from 192.168.0.1 to 10.9.9.9:8053: a lab starts without connections; source NAT has few free ports, and the kernel drops packets for which it finds none
        connections that rules count (`connlimit`, `ct count`): a lab starts without connections; the rules count fewer connections than on the node
        61287 tracked connections: a lab starts without connections; packets of probes belong to none of these connections
        ");
        assert!(!omitted(&lines(61_286), "").contains("free ports"));
        assert!(!omitted("", rules).contains("connlimit"));
    }
}
