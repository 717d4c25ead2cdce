//! A fake agent that returns arbitrary evidence, and an independent oracle that lists the evidence
//! with which no case may pass.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use svclab_model::evidence::{
    Attempt, Direction, Evidence, KernelState, Packet, StageEvidence, StepEvidence, Verdict,
};
use svclab_model::plan::{Plan, Probe};
use svclab_model::protocol::{
    BackendHealthChange, Event, Failure, FailureKind, LabId, Request, VERSION, request_framing,
};
use svclab_report::{Format, Options as Telling};
use svclab_runner::kernel::Agent;
use svclab_runner::results::{CaseStatus, Results};
use svclab_runner::run::Event as Told;
use svclab_runner::run::{Prepared, run_on_agent};
use svclab_scenario::count::Count;
use svclab_scenario::expectation::{Expected, ProbeExpectation};
use tokio::io::{DuplexStream, duplex};
use tokio_util::codec::{FramedRead, FramedWrite};

use super::choices::Choices;

/// Returns the case with expectations only for verdicts and endpoints of its probes. This case
/// passes with the evidence of [`ideal_evidence`].
pub fn expect_only_probes(prepared: &Prepared) -> Prepared {
    let mut prepared = prepared.clone();
    let row = prepared.case.row;
    let row = &mut Arc::make_mut(&mut prepared.case.spec).expect[row];
    row.claims.clear();
    row.expected = Expected {
        probes: std::mem::take(&mut row.expected.probes),
        ..Expected::default()
    };
    for probe in row.expected.probes.values_mut() {
        (probe.seen_source, probe.seen_sources, probe.source_port) = (None, None, None);
    }
    prepared
}

/// Builds evidence with which the probe expectations of a case pass. Each probe has the expected
/// number of each verdict, answered by the expected endpoints.
pub fn ideal_evidence(prepared: &Prepared) -> Evidence {
    let stages = prepared.plan.stages.iter().map(|stage| StageEvidence {
        step: stage.step.as_ref().map(|step| StepEvidence {
            name: step.name.clone(),
            changed_at: 1_000_000,
            applied_at: 2_000_000,
            ..StepEvidence::default()
        }),
        ..stage_evidence(prepared, &stage.probes)
    });
    Evidence {
        stages: stages.collect(),
        ..Evidence::default()
    }
}

fn stage_evidence(prepared: &Prepared, probes: &[Probe]) -> StageEvidence {
    let mut evidence = StageEvidence {
        attempts: probes
            .iter()
            .flat_map(|probe| expected_attempts(prepared, probe))
            .collect(),
        ..StageEvidence::default()
    };
    let watch = &prepared.plan.evidence;
    for name in &watch.counters {
        evidence.counters.insert(name.clone(), BTreeMap::new());
    }
    for name in watch.sets.iter().chain(&watch.ipvs).chain(&watch.links) {
        evidence
            .kernel_state
            .insert(name.clone(), KernelState::default());
    }
    evidence
}

fn expected_attempts(prepared: &Prepared, probe: &Probe) -> Vec<Attempt> {
    let expected = prepared.case.expected().expected.probes.get(&probe.name);
    let mut verdicts = Vec::new();
    for (name, count) in expected
        .map(ProbeExpectation::verdicts)
        .into_iter()
        .flatten()
    {
        let verdict = Verdict::ALL
            .into_iter()
            .find(|verdict| verdict.name() == name);
        let times = count.map_or(0, Count::min);
        verdicts.extend(verdict.into_iter().cycle().take(times as usize));
    }
    let pods = expected.and_then(|expected| expected.endpoints.clone());
    let known = |pod: &str| {
        let mut servers = prepared.plan.servers.iter();
        servers
            .find(|server| server.name.ends_with(pod))
            .map(|server| server.name.clone())
    };
    let pods: Vec<String> = pods.iter().flatten().filter_map(|pod| known(pod)).collect();
    let source: SocketAddr = ([10, 244, 1, 9], 40000).into();
    let attempt = |number: u32| {
        let verdict = verdicts
            .get(number as usize)
            .copied()
            .unwrap_or(Verdict::Connected);
        let answers = matches!(verdict, Verdict::Connected | Verdict::Answered);
        let pod = pods.get(number as usize % pods.len().max(1));
        let pod = pod
            .cloned()
            .unwrap_or_else(|| "pod/default/nobody".to_owned());
        Attempt {
            idle: None,
            probe: probe.name.clone(),
            index: number,
            verdict,
            endpoint: answers.then_some(pod),
            seen_source: answers.then_some(source),
            further_answers: Vec::new(),
            progress: None,
            local_address: Some(source),
            duration: Duration::from_millis(1),
            settled: false,
            error: None,
        }
    };
    (0..probe.connections).map(attempt).collect()
}

/// Changes some fields of the evidence.
pub fn spoil(evidence: &mut Evidence, choices: &mut Choices<'_>) {
    for _ in 0..=choices.below(6) {
        let stages = evidence.stages.len();
        match choices.below(stages + 1) {
            0 => spoil_stages(evidence, choices),
            at => spoil_stage(&mut evidence.stages[at - 1], choices),
        }
    }
}

fn spoil_stages(evidence: &mut Evidence, choices: &mut Choices<'_>) {
    let stages = &mut evidence.stages;
    let index = choices.below(stages.len());
    match (choices.below(9), stages.get_mut(index)) {
        (0, Some(_)) => drop(stages.remove(index)),
        (1, Some(stage)) => {
            let again = stage.clone();
            stages.insert(index, again);
        }
        (2, Some(stage)) => stage.step.get_or_insert_default().name.push('x'),
        (3, Some(_)) => stages.reverse(),
        (4, Some(stage)) => {
            if let Some(step) = &mut stage.step {
                (step.changed_at, step.applied_at) = (choices.number(), choices.number());
            }
        }
        (5, Some(stage)) => {
            if let Some(step) = &mut stage.step {
                step.convergence_attempts.clone_from(&stage.attempts);
            }
        }
        (6, Some(stage)) => stage.step = None,
        (7, _) => evidence.refused_missed = choices.number(),
        _ => stages.push(StageEvidence::default()),
    }
}

fn spoil_stage(evidence: &mut StageEvidence, choices: &mut Choices<'_>) {
    let index = choices.below(evidence.attempts.len());
    match (choices.below(16), evidence.attempts.get_mut(index)) {
        (0, Some(_)) => drop(evidence.attempts.remove(index)),
        (1, Some(attempt)) => {
            let again = attempt.clone();
            evidence.attempts.push(again);
        }
        (2, Some(attempt)) => attempt.index = u32::try_from(choices.below(9)).unwrap_or(0),
        (3, Some(attempt)) => ["", "call", "x"][choices.below(3)].clone_into(&mut attempt.probe),
        (4, Some(attempt)) => attempt.verdict = Verdict::ALL[choices.below(7)],
        (5, Some(attempt)) => attempt.endpoint = None,
        (6, Some(attempt)) => attempt.endpoint = Some("pod/default/web".to_owned()),
        (7, Some(attempt)) => attempt.seen_source = None,
        (8, Some(attempt)) => {
            attempt.duration = Duration::from_nanos(choices.number());
            attempt.settled = true;
        }
        (9, Some(_)) => evidence.attempts.clear(),
        (10, Some(_)) => evidence.attempts.reverse(),
        (11, _) => evidence.counters.clear(),
        (12, _) => evidence.kernel_state.clear(),
        (13, _) => {
            evidence.packets_missed = choices.number();
            evidence.trace_missed = choices.number();
        }
        (14, _) => {
            for counters in evidence.counters.values_mut() {
                let by = choices.number().cast_signed();
                counters.insert("TcpExtIPReversePathFilter".to_owned(), by);
            }
        }
        _ => {
            let length = choices.below(200);
            let packet = Packet {
                time: choices.number(),
                namespace: "node-1".to_owned(),
                interface: "eth0".to_owned(),
                direction: Direction::In,
                length: u32::try_from(length).unwrap_or(0),
                bytes: (0..length).map(|_| choices.byte()).collect(),
            };
            evidence.packets.push(packet);
        }
    }
}

/// Returns why no case may pass with this evidence, by counting, without the judge. `None` if the
/// case may pass.
pub fn must_not_pass(prepared: &Prepared, evidence: &Evidence) -> Option<String> {
    let plan = &prepared.plan;
    let expected = &prepared.case.expected().expected;
    let stages = &evidence.stages;
    if stages.len() != plan.stages.len() {
        return Some("the number of stages is wrong".to_owned());
    }
    for (name, expectation) in &expected.probes {
        let (stage_index, planned) = find_probe(plan, name)?;
        let attempts = || {
            stages[stage_index]
                .attempts
                .iter()
                .filter(|attempt| attempt.probe == *name)
        };
        let numbers: BTreeSet<u32> = attempts().map(|attempt| attempt.index).collect();
        if !numbers.iter().copied().eq(0..planned.connections)
            || attempts().count() != numbers.len()
        {
            return Some(format!("not every connection of {name} occurs once"));
        }
        let names_any = expectation
            .verdicts()
            .iter()
            .any(|(_, count)| count.is_some());
        for (word, count) in expectation.verdicts() {
            // A verdict without a count is expected 0 times, unless the row names no verdict at
            // all.
            let count = count.or(names_any.then_some(Count::exactly(0)));
            let seen = attempts()
                .filter(|attempt| attempt.verdict.name() == word)
                .count();
            let fits = |seen: u32| count.is_none_or(|count| count.contains(seen));
            if !fits(u32::try_from(seen).unwrap_or(u32::MAX)) {
                return Some(format!("the number of {word} of {name} is unexpected"));
            }
        }
        let expects_sources = expectation
            .sources()
            .is_some_and(|sources| !sources.is_empty());
        if (expects_sources || expectation.source_port.is_some())
            && attempts().all(|attempt| attempt.seen_source.is_none())
        {
            return Some(format!("no server recorded a source of {name}"));
        }
        for pod in expectation.endpoints.iter().flatten() {
            let is_it = |attempt: &Attempt| {
                let seen = attempt.endpoint.as_deref();
                seen.is_some_and(|seen| seen.ends_with(pod.as_str()))
            };
            if !attempts().any(is_it) {
                return Some(format!("{pod} never answered {name}"));
            }
        }
    }
    for counter in &expected.counters {
        if stages.iter().any(|stage| stage.counters.is_empty()) {
            return Some(format!("the counters of {} are missing", counter.on));
        }
    }
    let expects = |count: Count| count.min() > 0;
    for wire in &expected.wire {
        if expects(wire.count) && stages.iter().all(|stage| stage.packets.is_empty()) {
            return Some(format!("no packet was captured on {}", wire.on));
        }
    }
    let no_rules = |stage: &StageEvidence| stage.rules.is_empty() && stage.nft.is_empty();
    let rules = expected.rules.iter().any(|rule| expects(rule.hits));
    let chains = expected.chains.iter().any(|chain| !chain.is.is_empty());
    if (rules || chains) && stages.iter().all(no_rules) {
        return Some("the rules are missing".to_owned());
    }
    for name in expected.steps.keys() {
        if evidence.steps().all(|step| step.name != *name) {
            return Some(format!("no packet of {name} was captured"));
        }
    }
    let holds =
        !(expected.sets.is_empty() && expected.ipvs.is_empty() && expected.links.is_empty());
    if holds && stages.iter().any(|stage| stage.kernel_state.is_empty()) {
        return Some("the kernel state is missing".to_owned());
    }
    None
}

/// Finds a probe and the stage at whose end the probe is over.
fn find_probe<'p>(plan: &'p Plan, name: &str) -> Option<(usize, &'p Probe)> {
    let stages = plan.stages.iter().enumerate().rev();
    let mut probes = stages.flat_map(|(at, stage)| stage.probes.iter().map(move |own| (at, own)));
    probes.find(|(_, probe)| probe.name == name)
}

/// Answer of the fake agent to a request for evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentBehavior {
    /// Sends the evidence.
    SendsEvidence,
    /// Reports a failure.
    Fails,
    /// Sends events that do not answer the request.
    SendsWrongEvents,
    /// Sends bytes that are no event.
    SendsGarbage,
    /// Ends without an answer.
    Ends,
}

impl AgentBehavior {
    /// Picks a behavior, mostly [`Self::SendsEvidence`].
    pub fn choose(choices: &mut Choices<'_>) -> Self {
        match choices.below(16) {
            1 => Self::Fails,
            2 => Self::SendsWrongEvents,
            3 => Self::SendsGarbage,
            4 => Self::Ends,
            _ => Self::SendsEvidence,
        }
    }
}

async fn serve(stream: DuplexStream, evidence: Evidence, manner: AgentBehavior) {
    let (reading, writing) = tokio::io::split(stream);
    let mut requests = FramedRead::new(reading, request_framing());
    let mut events = FramedWrite::new(writing, request_framing());
    let ready = Event::Ready {
        protocol: VERSION,
        environment: svclab_model::evidence::Environment::default(),
    };
    let mut answers = vec![ready];
    loop {
        for answer in answers.drain(..) {
            let text = serde_json::to_vec(&answer).expect("JSON");
            if events.send(Bytes::from(text)).await.is_err() {
                return;
            }
        }
        let Some(Ok(frame)) = requests.next().await else {
            return;
        };
        let request: Request = serde_json::from_slice(&frame).expect("a request");
        match (&request, manner) {
            (Request::Probe { .. }, AgentBehavior::Ends) => return,
            (Request::Probe { .. }, AgentBehavior::SendsGarbage) => {
                let _ = events.send(Bytes::from_static(b"{\"say\": 7}")).await;
            }
            _ => {}
        }
        answers.extend(answer(request, &evidence, manner));
    }
}

fn answer(request: Request, evidence: &Evidence, manner: AgentBehavior) -> Vec<Event> {
    let failed = |lab: LabId| Event::Failed {
        lab,
        failure: Failure {
            kind: FailureKind::Machine,
            message: "the agent failed".to_owned(),
            remedy: None,
            rejected: None,
        },
    };
    match (request, manner) {
        (Request::Build { lab, .. }, _) => vec![Event::Built {
            lab,
            descriptors: BTreeMap::new(),
            refused: Vec::new(),
        }],
        (Request::Probe { lab }, AgentBehavior::Fails) => vec![failed(lab)],
        (Request::Probe { lab }, AgentBehavior::SendsWrongEvents) => vec![
            // For a lab that the front end did not build.
            failed(lab.wrapping_add(1000)),
            Event::Served { lab, version: 7 },
        ],
        (Request::Probe { lab }, _) => vec![
            Event::BackendHealthChanged {
                lab,
                change: BackendHealthChange {
                    namespace: "clb".to_owned(),
                    backend: ([10, 0, 0, 1], 80).into(),
                    healthy: false,
                },
            },
            Event::Probed {
                lab,
                evidence: Box::new(evidence.clone()),
            },
        ],
        (Request::Remove { lab }, _) => vec![Event::Removed { lab }],
        (Request::Ping, _) => vec![Event::Alive],
        _ => Vec::new(),
    }
}

/// Runs a case on a fake agent and returns its outcome. Renders the result in every format.
pub async fn run_case(
    prepared: &Prepared,
    evidence: &Evidence,
    manner: AgentBehavior,
) -> CaseStatus {
    let (near, far) = duplex(1 << 16);
    let agent = tokio::spawn(serve(far, evidence.clone(), manner));
    let (reading, writing) = tokio::io::split(near);
    let connected = Agent::connect(reading, writing)
        .await
        .expect("the agent is ready");
    let (result, seen) = run_on_agent(&connected, prepared.clone()).await;
    agent.abort();
    let outcome = result.result;
    let mut results = Results::new(BTreeMap::new(), vec![result.clone()]);
    results.begun = Some(1);
    let code = results.exit_code();
    assert_eq!(code == 0, outcome == CaseStatus::Pass, "{results:#?}");
    let events = [
        Told::RunStarted { cases: 1 },
        Told::CaseEnded {
            result: Box::new(result),
            evidence: seen,
        },
        Told::RunEnded {
            results: Box::new(results),
            duration: Duration::ZERO,
        },
    ];
    for format in [Format::Human, Format::Json, Format::Junit, Format::Github] {
        let mut out = Vec::new();
        let mut writer = format.writer(&mut out, Telling::default());
        for event in &events {
            writer.event(event).expect("a buffer accepts all output");
        }
    }
    outcome
}

/// Runs a case on a fake agent whose behavior comes from `choices`.
///
/// # Panics
///
/// When the case passes without evidence for every expectation, or any code panics.
pub async fn run_with_choices(prepared: &Prepared, choices: &mut Choices<'_>) {
    let manner = AgentBehavior::choose(choices);
    let mut evidence = ideal_evidence(prepared);
    spoil(&mut evidence, choices);
    let reason = match manner {
        AgentBehavior::SendsEvidence => must_not_pass(prepared, &evidence),
        other => Some(format!("the behavior of the agent is {other:?}")),
    };
    let outcome = run_case(prepared, &evidence, manner).await;
    if let Some(why) = reason {
        assert_ne!(outcome, CaseStatus::Pass, "{}: {why}", prepared.case.id);
    }
}
