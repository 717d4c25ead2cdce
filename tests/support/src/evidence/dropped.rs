//! Sends packets that the kernel drops for each known reason, and compares the recorded drops with
//! the kernel's counters.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use svclab_model::evidence::{DropEvidence, DroppedPacket, StageEvidence};
use svclab_model::plan::{
    Backend, EvidenceRequest, Iptables, Lifetime, Plan, Probe, ProbeProtocol, Sysctl, Target,
};
use svclab_ruleset::input::Input;

use crate::small_plan;

/// Wait of each probe; longer than the kernel needs. Unanswered packets are datagrams, because a
/// slow kernel would retransmit a SYN.
const MAX_WAIT: Duration = Duration::from_millis(300);

/// Addresses of the client: one of its own network, and one to which the router has no route.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
const UNROUTED_CLIENT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// Addresses of the router, of the server behind it, and of no host.
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const UNUSED_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

const RULES: &str = "*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A FORWARD -d 10.0.2.2/32 -p udp -m udp --dport 7001 -j DROP
COMMIT
";

/// Place where the kernel also counts a dropped packet.
enum DropCounter {
    /// The counters of the rule that ends with this text.
    Rule(&'static str),
    /// The counters of the policy of this chain.
    Policy(&'static str),
    /// This counter of the namespace.
    Kernel(&'static str),
}

/// Packets that are dropped in the same way.
struct ExpectedDrop {
    /// Destination port, unique among all entries.
    port: u16,
    protocol: ProbeProtocol,
    from: Ipv4Addr,
    to: Ipv4Addr,
    packets: u32,
    /// Namespace, interface and reason of the drop (Linux v6.12, `include/net/dropreason-core.h`).
    namespace: &'static str,
    interface: &'static str,
    reason: &'static str,
    counted: DropCounter,
}

/// Returns all entries without an expired TTL; with `short`, only the entry of a client with a low
/// TTL.
fn expected_drops(short: bool) -> Vec<ExpectedDrop> {
    let way = |port, to, packets, reason, counted| ExpectedDrop {
        port,
        protocol: ProbeProtocol::Udp,
        from: CLIENT,
        to,
        packets,
        namespace: "router",
        interface: "client",
        reason,
        counted,
    };
    let kernel = DropCounter::Kernel;
    if short {
        return vec![way(7007, SERVER, 7, "IP_INHDR", kernel("IpInHdrErrors"))];
    }
    let refused = |port, protocol, packets, counter| ExpectedDrop {
        protocol,
        namespace: "pod/default/web",
        interface: "eth0",
        ..way(port, SERVER, packets, "NO_SOCKET", kernel(counter))
    };
    let rule = DropCounter::Rule("--dport 7001 -j DROP");
    vec![
        way(7001, SERVER, 2, "NETFILTER_DROP", rule),
        way(
            7002,
            ROUTER,
            3,
            "NETFILTER_DROP",
            DropCounter::Policy("INPUT"),
        ),
        ExpectedDrop {
            from: UNROUTED_CLIENT,
            ..way(
                7003,
                SERVER,
                4,
                "IP_RPFILTER",
                kernel("TcpExtIPReversePathFilter"),
            )
        },
        way(
            7004,
            UNUSED_ADDRESS,
            5,
            "IP_INNOROUTES",
            kernel("IpExtInNoRoutes"),
        ),
        refused(7005, ProbeProtocol::Tcp, 2, "TcpOutRsts"),
        refused(7006, ProbeProtocol::Udp, 6, "UdpNoPorts"),
    ]
}

/// Builds the plan, with `times` the number of packets. With `short`, the TTL of the packets
/// expires.
pub fn drop_plan(backend: Backend, times: u32, ttl_expires: bool) -> Plan {
    let mut plan = small_plan();
    for namespace in &mut plan.namespaces {
        match namespace.name.as_str() {
            "router" => {
                namespace.ipset = Input::default();
                namespace.iptables = Some(Iptables {
                    backend,
                    v4: Input::from_text(RULES),
                    v6: Input::default(),
                });
                for setting in &mut namespace.sysctls {
                    if setting.link.as_deref() == Some("client") {
                        "1".clone_into(&mut setting.value);
                    }
                }
            }
            "host/client" => {
                let strange = IpAddr::from(UNROUTED_CLIENT).into();
                namespace.links[0].addresses.push(strange);
                if ttl_expires {
                    namespace.sysctls.push(Sysctl {
                        key: "net.ipv4.ip_default_ttl".to_owned(),
                        value: "1".to_owned(),
                        link: None,
                        optional: false,
                    });
                }
            }
            _ => {}
        }
    }
    plan.servers.clear();
    plan.stages[0].probes = expected_drops(ttl_expires)
        .iter()
        .map(|way| Probe {
            name: way.port.to_string(),
            namespace: "host/client".to_owned(),
            target: Target {
                address: way.to.into(),
                port: way.port,
            },
            protocol: way.protocol,
            connections: way.packets * times,
            concurrency: None,
            bind: Some(way.from.into()),
            source_port: None,
            bytes: None,
            datagrams: NonZeroU32::MIN,
            max_wait: MAX_WAIT,
            settle: false,
            after: None,
            lifetime: Lifetime::Stage,
        })
        .collect();
    plan.evidence = EvidenceRequest::everything(&plan);
    plan
}

/// Builds a plan with many connections whose packets the router drops, each sent several times.
pub fn retransmission_plan() -> Plan {
    let mut plan = drop_plan(Backend::Nft, 1, false);
    for namespace in &mut plan.namespaces {
        if let Some(iptables) = &mut namespace.iptables {
            iptables.v4 = Input::from_text(RULES.replace("udp", "tcp"));
        }
    }
    let probes = &mut plan.stages[0].probes;
    probes.truncate(1);
    for probe in probes {
        probe.protocol = ProbeProtocol::Tcp;
        probe.connections = 500;
        probe.max_wait = Duration::from_millis(3500);
    }
    plan
}

/// Asserts that all drops of [`retransmission_plan`] that the kernel counted were recorded or
/// counted as missed, except `hidden` ones for which the kernel runs no program.
pub fn check_retransmissions(evidence: &StageEvidence, hidden: u64) {
    let DropEvidence::Watched { missed, dropped } = &evidence.drops else {
        panic!("{:?}", evidence.drops);
    };
    let way = &expected_drops(false)[0];
    let ports = dropped.iter().map(|each| client_port(&each.packet));
    let recorded = ports.filter(|port| *port == Some(way.port)).count();
    let recorded = u64::try_from(recorded).expect("a number");
    let counted = counted_packets(evidence, way).expect("the counter");
    let counted = u64::try_from(counted).expect("a number");
    assert!(counted > 1000, "{counted}");
    assert!(recorded <= counted, "{recorded} of {counted}");
    assert!(
        recorded + missed + hidden >= counted,
        "{recorded}, {missed} and {hidden} of {counted}"
    );
}

/// Returns the destination port of a packet from the client; `None` for other packets.
fn client_port(packet: &[u8]) -> Option<u16> {
    let source: [u8; 4] = *packet.get(12..)?.first_chunk()?;
    let is_from_client =
        packet.first() == Some(&0x45) && [CLIENT, UNROUTED_CLIENT].contains(&source.into());
    let port = u16::from_be_bytes(*packet.get(22..)?.first_chunk()?);
    is_from_client.then_some(port)
}

/// Compares the recorded drops with the expected ones and with the counters.
pub fn check_drops(evidence: &StageEvidence, times: u32, short: bool) {
    let DropEvidence::Watched {
        missed: lost,
        dropped,
    } = &evidence.drops
    else {
        panic!("{:?}", evidence.drops);
    };
    assert_eq!(*lost, 0);
    let mut found: BTreeMap<u16, Vec<&DroppedPacket>> = BTreeMap::new();
    for each in dropped {
        if let Some(port) = client_port(&each.packet) {
            found.entry(port).or_default().push(each);
        }
    }
    for way in expected_drops(short) {
        let packets = usize::try_from(way.packets * times).expect("the number fits");
        let found = found.remove(&way.port).unwrap_or_default();
        assert_eq!(found.len(), packets, "{} {dropped:#?}", way.port);
        for each in found {
            let location = (each.namespace.as_str(), each.interface.as_deref());
            assert_eq!(location, (way.namespace, Some(way.interface)), "{each:?}");
            assert_eq!(each.reason, way.reason, "{each:?}");
            // A function name, without any address of kernel memory.
            let function = each.function.as_deref().expect("a function");
            let is_name = |each: char| each.is_ascii_alphanumeric() || each == '_';
            assert!(
                function.chars().all(is_name) && !function.starts_with("0x"),
                "{function}"
            );
        }
        let counted = counted_packets(evidence, &way);
        assert_eq!(
            counted,
            Some(i64::try_from(packets).expect("the number fits")),
            "{}",
            way.port
        );
    }
    // No packet of the client was dropped in any other way.
    assert!(found.is_empty(), "{found:#?}");
}

/// Returns the number of packets that the kernel counted for an entry.
fn counted_packets(evidence: &StageEvidence, way: &ExpectedDrop) -> Option<i64> {
    let rules = evidence.rules.iter();
    let rules = rules.filter(|rules| rules.namespace == way.namespace && rules.ip_version == 4);
    let mut lines = rules.flat_map(|rules| rules.text.lines());
    let packets = |counters: &str| counters.split(':').next()?.parse().ok();
    match way.counted {
        DropCounter::Rule(words) => {
            let line = lines.find(|line| line.ends_with(words))?;
            packets(line.strip_prefix('[')?)
        }
        DropCounter::Policy(chain) => {
            let line = lines.find_map(|line| line.strip_prefix(&format!(":{chain} DROP [")))?;
            packets(line)
        }
        DropCounter::Kernel(counter) => evidence.counters.get(way.namespace)?.get(counter).copied(),
    }
}
