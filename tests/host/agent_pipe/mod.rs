//! Tests the agent as a process that exchanges frames over pipes. It must leave nothing behind,
//! however it ends. As root, every test runs twice, the second time with an unprivileged user.

mod conversation;
mod processes;
mod served;
mod stalled;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use conversation::{Conversation, test_users};
use ipnetwork::IpNetwork;
use pnet::packet::Packet as _;
use pnet::packet::ethernet::EthernetPacket;
use pnet::packet::ipv4::Ipv4Packet;
use pnet::packet::tcp::{TcpFlags, TcpPacket};
use svclab_model::evidence::{Attempt, Direction, StageEvidence, Verdict};
use svclab_model::plan::Plan;
use svclab_model::protocol::{Event, FailureKind, Request, VERSION};
use svclab_ruleset::input::Input;
use svclab_test_support::evidence::single_stage;
use svclab_test_support::small_plan;

fn attempts_of_probe<'a>(evidence: &'a StageEvidence, probe: &str) -> Vec<&'a Attempt> {
    let attempts = evidence.attempts.iter();
    attempts.filter(|attempt| attempt.probe == probe).collect()
}

/// Counts the SYNs to `to` at an interface of the router.
fn count_syns(evidence: &StageEvidence, interface: &str, direction: Direction, to: &str) -> usize {
    let to: SocketAddr = to.parse().expect("an address and a port");
    let is_matching_syn = |frame: &[u8]| {
        let ethernet = EthernetPacket::new(frame)?;
        let ip = Ipv4Packet::new(ethernet.payload())?;
        let tcp = TcpPacket::new(ip.payload())?;
        let syn = tcp.get_flags() & (TcpFlags::SYN | TcpFlags::ACK) == TcpFlags::SYN;
        Some(syn && SocketAddr::new(ip.get_destination().into(), tcp.get_destination()) == to)
    };
    let packets = evidence.packets.iter();
    packets
        .filter(|packet| packet.interface == interface && packet.direction == direction)
        .filter(|packet| is_matching_syn(&packet.bytes) == Some(true))
        .count()
}

/// Returns the packet counter of the only rule whose text contains `words`.
fn rule_packets(evidence: &StageEvidence, ip: u8, words: &str) -> u64 {
    let rules = evidence.rules.iter().filter(|rules| rules.ip_version == ip);
    let lines: Vec<&str> = rules
        .flat_map(|rules| rules.text.lines())
        .filter(|line| line.contains(words))
        .collect();
    let [line] = lines[..] else {
        panic!("{words}: {lines:?}");
    };
    let counters = line.strip_prefix('[').expect(line);
    counters
        .split(':')
        .next()
        .and_then(|packets| packets.parse().ok())
        .expect(line)
}

#[test]
fn agent_small_plan_returns_complete_evidence() {
    for user in test_users() {
        let mut agent = Conversation::start(user);
        let Event::Ready {
            protocol,
            environment: surroundings,
        } = agent.recv()
        else {
            panic!("the agent is not ready");
        };
        assert_eq!(protocol, VERSION);
        assert!(!surroundings.kernel.is_empty());
        assert!(
            surroundings.tools.contains_key("iptables-nft-restore"),
            "{surroundings:?}"
        );

        let plan = small_plan();
        let names: BTreeSet<String> = plan.namespaces.iter().map(|ns| ns.name.clone()).collect();
        let descriptors = agent.build(7, plan);
        assert_eq!(descriptors.keys().cloned().collect::<BTreeSet<_>>(), names);
        let processes = agent.processes();
        let held: BTreeSet<String> = descriptors
            .values()
            .map(|descriptor| processes.lowest_descriptor_target(*descriptor))
            .collect();
        assert_eq!(held.len(), names.len(), "{held:?}");
        assert!(
            held.iter().all(|held| held.starts_with("net:[")),
            "{held:?}"
        );
        agent.send(&Request::Probe { lab: 7 });
        let Event::Probed { lab: 7, evidence } = agent.recv_answer() else {
            panic!("the lab was not probed");
        };
        let evidence = single_stage(*evidence);

        let verdicts = |probe| -> Vec<Verdict> {
            let attempts = attempts_of_probe(&evidence, probe);
            attempts.iter().map(|attempt| attempt.verdict).collect()
        };
        assert_eq!(verdicts("service"), [Verdict::Connected; 2]);
        assert_eq!(verdicts("blocked"), [Verdict::Timeout]);
        assert_eq!(verdicts("datagram"), [Verdict::Answered]);
        assert_eq!(verdicts("alive"), [Verdict::Answered]);
        assert_eq!(verdicts("refused6"), [Verdict::Refused]);
        assert_eq!(verdicts("tunnel"), [Verdict::Connected]);
        assert_eq!(verdicts("closed"), [Verdict::Refused]);
        for attempt in attempts_of_probe(&evidence, "service") {
            assert_eq!(attempt.endpoint.as_deref(), Some("pod/default/web"));
            assert_eq!(attempt.seen_source, attempt.local_address);
            assert!(
                attempt
                    .local_address
                    .is_some_and(|local| local.ip().to_string() == "10.0.1.2")
            );
        }
        let blocked = attempts_of_probe(&evidence, "blocked")[0];
        assert!(
            blocked.duration >= Duration::from_millis(300),
            "{blocked:?}"
        );

        // The client may retransmit a SYN on a busy machine.
        let (before, after) = ("10.96.0.1:80", "10.0.2.2:8080");
        assert!(count_syns(&evidence, "client", Direction::In, before) >= 2);
        assert_eq!(count_syns(&evidence, "br0", Direction::Out, before), 0);
        assert_eq!(
            count_syns(&evidence, "client", Direction::In, before),
            count_syns(&evidence, "br0", Direction::Out, after)
        );
        assert!(count_syns(&evidence, "client", Direction::In, "10.0.2.2:9999") >= 1);
        assert_eq!(
            count_syns(&evidence, "br0", Direction::Out, "10.0.2.2:9999"),
            0
        );
        assert!(evidence.packets.is_sorted_by_key(|packet| packet.time));
        assert!(
            evidence
                .packets
                .iter()
                .all(|packet| packet.namespace == "router")
        );
        assert_eq!(evidence.packets_missed, 0);

        // The connections of all TCP probes, and no others.
        assert_eq!(
            evidence.counters.keys().collect::<Vec<_>>(),
            ["host/client"]
        );
        assert_eq!(
            evidence.counters["host/client"].get("TcpActiveOpens"),
            Some(&6)
        );

        assert_eq!(rule_packets(&evidence, 4, "-j DNAT"), 2);
        assert!(rule_packets(&evidence, 4, "-j DROP") >= 1);
        assert!(rule_packets(&evidence, 6, "-j REJECT") >= 1);

        agent.send(&Request::Remove { lab: 7 });
        assert_eq!(agent.recv_answer(), Event::Removed { lab: 7 });
        // The lab ID is free again.
        agent.build(7, Plan::default());
    }
}

#[test]
fn agent_removal_cancels_unfinished_probes() {
    for user in test_users() {
        let mut agent = Conversation::start_ready(user);
        agent.build(2, small_plan());
        let mut plan = small_plan();
        let probes = &mut plan.stages[0].probes;
        let blocked = probes.iter_mut().find(|probe| probe.name == "blocked");
        let blocked = blocked.expect("a probe without an answer");
        blocked.max_wait = Duration::from_hours(1);
        blocked.settle = false;
        agent.build(1, plan);
        agent.send(&Request::Probe { lab: 1 });
        while !matches!(agent.recv(), Event::Step { lab: 1, .. }) {}
        agent.send(&Request::Remove { lab: 1 });
        assert_eq!(agent.recv_answer(), Event::Removed { lab: 1 });
        // The other lab, and a new one of the same ID, still work.
        agent.build(1, small_plan());
        for lab in [1, 2] {
            agent.send(&Request::Probe { lab });
            let answer = agent.recv_answer();
            assert!(
                matches!(answer, Event::Probed { lab: own, .. } if own == lab),
                "{answer:?}"
            );
        }
    }
}

#[test]
fn agent_invalid_request_keeps_other_labs() {
    for user in test_users() {
        let mut agent = Conversation::start_ready(user);
        let fault_of = |event: Event| match event {
            Event::Failed { lab, failure } => (lab, failure.kind),
            other => panic!("{other:?}"),
        };
        for request in [Request::Probe { lab: 1 }, Request::Remove { lab: 1 }] {
            agent.send(&request);
            assert_eq!(
                fault_of(agent.recv_answer()),
                (1, FailureKind::Bug),
                "{request:?}"
            );
        }
        agent.build(2, Plan::default());
        agent.send(&Request::Build {
            lab: 2,
            plan: Box::default(),
            accepts_changes: false,
            is_profiled: false,
        });
        assert_eq!(fault_of(agent.recv_answer()), (2, FailureKind::Bug));

        let mut wrong = small_plan();
        wrong.namespaces[1].iptables.as_mut().expect("rules").v4 =
            Input::from_text("*filter\n-A FORWARD --no-such-option\nCOMMIT\n");
        agent.send(&Request::Build {
            lab: 3,
            plan: Box::new(wrong),
            accepts_changes: false,
            is_profiled: false,
        });
        let Event::Failed { lab: 3, failure } = agent.recv_answer() else {
            panic!("the agent accepted an unknown option");
        };
        let rejected = failure.rejected.expect("the rejected line");
        assert_eq!(rejected.namespace, "router");
        assert_eq!(rejected.line, "-A FORWARD --no-such-option");
        assert_eq!(agent.recv_answer(), Event::Removed { lab: 3 });

        // The failed requests concerned other labs; lab 2 still works.
        agent.send(&Request::Probe { lab: 2 });
        assert!(matches!(agent.recv_answer(), Event::Probed { lab: 2, .. }));
    }
}

/// Adds IPv6 addresses to the client of the small plan.
fn add_addresses(plan: &mut Plan, count: u32) {
    let own = &mut plan.namespaces[0].links[0].addresses;
    own.extend((0..count).map(|number| {
        let address = format!("fd00:1::1:{number:x}/64");
        address.parse::<IpNetwork>().expect("an address")
    }));
}

/// Rules are loaded while routes are added. If both are rejected, the failure must not depend on
/// which is faster: the search for rejected rules of a dump omits routes first.
#[test]
fn agent_rejected_route_is_reported_before_rejected_rule() {
    let mut agent = Conversation::start_ready(test_users()[0]);
    let mut plan = small_plan();
    plan.namespaces[1].iptables.as_mut().expect("rules").v4 =
        Input::from_text("*filter\n-A FORWARD --no-such-option\nCOMMIT\n");
    let mut unreachable = plan.namespaces[0].routes[0].clone();
    unreachable.to = "198.51.100.0/24".parse().expect("a network");
    unreachable.via = Some("203.0.113.250".parse().expect("an address"));
    plan.namespaces[0].routes.push(unreachable);
    // The rule does not wait for interfaces, and is rejected long before the addresses are ready.
    plan.evidence.rules.clear();
    add_addresses(&mut plan, 1000);
    for lab in 0..3 {
        agent.send(&Request::Build {
            lab,
            plan: Box::new(plan.clone()),
            accepts_changes: false,
            is_profiled: false,
        });
        let Event::Failed { failure, .. } = agent.recv_answer() else {
            panic!("the agent accepted a route through an unknown next hop");
        };
        let rejected = failure.rejected.expect("the rejected route");
        assert!(rejected.line.contains("203.0.113.250"), "{rejected:?}");
        assert_eq!(agent.recv_answer(), Event::Removed { lab });
    }
}

/// The kernel completes IPv6 addresses in the background.
#[test]
fn agent_built_lab_has_usable_ipv6_addresses() {
    const ADDRESSES: u32 = 1000;
    for user in test_users() {
        let mut agent = Conversation::start_ready(user);
        let mut plan = small_plan();
        add_addresses(&mut plan, ADDRESSES);
        agent.build(1, plan);
        agent.send(&Request::Run {
            lab: 1,
            namespace: "host/client".to_owned(),
            program: "ip".to_owned(),
            arguments: ["-6", "-o", "addr"].map(str::to_owned).to_vec(),
            input: String::new(),
        });
        let Event::ProgramFinished { lab: 1, output } = agent.recv_answer() else {
            panic!("the program did not run");
        };
        let addresses = output
            .stdout
            .lines()
            .filter(|line| line.contains(" fd00:1::1:"));
        assert_eq!(addresses.count(), ADDRESSES as usize, "{}", output.stderr);
        let tentative = output
            .stdout
            .lines()
            .filter(|line| line.contains("tentative"));
        assert_eq!(tentative.collect::<Vec<_>>(), [""; 0]);
    }
}

#[test]
fn agent_stop_server_and_run_program_act_in_namespace() {
    for user in test_users() {
        let mut agent = Conversation::start_ready(user);
        let plan = small_plan();
        let server = plan.servers[0].name.clone();
        agent.build(1, plan);
        let mut run = |namespace: &str, program: &str| {
            agent.send(&Request::Run {
                lab: 1,
                namespace: namespace.to_owned(),
                program: program.to_owned(),
                arguments: vec!["-c".to_owned(), "cat; grep -o br0 /proc/net/dev".to_owned()],
                input: "read\n".to_owned(),
            });
            agent.recv_answer()
        };
        let Event::ProgramFinished {
            lab: 1,
            output: finished,
        } = run("router", "sh")
        else {
            panic!("the program did not run");
        };
        assert!(finished.success, "{}", finished.stderr);
        assert_eq!(finished.stdout, "read\nbr0\n");
        for (namespace, program, fault) in [
            ("nowhere", "sh", FailureKind::Bug),
            ("router", "no-such-program", FailureKind::Machine),
        ] {
            let Event::Failed { lab: 1, failure } = run(namespace, program) else {
                panic!("{program} ran in {namespace}");
            };
            assert_eq!(failure.kind, fault, "{failure}");
        }

        let stop = Request::Stop { lab: 1, server };
        agent.send(&stop);
        assert_eq!(agent.recv_answer(), Event::Stopped { lab: 1 });
        agent.send(&Request::Probe { lab: 1 });
        let Event::Probed { lab: 1, evidence } = agent.recv_answer() else {
            panic!("the lab was not probed");
        };
        let evidence = single_stage(*evidence);
        let verdicts: Vec<Verdict> = attempts_of_probe(&evidence, "service")
            .iter()
            .map(|attempt| attempt.verdict)
            .collect();
        assert_eq!(verdicts, [Verdict::Refused; 2]);
        agent.send(&stop);
        assert!(matches!(agent.recv_answer(), Event::Failed { lab: 1, .. }));
    }
}

#[test]
fn capture_packet_burst_counts_missed_packets() {
    const DATAGRAMS: u32 = 900;
    for user in test_users() {
        let mut agent = Conversation::start_ready(user);
        let mut plan = small_plan();
        plan.stages[0]
            .probes
            .retain(|probe| probe.name == "datagram");
        plan.stages[0].probes[0].connections = DATAGRAMS;
        plan.stages[0].probes[0].after = None;
        agent.build(1, plan);
        agent.send(&Request::Probe { lab: 1 });
        let Event::Probed { lab: 1, evidence } = agent.recv_answer() else {
            panic!("the lab was not probed");
        };
        let evidence = single_stage(*evidence);
        // The agent reads no packet before all are sent. The socket buffer is too small for all,
        // unless the administrator has raised `net.core.rmem_max`.
        let kept = evidence
            .packets
            .iter()
            .filter(|packet| packet.interface == "client" && packet.direction == Direction::In);
        let kept = kept.count() as u64;
        assert!(
            kept + evidence.packets_missed >= DATAGRAMS.into(),
            "{kept} packets were kept, and {} were not",
            evidence.packets_missed
        );
    }
}

#[test]
fn agent_malformed_request_exits_with_error() {
    let garbage = b"\x00\x00\x00\x07garbage".to_vec();
    let unknown = b"\x00\x00\x00\x0d{\"ask\":\"sing\"}"[..].to_vec();
    let too_long = b"\xff\xff\xff\xff{".to_vec();
    for user in test_users() {
        for bytes in [&garbage, &unknown, &too_long] {
            let mut agent = Conversation::start_ready(user);
            agent.build(1, small_plan());
            let processes = agent.processes();
            agent.send_bytes(bytes);
            let (status, stderr) = agent.wait_for_end();
            assert_eq!(status, Some(1), "{stderr}");
            assert!(stderr.starts_with("svclab agent: "), "{stderr}");
            processes.assert_ended();
        }
    }
}

#[test]
fn agent_input_closed_exits_and_cleans_up() {
    for user in test_users() {
        // With a lab, during its probes, and after a partial frame.
        for last in [None, Some(&b""[..]), Some(&b"\x00\x00\x01\x00{"[..])] {
            let mut agent = Conversation::start_ready(user);
            agent.build(1, small_plan());
            let processes = agent.processes();
            if let Some(bytes) = last {
                agent.send(&Request::Probe { lab: 1 });
                agent.await_step("run its probes");
                agent.send_bytes(bytes);
            }
            agent.close_input();
            let torn = last.is_some_and(|bytes| !bytes.is_empty());
            let (status, stderr) = agent.wait_for_end();
            assert_eq!(status, Some(i32::from(torn)), "{stderr}");
            processes.assert_ended();
        }
    }
}

#[test]
fn agent_killed_leaves_no_processes() {
    for user in test_users() {
        let count = {
            let mut agent = Conversation::start_ready(user);
            agent.build(1, small_plan());
            agent.processes().len()
        };
        assert!(count >= 2, "the agent has a parent process");
        for victim in 0..count {
            let mut agent = Conversation::start_ready(user);
            agent.build(1, small_plan());
            agent.send(&Request::Probe { lab: 1 });
            agent.await_step("run its probes");
            let processes = agent.processes();
            processes.kill(victim);
            processes.assert_ended();
        }
    }
}
