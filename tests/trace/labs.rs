//! Labs with everything traced: their verdicts are what they are without.

use futures_util::StreamExt as _;

use super::cases::case;
use super::with_agent;

/// Cases that this host's kernel can run without IPVS: packets that go through a
/// tunnel, that are dropped by the routing, and that are many.
const CASES: [&str; 3] = [
    "canal-stale-rule/stale=removed,rpFilter=1,underlay=drops",
    "canal-stale-rule/stale=present,rpFilter=1,underlay=passes",
    "local-ingress/policy=Cluster,clusterCIDR=set,version=v1.30,mode=iptables",
];

/// How many stand at once.
const AT_ONCE: usize = 2;

#[test]
fn traced_labs_come_to_the_same() {
    with_agent(async |agent| {
        futures_util::stream::iter(CASES.map(case))
            .for_each_concurrent(AT_ONCE, async |mut case| {
                let namespaces = case.plan.namespaces.iter();
                case.plan.watch.trace = namespaces.map(|each| each.name.clone()).collect();
                let mut session = agent.build(case.plan.clone()).await.expect("a lab");
                let evidence = session.probe().await.expect("evidence");
                let judgement = case.judge().expect("it can be judged").judge(&evidence);
                assert!(judgement.holds(), "{}: {judgement:#?}", case.case.id);
                assert_eq!(evidence.met_left_out, 0, "{}", case.case.id);
                assert!(!evidence.met.is_empty(), "{}", case.case.id);
            })
            .await;
    });
}
