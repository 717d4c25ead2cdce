//! The same plan on this host and in a guest: the same verdicts, and the same
//! packets up to times and what is chosen freely.

use std::collections::{BTreeMap, BTreeSet};

use svclab::evidence::{Direction, Evidence, Verdict};
use svclab::explain::{Frame, Judgement};
use svclab::kernel::{Agent, Host};
use svclab::run::Prepared;
use svclab::scenario::wire::PacketKind;

use super::guests::{SVCLAB, block_on, cases, guest};

/// Where VXLAN is spoken.
const VXLAN: u16 = 8472;

/// What a probe comes to.
#[derive(Debug, PartialEq, Eq)]
struct Probed {
    /// How often which verdict; none where chance decides how often.
    verdicts: BTreeMap<Verdict, Option<u32>>,
    endpoints: BTreeSet<String>,
    seen_sources: BTreeSet<String>,
}

/// What a run comes to, without what two kernels may do differently.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// By probe.
    probes: BTreeMap<String, Probed>,
    /// Every check, and whether it holds.
    checks: Vec<(String, String, bool)>,
    /// What it says of claims.
    claims: Vec<String>,
}

impl Outcome {
    fn new(prepared: &Prepared, judgement: &Judgement) -> Self {
        let probes = judgement.probes.iter().map(|probe| {
            let seen = &probe.observed;
            let row = &prepared.case.expected().expected.probes[&probe.name];
            let verdicts = seen.verdicts.iter().map(|(verdict, count)| {
                let exact = row.verdicts().iter().any(|(name, expected)| {
                    *name == verdict.word()
                        && expected.is_some_and(|range| range.max() == Some(range.min()))
                });
                (*verdict, exact.then_some(*count))
            });
            let probed = Probed {
                verdicts: verdicts.collect(),
                endpoints: seen.endpoints.clone(),
                seen_sources: seen.seen_sources.clone(),
            };
            (probe.name.clone(), probed)
        });
        let checks = judgement
            .checks()
            .map(|check| (check.on.clone(), check.expected.clone(), check.holds));
        let claims = judgement
            .claims
            .iter()
            .map(|claim| format!("{} {:?} {:?}", claim.id, claim.verdict, claim.part));
        Self {
            probes: probes.collect(),
            checks: checks.collect(),
            claims: claims.collect(),
        }
    }
}

/// Which packets passed where, and how many of those whose number no timer
/// decides.
fn packets(prepared: &Prepared, evidence: &Evidence) -> BTreeMap<String, usize> {
    let plan = &prepared.plan;
    let known: BTreeSet<u16> = plan.servers.iter().map(|server| server.port).collect();
    let known = |port: u16| port == VXLAN || known.contains(&port);
    let settled = evidence.attempts.iter().all(|attempt| {
        // What is given up was sent again, as often as the machine had time for.
        !matches!(attempt.verdict, Verdict::Timeout | Verdict::Silent)
    });
    let mut seen = BTreeMap::new();
    for packet in &evidence.packets {
        let Some(frame) = Frame::read(&packet.bytes) else {
            continue;
        };
        let way = match packet.direction {
            Direction::In => "in",
            Direction::Out => "out",
        };
        let what = format!(
            "{}/{} {way} {}",
            packet.namespace,
            packet.interface,
            shape(&frame, &known)
        );
        // Acknowledgements go along with data or alone, as time has it.
        let counts = settled && (frame.is(PacketKind::Syn) || frame.is(PacketKind::SynAck));
        let count = seen.entry(what).or_insert(0);
        *count = if counts { *count + 1 } else { 1 };
    }
    seen
}

/// A packet without what is chosen freely.
fn shape(frame: &Frame, known: &impl Fn(u16) -> bool) -> String {
    // What nobody listens on was chosen by a kernel.
    let port = |port: u16| {
        if known(port) {
            port.to_string()
        } else {
            "any".to_owned()
        }
    };
    let (from, to) = frame
        .ports
        .map_or_else(Default::default, |(from, to)| (port(from), port(to)));
    let kind = PacketKind::WORDS.iter().find(|(_, kind)| frame.is(*kind));
    let kind = kind.map(|(word, _)| word);
    let inner = frame
        .inner
        .as_deref()
        .map(|inner| shape(inner, known))
        .unwrap_or_default();
    format!(
        "{}:{from} > {}:{to} {kind:?} [{inner}]",
        frame.source, frame.destination
    )
}

/// Whether chance decides which way connections go.
fn is_random(evidence: &Evidence) -> bool {
    let mut endpoints: BTreeMap<&str, BTreeSet<&Option<String>>> = BTreeMap::new();
    for attempt in &evidence.attempts {
        endpoints
            .entry(&attempt.probe)
            .or_default()
            .insert(&attempt.endpoint);
    }
    endpoints.values().any(|answered| answered.len() > 1)
}

async fn run(agent: &Agent, prepared: &Prepared) -> (Outcome, Evidence) {
    let mut session = agent.build(prepared.plan.clone()).await.expect("a lab");
    let evidence = session.probe().await.expect("evidence");
    let judgement = prepared
        .judge()
        .expect("the case can be judged")
        .judge(&evidence);
    assert!(judgement.holds(), "{}: {judgement:#?}", prepared.case.id);
    (Outcome::new(prepared, &judgement), evidence)
}

/// Runs a lab's cases here and there, and returns how many cases' packets were
/// compared.
fn agree(lab: &str) -> usize {
    let prepared = cases(&[lab.to_owned()]);
    let mut compared = 0;
    block_on(async {
        let host = Host::with_agent(SVCLAB.into())
            .start()
            .await
            .expect("an agent");
        let guest = guest("6.12").await.start().await.expect("a guest");
        for case in &prepared {
            let ((here, here_seen), (there, there_seen)) =
                tokio::join!(run(&host, case), run(&guest, case));
            assert_eq!(here, there, "{}", case.case.id);
            if !is_random(&here_seen) {
                let (here, there) = (packets(case, &here_seen), packets(case, &there_seen));
                assert_eq!(here, there, "{}", case.case.id);
                compared += usize::from(!here.is_empty());
            }
        }
    });
    compared
}

#[test]
fn host_and_guest_agree_about_canal_stale_rule() {
    assert!(agree("canal-stale-rule") > 4);
}

#[test]
fn host_and_guest_agree_about_local_ingress() {
    agree("local-ingress");
}
