//! Uses `ipvsadm` to check the virtual servers that the agent created in the kernel.

use std::net::SocketAddr;

use svclab_model::plan::{Namespace, Plan};
use svclab_planner::print::{BuildPhase, batch_commands};
use svclab_ruleset::Protocol;
use svclab_ruleset::ipvs::{
    Forwarding, RealServer, SchedulerFlags, Timeouts, VirtualServer, VirtualServerKey,
};
use svclab_test_support::block_on;
use svclab_test_support::cases::prepare_case;

use super::programs::{guest_with_ipvsadm, run_program, save_virtual_servers, sorted_lines};

fn real_server(to: &str, weight: u32, forwarding: Forwarding) -> RealServer {
    RealServer {
        address: to.parse().expect("an address and a port"),
        weight,
        method: forwarding,
    }
}

fn server_by_address(
    protocol: Protocol,
    address: &str,
    scheduler: &str,
    persistence: Option<u32>,
    servers: Vec<RealServer>,
) -> VirtualServer {
    let at: SocketAddr = address.parse().expect("an address and a port");
    VirtualServer {
        key: VirtualServerKey::Address {
            protocol,
            address: at.ip(),
            port: at.port(),
        },
        scheduler: scheduler.to_owned(),
        persistence,
        flags: SchedulerFlags::default(),
        servers,
    }
}

fn server_by_mark(mark: u32, v6: bool, scheduler: &str, servers: Vec<RealServer>) -> VirtualServer {
    VirtualServer {
        key: VirtualServerKey::FwMark { mark, is_v6: v6 },
        scheduler: scheduler.to_owned(),
        persistence: None,
        flags: SchedulerFlags::default(),
        servers,
    }
}

/// Returns every kind of virtual server, real server and scheduler.
fn every_kind_of_server() -> Vec<VirtualServer> {
    use Forwarding::{Masquerade, Route, Tunnel};
    use Protocol::{Sctp, Tcp, Udp};
    let mut servers = vec![
        server_by_address(
            Tcp,
            "10.96.0.1:443",
            "rr",
            Some(10800),
            vec![
                real_server("10.0.1.2:6443", 1, Masquerade),
                real_server("10.0.2.2:6443", 7, Masquerade),
                real_server("10.0.3.2:6443", 0, Masquerade),
            ],
        ),
        server_by_address(
            Udp,
            "10.96.0.10:53",
            "wrr",
            None,
            vec![real_server("10.0.1.3:5353", 3, Masquerade)],
        ),
        server_by_address(
            Sctp,
            "10.96.0.11:38412",
            "wlc",
            Some(60),
            vec![real_server("10.0.1.4:38412", 1, Masquerade)],
        ),
        // Real servers with forwarding by route or tunnel have the port of the virtual server.
        server_by_address(
            Tcp,
            "10.96.0.12:80",
            "sh",
            None,
            vec![
                real_server("10.0.1.5:80", 1, Route),
                real_server("10.0.2.5:80", 1, Tunnel),
            ],
        ),
        server_by_address(
            Tcp,
            "[fd00:96::1]:443",
            "lc",
            Some(300),
            vec![
                real_server("[fd00:1::2]:6443", 1, Masquerade),
                real_server("[fd00:2::2]:6443", 2, Masquerade),
            ],
        ),
        server_by_address(Udp, "[fd00:96::1]:443", "rr", None, Vec::new()),
        server_by_mark(
            100,
            false,
            "rr",
            vec![
                real_server("10.0.1.1:30443", 1, Masquerade),
                real_server("10.0.2.1:30443", 0, Masquerade),
            ],
        ),
        server_by_mark(101, false, "rr", Vec::new()),
        server_by_mark(
            0x7fff_0001,
            true,
            "wrr",
            vec![real_server("[fd00:1::1]:30443", 1, Masquerade)],
        ),
    ];
    // Every scheduler in the documentation of kube-proxy.
    let schedulers = [
        "rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh",
    ];
    for (scheduler, port) in schedulers.into_iter().zip(1000..) {
        servers.push(server_by_address(
            Tcp,
            &format!("10.96.0.20:{port}"),
            scheduler,
            None,
            vec![real_server("10.0.1.6:8080", 1, Masquerade)],
        ));
    }
    // Flags of the hashing schedulers: one, the other, and both.
    for (scheduler, port) in [("sh", 2000), ("mh", 2010)] {
        for (fallback, hashed) in [(true, false), (false, true), (true, true)] {
            let port = port + u16::from(fallback) + 2 * u16::from(hashed);
            let mut server = server_by_address(
                Tcp,
                &format!("10.96.0.20:{port}"),
                scheduler,
                (port % 2 == 0).then_some(60),
                vec![real_server("10.0.1.6:8080", 1, Masquerade)],
            );
            server.flags = SchedulerFlags {
                fallback,
                hash_port: hashed,
            };
            servers.push(server);
        }
    }
    servers
}

/// Returns a plan with a namespace with virtual servers and timeouts, and an empty one.
fn plan() -> Plan {
    Plan {
        namespaces: vec![
            Namespace {
                name: "written".to_owned(),
                ipvs: every_kind_of_server(),
                ipvs_timeouts: Some(Timeouts {
                    tcp: 1234,
                    tcp_fin: 0,
                    udp: 56,
                }),
                ..Namespace::default()
            },
            Namespace {
                name: "empty".to_owned(),
                ..Namespace::default()
            },
        ],
        ..Plan::default()
    }
}

#[test]
fn ipvs_every_kind_of_server_is_read_back_by_ipvsadm() {
    block_on(async {
        let agent = guest_with_ipvsadm().await;
        let plan = plan();
        let mut session = agent.build(plan.clone()).await.expect("a lab");
        let written: String = every_kind_of_server()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            save_virtual_servers(&mut session, "written").await,
            sorted_lines(&written)
        );
        assert_eq!(save_virtual_servers(&mut session, "empty").await, [""; 0]);

        // Default timeouts of the kernel (Linux v6.12, `net/netfilter/ipvs/ip_vs_proto_tcp.c`,
        // `ip_vs_proto_udp.c`).
        let times = ["-L", "--timeout"];
        let configured = run_program(&mut session, "written", "ipvsadm", &times, "").await;
        assert_eq!(configured.trim(), "Timeout (tcp tcpfin udp): 1234 120 56");
        let defaults = run_program(&mut session, "empty", "ipvsadm", &times, "").await;
        assert_eq!(defaults.trim(), "Timeout (tcp tcpfin udp): 900 120 300");

        // The output of `svclab plan` creates the same virtual servers.
        let printed = batch_commands(&plan);
        let step = printed
            .iter()
            .find(|step| step.phase == BuildPhase::VirtualServers)
            .expect("virtual servers are printed");
        assert_eq!(step.command, ["ipvsadm", "-R"]);
        run_program(&mut session, "empty", "ipvsadm", &["-R"], &step.text).await;
        assert_eq!(
            save_virtual_servers(&mut session, "empty").await,
            sorted_lines(&written)
        );
        let read = run_program(&mut session, "empty", "ipvsadm", &times, "").await;
        assert_eq!(read, configured);
    });
}

#[test]
fn ipvs_servers_of_cases_match_plan() {
    // A node that connects to itself through kube-ipvs0, and a balancer with firewall marks. Both
    // cases also pass.
    for name in [
        "missing-cluster-cidr/clusterCIDR=right,byHand=nothing,apiserver=apart",
        "clb-hairpin/policy=Cluster,ingress=both,balancer=internal,rpFilter=0,byHand=nothing",
    ] {
        block_on(async {
            let prepared = prepare_case(name);
            let agent = guest_with_ipvsadm().await;
            let mut session = agent.build(prepared.plan.clone()).await.expect("a lab");
            let mut checked = 0;
            for namespace in &prepared.plan.namespaces {
                let planned: String = namespace.ipvs.iter().map(ToString::to_string).collect();
                let read = save_virtual_servers(&mut session, &namespace.name).await;
                assert_eq!(read, sorted_lines(&planned), "{name}: {}", namespace.name);
                checked += usize::from(!read.is_empty());
                let Some(holder) = namespace
                    .links
                    .iter()
                    .find(|link| link.name == "kube-ipvs0")
                else {
                    continue;
                };
                let shown = run_program(
                    &mut session,
                    &namespace.name,
                    "ip",
                    &["-oneline", "address", "show", "kube-ipvs0"],
                    "",
                )
                .await;
                let held: Vec<&str> = shown
                    .lines()
                    .filter_map(|line| line.split(" inet ").nth(1)?.split_whitespace().next())
                    .collect();
                let planned: Vec<String> =
                    holder.addresses.iter().map(ToString::to_string).collect();
                assert!(!held.is_empty());
                assert_eq!(held, planned, "{shown}");
                let link = ["-oneline", "link", "show", "kube-ipvs0"];
                let link = run_program(&mut session, &namespace.name, "ip", &link, "").await;
                assert!(link.contains("<BROADCAST,NOARP>"), "{link}");
                assert!(link.contains(" state DOWN "), "{link}");
            }
            assert!(checked >= 2, "{name}");
            let evidence = session.probe().await.expect("evidence");
            let judgement = prepared
                .judge()
                .expect("the case can be judged")
                .judge(&evidence);
            assert!(judgement.holds(), "{name}: {judgement:#?}");
        });
    }
}
