//! Tests real load balancers: manual changes to a balancer and failures of its backends change the
//! results of connections.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use svclab_model::evidence::{StageEvidence, Verdict};
use svclab_model::plan::Sysctl;
use svclab_runner::kernel::Session;
use svclab_runner::run::Prepared;
use svclab_test_support::block_on;
use svclab_test_support::cases::prepare_case;
use svclab_test_support::evidence::single_stage;

use super::programs::{guest_with_ipvsadm, run_program, save_virtual_servers};

/// Returns the number of each verdict of a probe, and the endpoints that answered.
fn results_of_probe<'a>(
    evidence: &'a StageEvidence,
    probe: &str,
) -> (BTreeMap<Verdict, usize>, BTreeSet<&'a str>) {
    let mut verdicts = BTreeMap::new();
    let mut endpoints = BTreeSet::new();
    for attempt in evidence.attempts.iter().filter(|each| each.probe == probe) {
        *verdicts.entry(attempt.verdict).or_insert(0) += 1;
        endpoints.extend(attempt.endpoint.as_deref());
    }
    (verdicts, endpoints)
}

/// Prepares a case of the lab of load balancers.
fn prepare_balancer_case(kind: &str) -> Prepared {
    let lab = svclab_test_support::root().join("tests/host/ipvs/balancer.yaml");
    prepare_case(&format!("{}/kind={kind}", lab.display()))
}

/// Builds the lab of a case and probes it. Asserts that the case passes.
async fn build_and_probe(prepared: &Prepared) -> (Session, StageEvidence) {
    let agent = guest_with_ipvsadm().await;
    let mut session = agent.build(prepared.plan.clone()).await.expect("a lab");
    let evidence = session.probe().await.expect("evidence");
    let judgement = prepared
        .judge()
        .expect("the case can be judged")
        .judge(&evidence);
    assert!(judgement.holds(), "{judgement:#?}");
    (session, single_stage(evidence))
}

/// Returns the sources that the servers of a probe saw.
fn sources(evidence: &StageEvidence, probe: &str) -> BTreeSet<String> {
    let attempts = evidence.attempts.iter().filter(|each| each.probe == probe);
    attempts
        .filter_map(|attempt| Some(attempt.seen_source?.ip().to_string()))
        .collect()
}

async fn probe(session: &mut Session) -> StageEvidence {
    single_stage(session.probe().await.expect("evidence"))
}

#[test]
fn ipvs_two_services_one_endpoint_replies_match() {
    // IPVS looks up the connection of a reply without its service.
    block_on(async {
        let mut prepared = prepare_case(
            "clb-hairpin/policy=Cluster,ingress=clientsNode,balancer=internal,rpFilter=0,byHand=nothing",
        );
        let namespaces = &mut prepared.plan.namespaces;
        let client = namespaces
            .iter_mut()
            .find(|namespace| namespace.name == "pod/default/client");
        // Two probes with eight connections each would share most of so few ports.
        client.expect("the client").sysctls.push(Sysctl {
            key: "net.ipv4.ip_local_port_range".to_owned(),
            value: "40000 40031".to_owned(),
            link: None,
            optional: false,
        });
        build_and_probe(&prepared).await;
    });
}

#[test]
fn balancer_virtual_servers_deleted_connections_are_refused() {
    block_on(async {
        let prepared = prepare_case(
            "clb-hairpin/policy=Cluster,ingress=otherNode,balancer=internal,rpFilter=0,byHand=nothing",
        );
        let agent = guest_with_ipvsadm().await;
        let mut session = agent.build(prepared.plan).await.expect("a lab");
        let all_with = |verdict| BTreeMap::from([(verdict, 8)]);
        let evidence = probe(&mut session).await;
        assert_eq!(
            results_of_probe(&evidence, "call"),
            (
                all_with(Verdict::Connected),
                BTreeSet::from(["pod/default/nginx-b"])
            )
        );
        let saved = run_program(&mut session, "fabric", "ipvsadm", &["-S", "-n"], "").await;

        // Without the virtual server, the address belongs to the router, on which no server
        // listens.
        run_program(&mut session, "fabric", "ipvsadm", &["-C"], "").await;
        let evidence = probe(&mut session).await;
        let expected_refusals = (all_with(Verdict::Refused), BTreeSet::new());
        assert_eq!(results_of_probe(&evidence, "call"), expected_refusals);
        assert_eq!(results_of_probe(&evidence, "other"), expected_refusals);

        run_program(&mut session, "fabric", "ipvsadm", &["-R"], &saved).await;
        let evidence = probe(&mut session).await;
        assert_eq!(
            results_of_probe(&evidence, "call").0,
            all_with(Verdict::Connected)
        );
        assert_eq!(
            results_of_probe(&evidence, "other").0,
            all_with(Verdict::Connected)
        );
    });
}

/// Waits until the balancer of the fabric has detected the wanted state of its backends. On a busy
/// machine the balancer may report other states before.
async fn wait_for_health(
    session: &mut Session,
    health: &mut BTreeMap<&str, bool>,
    wanted: [bool; 2],
) {
    while !health.values().eq(&wanted) {
        let turn = session
            .next_health_change()
            .await
            .expect("the balancer notices");
        assert_eq!(turn.namespace, "fabric");
        let backend = turn.backend.to_string();
        let known = health.get_mut(backend.as_str());
        *known.expect("a backend of the load balancer") = turn.healthy;
    }
}

#[test]
fn balancer_ingress_pod_killed_node_is_removed() {
    block_on(async {
        let (mut session, _) = build_and_probe(&prepare_balancer_case("plain")).await;
        let weight = |lines: &[String], node: &str| {
            let line = lines
                .iter()
                .find(|line| line.starts_with("-a") && line.contains(node))
                .unwrap_or_else(|| {
                    panic!("{node} is not a backend of the load balancer: {lines:?}")
                });
            line.rsplit(' ').next().map(str::to_owned)
        };
        let before = save_virtual_servers(&mut session, "fabric").await;
        assert_eq!(weight(&before, "192.168.1.11:30080").as_deref(), Some("1"));
        assert_eq!(weight(&before, "192.168.2.12:30080").as_deref(), Some("1"));

        let mut well = BTreeMap::from([("192.168.1.11:30080", true), ("192.168.2.12:30080", true)]);
        session
            .stop("pod/default/web-a")
            .await
            .expect("the server runs");
        wait_for_health(&mut session, &mut well, [false, true]).await;
        let after = save_virtual_servers(&mut session, "fabric").await;
        assert_eq!(weight(&after, "192.168.1.11:30080").as_deref(), Some("0"));
        assert_eq!(weight(&after, "192.168.2.12:30080").as_deref(), Some("1"));
        let evidence = probe(&mut session).await;
        assert_eq!(
            results_of_probe(&evidence, "call"),
            (
                BTreeMap::from([(Verdict::Connected, 8)]),
                BTreeSet::from(["pod/default/web-b"])
            )
        );

        // Without backends, the balancer does not answer.
        session
            .stop("pod/default/web-b")
            .await
            .expect("the server runs");
        wait_for_health(&mut session, &mut well, [false, false]).await;
        let evidence = probe(&mut session).await;
        assert_eq!(
            results_of_probe(&evidence, "call"),
            (BTreeMap::from([(Verdict::Timeout, 8)]), BTreeSet::new())
        );
    });
}

#[test]
fn session_stop_unknown_server_returns_error() {
    block_on(async {
        let agent = guest_with_ipvsadm().await;
        let mut session = agent
            .build(svclab_model::plan::Plan::default())
            .await
            .expect("a lab");
        let error = session.stop("pod/default/web").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot stop pod/default/web: the lab has no such server or program"
        );
        let error = session.run("node-1", "ip", &[], "").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot run ip in node-1: the plan has no such namespace"
        );
        // The lab still works.
        single_stage(session.probe().await.expect("evidence"));
    });
}

#[test]
fn balancer_refuse_mode_without_backends_refuses() {
    block_on(async {
        let (mut session, _) = build_and_probe(&prepare_balancer_case("refuses")).await;
        let mut well = BTreeMap::from([("192.168.1.11:30080", true), ("192.168.2.12:30080", true)]);
        for pod in ["pod/default/web-a", "pod/default/web-b"] {
            session.stop(pod).await.expect("the server runs");
        }
        wait_for_health(&mut session, &mut well, [false, false]).await;
        let evidence = probe(&mut session).await;
        assert_eq!(
            results_of_probe(&evidence, "call"),
            (BTreeMap::from([(Verdict::Refused, 8)]), BTreeSet::new())
        );
    });
}

#[test]
fn balancer_with_two_addresses_answers_on_both() {
    block_on(async {
        let mut prepared = prepare_balancer_case("twoAddresses");
        let mut second = prepared.plan.stages[0].probes[0].clone();
        "second".clone_into(&mut second.name);
        second.target.address = "198.51.100.11".parse().expect("an address");
        prepared.plan.stages[0].probes.push(second);
        let agent = guest_with_ipvsadm().await;
        let mut session = agent.build(prepared.plan).await.expect("a lab");
        let evidence = probe(&mut session).await;
        for name in ["call", "second"] {
            assert_eq!(
                results_of_probe(&evidence, name),
                (
                    BTreeMap::from([(Verdict::Connected, 8)]),
                    BTreeSet::from(["pod/default/web-a", "pod/default/web-b"])
                ),
                "{name}"
            );
        }
    });
}

#[test]
fn balancer_masquerading_pods_see_its_address() {
    block_on(async {
        let prepared = prepare_balancer_case("masquerades");
        let (_session, evidence) = build_and_probe(&prepared).await;
        // The router's addresses on the links to the nodes.
        let fabric = prepared.plan.namespace("fabric").expect("a router");
        let router_addresses: BTreeSet<String> = fabric
            .links
            .iter()
            .filter(|link| link.name.starts_with("node-"))
            .flat_map(|link| {
                link.addresses
                    .iter()
                    .map(|address| address.ip().to_string())
            })
            .collect();
        assert_eq!(router_addresses.len(), 2, "{router_addresses:?}");
        assert_eq!(sources(&evidence, "call"), router_addresses);
    });
}

#[test]
fn balancer_layer_7_silent_backend_retries_next() {
    block_on(async {
        let (_session, evidence) = build_and_probe(&prepare_balancer_case("retries")).await;
        // Every second connection first goes to the node that does not answer.
        let waited = evidence
            .attempts
            .iter()
            .filter(|attempt| attempt.duration >= Duration::from_secs(1));
        assert!(waited.count() >= 4, "{:#?}", evidence.attempts);
    });
}
