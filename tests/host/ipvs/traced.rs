//! Tests the evidence of IPVS connections.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use svclab_model::evidence::Verdict;
use svclab_model::plan::{Plan, Probe};
use svclab_ruleset::Protocol;
use svclab_ruleset::input::Input;
use svclab_ruleset::ipvs::{
    Forwarding, RealServer, SchedulerFlags, VirtualServer, VirtualServerKey,
};
use svclab_test_support::evidence::single_stage;
use svclab_test_support::guests::new_guest;
use svclab_test_support::{block_on, small_plan};

/// Addresses of virtual servers and their real servers, for IPv4 and IPv6.
const VIRTUAL_SERVERS: [(&str, &str); 2] = [
    ("10.96.0.1:80", "10.0.2.2:8080"),
    ("[fd00:96::1]:80", "[fd00:2::2]:8080"),
];

fn socket(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

/// Returns a plan with a client, a router with virtual servers, and a server.
fn plan() -> Plan {
    let mut plan = small_plan();
    plan.evidence.trace = vec!["router".to_owned(), "host/client".to_owned()];
    let probe = plan.stages[0].probes.remove(0);
    plan.stages[0].probes = VIRTUAL_SERVERS
        .iter()
        .map(|(served, _)| {
            let mut probe = Probe {
                name: (*served).to_owned(),
                connections: 2,
                ..probe.clone()
            };
            probe.target.address = socket(served).ip();
            probe
        })
        .collect();
    for router in &mut plan.namespaces {
        if router.name != "router" {
            continue;
        }
        router.iptables = None;
        router.ipset = Input::default();
        for (served, by) in VIRTUAL_SERVERS {
            router.links[0].addresses.push(socket(served).ip().into());
            router.ipvs.push(VirtualServer {
                key: VirtualServerKey::Address {
                    protocol: Protocol::Tcp,
                    address: socket(served).ip(),
                    port: socket(served).port(),
                },
                scheduler: "rr".to_owned(),
                persistence: None,
                flags: SchedulerFlags::default(),
                servers: vec![RealServer {
                    address: socket(by),
                    weight: 1,
                    method: Forwarding::Masquerade,
                }],
            });
        }
    }
    plan
}

#[test]
fn ipvs_traced_namespace_records_chosen_real_servers() {
    block_on(async {
        let agent = new_guest("6.12").await.start().await.expect("a guest");
        let mut session = agent.build(plan()).await.expect("a lab");
        let evidence = single_stage(session.probe().await.expect("evidence"));
        for attempt in &evidence.attempts {
            assert_eq!(attempt.verdict, Verdict::Connected, "{attempt:?}");
        }
        let sources: BTreeSet<SocketAddr> = evidence
            .attempts
            .iter()
            .filter_map(|attempt| attempt.seen_source)
            .collect();
        assert_eq!(sources.len(), 4, "{:#?}", evidence.attempts);
        let clients: BTreeSet<SocketAddr> = evidence
            .ipvs_connections
            .iter()
            .map(|each| each.client)
            .collect();
        assert_eq!(clients, sources);
        assert_eq!(
            evidence.ipvs_connections.len(),
            4,
            "{:#?}",
            evidence.ipvs_connections
        );
        for each in &evidence.ipvs_connections {
            assert_eq!((each.namespace.as_str(), each.protocol), ("router", 6));
            let (server, real) = VIRTUAL_SERVERS[usize::from(each.client.is_ipv6())];
            assert_eq!(each.virtual_server, socket(server));
            assert_eq!(each.real_server, socket(real));
        }
    });
}
