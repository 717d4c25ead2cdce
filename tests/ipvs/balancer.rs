//! Tests real load balancers: manual changes to a balancer and failures of its backends change the
//! results of connections.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use svclab_model::evidence::{Evidence, Verdict};
use svclab_model::plan::Sysctl;
use svclab_runner::kernel::Session;
use svclab_runner::run::Prepared;

use super::cases::case;
use super::guests::block_on;
use super::programs::{ipvs, says, with_ipvsadm};

/// Returns the number of each verdict of a probe, and the endpoints that answered.
fn of<'a>(evidence: &'a Evidence, probe: &str) -> (BTreeMap<Verdict, usize>, BTreeSet<&'a str>) {
    let mut verdicts = BTreeMap::new();
    let mut endpoints = BTreeSet::new();
    for attempt in evidence.attempts.iter().filter(|each| each.probe == probe) {
        *verdicts.entry(attempt.verdict).or_insert(0) += 1;
        endpoints.extend(attempt.endpoint.as_deref());
    }
    (verdicts, endpoints)
}

/// Prepares a case of the lab of load balancers.
fn balancer(kind: &str) -> Prepared {
    case(&format!("tests/ipvs/balancer.yaml/kind={kind}"))
}

/// Builds the lab of a case and probes it. Asserts that the case passes.
async fn standing(prepared: &Prepared) -> (Session, Evidence) {
    let agent = with_ipvsadm().await;
    let mut session = agent.build(prepared.plan.clone()).await.expect("a lab");
    let evidence = probe(&mut session).await;
    let judgement = prepared
        .judge()
        .expect("the case can be judged")
        .judge(&evidence);
    assert!(judgement.holds(), "{judgement:#?}");
    (session, evidence)
}

/// Returns the sources that the servers of a probe saw.
fn sources(evidence: &Evidence, probe: &str) -> BTreeSet<String> {
    let attempts = evidence.attempts.iter().filter(|each| each.probe == probe);
    attempts
        .filter_map(|attempt| Some(attempt.seen_source?.ip().to_string()))
        .collect()
}

async fn probe(session: &mut Session) -> Evidence {
    session.probe().await.expect("evidence")
}

#[test]
fn replies_of_two_services_with_one_endpoint_reach_their_own_connections() {
    // IPVS looks up the connection of a reply without its service.
    block_on(async {
        let mut prepared = case(
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
        standing(&prepared).await;
    });
}

#[test]
fn a_verdict_hangs_on_the_balancer_s_service() {
    block_on(async {
        let prepared = case(
            "clb-hairpin/policy=Cluster,ingress=otherNode,balancer=internal,rpFilter=0,byHand=nothing",
        );
        let agent = with_ipvsadm().await;
        let mut session = agent.build(prepared.plan).await.expect("a lab");
        let all = |verdict| BTreeMap::from([(verdict, 8)]);
        let evidence = probe(&mut session).await;
        assert_eq!(
            of(&evidence, "call"),
            (
                all(Verdict::Connected),
                BTreeSet::from(["pod/default/nginx-b"])
            )
        );
        let saved = says(&mut session, "fabric", "ipvsadm", &["-S", "-n"], "").await;

        // Without the virtual server, the address belongs to the router, on which no server
        // listens.
        says(&mut session, "fabric", "ipvsadm", &["-C"], "").await;
        let evidence = probe(&mut session).await;
        let nobody = (all(Verdict::Refused), BTreeSet::new());
        assert_eq!(of(&evidence, "call"), nobody);
        assert_eq!(of(&evidence, "other"), nobody);

        says(&mut session, "fabric", "ipvsadm", &["-R"], &saved).await;
        let evidence = probe(&mut session).await;
        assert_eq!(of(&evidence, "call").0, all(Verdict::Connected));
        assert_eq!(of(&evidence, "other").0, all(Verdict::Connected));
    });
}

/// Waits until the balancer of the fabric has detected the wanted state of its backends. On a busy
/// machine the balancer may report other states before.
async fn turned(session: &mut Session, well: &mut BTreeMap<&str, bool>, wanted: [bool; 2]) {
    while !well.values().eq(&wanted) {
        let turn = session.turned().await.expect("the balancer notices");
        assert_eq!(turn.namespace, "fabric");
        let backend = turn.backend.to_string();
        let known = well.get_mut(backend.as_str());
        *known.expect("it is behind the balancer") = turn.well;
    }
}

#[test]
fn a_balancer_drops_the_node_whose_ingress_pod_was_killed() {
    block_on(async {
        let (mut session, _) = standing(&balancer("plain")).await;
        let weight = |lines: &[String], node: &str| {
            let line = lines
                .iter()
                .find(|line| line.starts_with("-a") && line.contains(node))
                .unwrap_or_else(|| panic!("{node} is behind the balancer: {lines:?}"));
            line.rsplit(' ').next().map(str::to_owned)
        };
        let before = ipvs(&mut session, "fabric").await;
        assert_eq!(weight(&before, "192.168.1.11:30080").as_deref(), Some("1"));
        assert_eq!(weight(&before, "192.168.2.12:30080").as_deref(), Some("1"));

        let mut well = BTreeMap::from([("192.168.1.11:30080", true), ("192.168.2.12:30080", true)]);
        session
            .stop("pod/default/web-a")
            .await
            .expect("it is served");
        turned(&mut session, &mut well, [false, true]).await;
        let after = ipvs(&mut session, "fabric").await;
        assert_eq!(weight(&after, "192.168.1.11:30080").as_deref(), Some("0"));
        assert_eq!(weight(&after, "192.168.2.12:30080").as_deref(), Some("1"));
        let evidence = probe(&mut session).await;
        assert_eq!(
            of(&evidence, "call"),
            (
                BTreeMap::from([(Verdict::Connected, 8)]),
                BTreeSet::from(["pod/default/web-b"])
            )
        );

        // Without backends, the balancer does not answer.
        session
            .stop("pod/default/web-b")
            .await
            .expect("it is served");
        turned(&mut session, &mut well, [false, false]).await;
        let evidence = probe(&mut session).await;
        assert_eq!(
            of(&evidence, "call"),
            (BTreeMap::from([(Verdict::Timeout, 8)]), BTreeSet::new())
        );
    });
}

#[test]
fn a_server_that_is_not_there_cannot_be_stopped() {
    block_on(async {
        let agent = with_ipvsadm().await;
        let mut session = agent
            .build(svclab_model::plan::Plan::default())
            .await
            .expect("a lab");
        let error = session.stop("pod/default/web").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "pod/default/web is to be stopped, which the lab does not serve"
        );
        let error = session.run("node-1", "ip", &[], "").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "ip is to run in node-1, which the plan has not got"
        );
        // The lab still works.
        session.probe().await.expect("evidence");
    });
}

#[test]
fn a_balancer_that_refuses_does_when_nobody_is_left() {
    block_on(async {
        let (mut session, _) = standing(&balancer("refuses")).await;
        let mut well = BTreeMap::from([("192.168.1.11:30080", true), ("192.168.2.12:30080", true)]);
        for pod in ["pod/default/web-a", "pod/default/web-b"] {
            session.stop(pod).await.expect("it is served");
        }
        turned(&mut session, &mut well, [false, false]).await;
        let evidence = probe(&mut session).await;
        assert_eq!(
            of(&evidence, "call"),
            (BTreeMap::from([(Verdict::Refused, 8)]), BTreeSet::new())
        );
    });
}

#[test]
fn a_balancer_answers_on_all_its_addresses() {
    block_on(async {
        let mut prepared = balancer("twoAddresses");
        let mut second = prepared.plan.probes[0].clone();
        "second".clone_into(&mut second.name);
        second.to.address = "198.51.100.11".parse().expect("an address");
        prepared.plan.probes.push(second);
        let agent = with_ipvsadm().await;
        let mut session = agent.build(prepared.plan).await.expect("a lab");
        let evidence = probe(&mut session).await;
        for name in ["call", "second"] {
            assert_eq!(
                of(&evidence, name),
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
fn a_balancer_that_masquerades_is_who_the_pods_see() {
    block_on(async {
        let prepared = balancer("masquerades");
        let (_session, evidence) = standing(&prepared).await;
        // The router's addresses on the links to the nodes.
        let fabric = prepared.plan.namespace("fabric").expect("a router");
        let own: BTreeSet<String> = fabric
            .links
            .iter()
            .filter(|link| link.name.starts_with("node-"))
            .flat_map(|link| {
                link.addresses
                    .iter()
                    .map(|address| address.ip().to_string())
            })
            .collect();
        assert_eq!(own.len(), 2, "{own:?}");
        assert_eq!(sources(&evidence, "call"), own);
    });
}

#[test]
fn a_balancer_on_layer_7_tries_the_next_after_a_while() {
    block_on(async {
        let (_session, evidence) = standing(&balancer("retries")).await;
        // Every second connection first goes to the node that does not answer.
        let waited = evidence
            .attempts
            .iter()
            .filter(|attempt| attempt.took >= Duration::from_secs(1));
        assert!(waited.count() >= 4, "{:#?}", evidence.attempts);
    });
}
