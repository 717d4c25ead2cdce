//! Runs all labs without IPVS on this host with full evidence. Every packet has a known end, and
//! the verdicts equal those without evidence.

use std::net::IpAddr;
use std::time::Duration;

use anstream::adapter::strip_str;
use svclab_journey::journey::{End, Kind, journeys};
use svclab_judge::AddressBook;
use svclab_model::plan::{Namespace, Watch};
use svclab_report::journey::JourneyRenderer;

use super::accounts::account;
use super::cases::{case, cases};
use super::full::ordinary_or_full;
use super::{probe, with_agent};

/// Number of parallel labs.
const AT_ONCE: usize = 8;

#[test]
fn labs_with_full_evidence_know_end_of_every_packet() {
    let mut here = cases(&[]);
    here.retain(|case| !case.plan.namespaces.iter().any(Namespace::uses_ipvs));
    assert!(here.len() > 50, "{}", here.len());
    // The full run records all cases; neighbors in the product of axes differ in one axis.
    let here: Vec<_> = here.into_iter().step_by(ordinary_or_full(2, 1)).collect();
    with_agent(async |agent| {
        let account = account(&agent, here, AT_ONCE, None).await;
        account.print(&agent.surroundings().kernel);
        assert_eq!(account.wrong, Vec::<String>::new());
        assert_eq!(account.unknown, Vec::<String>::new());
    });
}

/// Retransmitted replies are identical, including the ID of the IP header.
#[test]
fn journey_retransmitted_replies_have_own_matches() {
    let mut plan = case("canal-stale-rule/stale=present,rpFilter=0,underlay=drops").plan;
    plan.watch = Watch::everything(&plan);
    with_agent(async |agent| {
        let mut session = agent.build(plan.clone()).await.expect("a lab");
        let evidence = session.probe().await.expect("evidence");
        let journeys = journeys(&plan, &evidence);
        let answers: Vec<_> = journeys
            .iter()
            .flat_map(|journey| &journey.flights)
            .filter(|flight| flight.kind == Kind::SynAck)
            .collect();
        assert!(answers.len() > 1, "{answers:#?}");
        for answer in answers {
            assert_eq!(answer.end, End::ByRule, "{answer:#?}");
            let met = &answer.hops.last().expect("a hop").met;
            let dropped = met.iter().filter(|step| step.dropped).count();
            assert_eq!(dropped, 1, "{answer:#?}");
        }
    });
}

/// No host answers for this neighbor: packets to it wait 3 s on its node.
#[test]
fn journey_packet_waiting_for_neighbor_is_described() {
    let case = case("service-changes/version=v1.30,mode=iptables");
    let mut plan = case.plan;
    plan.steps.clear();
    plan.probes.retain(|probe| probe.name == "call");
    let unused_address: IpAddr = [10, 244, 2, 99].into();
    let call = &mut plan.probes[0];
    call.to.address = unused_address;
    call.connections = 1;
    call.patience = Duration::from_millis(200);
    call.settle = false;
    plan.watch = Watch::everything(&plan);
    let evidence = probe(plan.clone());
    let journeys = journeys(&plan, &evidence);
    let [journey] = &journeys[..] else {
        panic!("{journeys:#?}");
    };
    let call = &journey.flights[0];
    assert_eq!(call.end, End::Waiting(unused_address), "{call:#?}");
    let telling = JourneyRenderer {
        book: AddressBook::new(&case.cluster, &plan),
        verbose: false,
        brief: false,
    };
    let rendered = strip_str(&telling.journeys(journeys.iter())).to_string();
    let port = journey.addresses.expect("a call").source.port();
    insta::assert_snapshot!(rendered.replace(&format!(":{port}"), ":PORT"));
}
