//! Runs all labs without IPVS on this host with full evidence. Every packet has a known end, and
//! the verdicts equal those without evidence.

use std::net::IpAddr;
use std::time::Duration;

use anstream::adapter::strip_str;
use serial_test::file_serial;
use svclab_journey::journey::{Kind, PathEnd, journeys};
use svclab_judge::{AddressBook, Explainer};
use svclab_model::plan::{EvidenceRequest, Namespace};
use svclab_report::journey::JourneyRenderer;
use svclab_ruleset::input::Input;
use svclab_test_support::cases::{prepare_case, prepare_cases};
use svclab_test_support::evidence::accounting::account_for_packets;
use svclab_test_support::evidence::single_stage;
use svclab_test_support::ordinary_or_full;

use super::{probe_plan, with_agent};

/// Number of parallel labs.
const PARALLEL_LABS: usize = 8;

#[test]
#[file_serial(drops)]
fn labs_with_full_evidence_know_end_of_every_packet() {
    let mut host_cases = prepare_cases(&[]);
    host_cases.retain(|case| !case.plan.namespaces.iter().any(Namespace::uses_ipvs));
    assert!(host_cases.len() > 50, "{}", host_cases.len());
    // The full run records all cases; neighbors in the product of axes differ in one axis.
    let here: Vec<_> = host_cases
        .into_iter()
        .step_by(ordinary_or_full(2, 1))
        .collect();
    with_agent(async |agent| {
        let account = account_for_packets(&agent, here, PARALLEL_LABS, None).await;
        account.print(&agent.environment().kernel);
        assert_eq!(account.wrong, Vec::<String>::new());
        assert_eq!(account.unknown, Vec::<String>::new());
    });
}

/// Retransmitted replies are identical, including the ID of the IP header.
#[test]
fn journey_retransmitted_replies_have_own_matches() {
    let mut plan = prepare_case("canal-stale-rule/stale=present,rpFilter=0,underlay=drops").plan;
    plan.evidence = EvidenceRequest::everything(&plan);
    with_agent(async |agent| {
        let mut session = agent.build(plan.clone()).await.expect("a lab");
        let evidence = single_stage(session.probe().await.expect("evidence"));
        let journeys = journeys(&plan, &plan.stages[0].probes, &evidence);
        let answers: Vec<_> = journeys
            .iter()
            .flat_map(|journey| &journey.packets)
            .filter(|flight| flight.kind == Kind::SynAck)
            .collect();
        assert!(answers.len() > 1, "{answers:#?}");
        for answer in answers {
            assert_eq!(answer.end, PathEnd::DroppedByRule, "{answer:#?}");
            let met = &answer.hops.last().expect("a hop").matches;
            let dropped = met.iter().filter(|step| step.dropped).count();
            assert_eq!(dropped, 1, "{answer:#?}");
        }
    });
}

/// Rules of nftables, of which one has a counter.
const COUNTED: &str = "table inet own {
	chain before {
		type filter hook prerouting priority -300; policy accept;
		tcp dport 80 counter accept
	}

	chain after {
		type filter hook postrouting priority 300; policy accept;
		meta l4proto tcp accept
	}
}
";

#[test]
fn journey_nft_rule_has_packets_of_its_counter() {
    let mut plan = prepare_case("service-changes/version=v1.30,mode=nftables").plan;
    plan.truncate_stages(1);
    plan.stages[0].probes.retain(|probe| probe.name == "call");
    plan.stages[0].probes[0].connections = 1;
    plan.evidence = EvidenceRequest::everything(&plan);
    for node in &mut plan.namespaces {
        if node.name.starts_with("node-") {
            node.nft = Input::from_text(node.nft.text().to_owned() + COUNTED);
        }
    }
    let evidence = probe_plan(plan.clone());
    let journeys = journeys(&plan, &plan.stages[0].probes, &evidence);
    let packets = journeys.iter().flat_map(|journey| &journey.packets);
    let matches = packets
        .flat_map(|packet| &packet.hops)
        .flat_map(|hop| &hop.matches);
    let of_rule = |chain: &str| {
        matches
            .clone()
            .find(|step| step.table == "inet own" && step.chain == chain && step.number == Some(1))
    };
    let counted = of_rule("before").expect("the packet matches the rule");
    let text = counted.rule.as_deref();
    assert_eq!(text, Some("tcp dport 80 counter accept"), "{counted:?}");
    assert!(counted.packets > Some(0), "{counted:?}");
    let uncounted = of_rule("after").expect("the packet matches the rule");
    assert_eq!(uncounted.packets, None, "{uncounted:?}");
}

/// No host answers for this neighbor: packets to it wait 3 s on its node.
#[test]
fn journey_packet_waiting_for_neighbor_is_described() {
    let case = prepare_case("service-changes/version=v1.30,mode=iptables");
    let mut plan = case.plan;
    plan.truncate_stages(1);
    plan.stages[0].probes.retain(|probe| probe.name == "call");
    let unused_address: IpAddr = [10, 244, 2, 99].into();
    let call = &mut plan.stages[0].probes[0];
    call.target.address = unused_address;
    call.connections = 1;
    call.max_wait = Duration::from_millis(200);
    call.settle = false;
    plan.evidence = EvidenceRequest::everything(&plan);
    let evidence = probe_plan(plan.clone());
    let journeys = journeys(&plan, &plan.stages[0].probes, &evidence);
    let [journey] = &journeys[..] else {
        panic!("{journeys:#?}");
    };
    let call = &journey.packets[0];
    assert_eq!(call.end, PathEnd::Waiting(unused_address), "{call:#?}");
    let explainer = Explainer::new(AddressBook::new(&case.cluster, &plan), &evidence);
    let telling = JourneyRenderer {
        explainer: &explainer,
        verbose: false,
        brief: false,
    };
    let rendered = strip_str(&telling.render_journeys(journeys.iter())).to_string();
    let port = journey.addresses.expect("a call").source.port();
    insta::assert_snapshot!(rendered.replace(&format!(":{port}"), ":PORT"));
}
