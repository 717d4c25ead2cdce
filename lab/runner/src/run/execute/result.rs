//! Builds the result of a case from its judgement and evidence.

use std::collections::HashMap;
use std::sync::Arc;

use super::case_evidence::CaseEvidence;
use super::{KeptCase, flows};
use crate::kernel::Session;
use crate::results::{CaseResult, CaseStatus, RunError};
use crate::run::prepare::Prepared;
use svclab_judge::Judgement;
use svclab_model::evidence::Evidence;
use svclab_model::plan::{Plan, ProbeProtocol};

/// Returns the result of a case without a verdict.
pub(super) fn without_verdict(prepared: &Prepared, error: RunError) -> CaseResult {
    CaseResult {
        named: cli_name(prepared),
        location: prepared.expectation_location(),
        claims: prepared.unsettled_claims(),
        made: prepared.case.made_objects(),
        ..CaseResult::without_verdict(&prepared.case.lab, &prepared.case.id, error)
    }
}

/// Returns the name of a case on the command line; empty if it equals the case ID.
pub(super) fn cli_name(prepared: &Prepared) -> String {
    let named = Some(prepared.rerun_name()).filter(|named| *named != prepared.case.id);
    named.unwrap_or_default()
}

/// Returns the result of a case with a verdict.
pub(in crate::run) fn judged_result(
    prepared: &Prepared,
    judgement: Judgement,
    evidence: &Evidence,
) -> CaseResult {
    let mut result = CaseResult {
        named: cli_name(prepared),
        result: if judgement.holds() {
            CaseStatus::Pass
        } else {
            CaseStatus::Fail
        },
        flows: flows::flow_results(prepared, &judgement),
        probes: judgement.probes().cloned().collect(),
        steps: judgement.steps().cloned().collect(),
        claims: judgement.claims,
        wire: judgement.wire,
        counters: judgement.counters,
        rules: judgement.rules,
        kernel_state: judgement.kernel_state,
        refused: evidence.refused.clone(),
        refused_missed: evidence.refused_missed,
        repeated_ports: count_repeated_ports(&prepared.plan, evidence),
        made: prepared.case.made_objects(),
        ..CaseResult::empty(&prepared.case.lab, &prepared.case.id)
    };
    result.location =
        flows::failed_flow_location(&result).or_else(|| prepared.expectation_location());
    result
}

/// Returns the number of connections with the source port of an earlier connection of the case. The
/// agent repeats ports only if the source has few, as with a small `net.ipv4.ip_local_port_range`.
fn count_repeated_ports(plan: &Plan, evidence: &Evidence) -> u64 {
    let probes = plan.stages.iter().flat_map(|stage| &stage.probes);
    let without_assigned_ports: Vec<&str> = probes
        .filter(|probe| probe.protocol == ProbeProtocol::Ping || probe.source_port.is_some())
        .map(|probe| probe.name.as_str())
        .collect();
    let mut last_by_port = HashMap::new();
    let mut repeated = 0;
    for attempt in evidence.attempts() {
        let port = attempt.local_address.map_or(0, |address| address.port());
        if port == 0 || without_assigned_ports.contains(&attempt.probe.as_str()) {
            continue;
        }
        // A connection that stays open during a step has an attempt before and after it.
        let connection = (attempt.probe.as_str(), attempt.index);
        let earlier = last_by_port.insert(port, connection);
        repeated += u64::from(earlier.is_some_and(|earlier| earlier != connection));
    }
    repeated
}

/// Splits an ended case into its result, its evidence if `with_evidence` is set, and its running
/// lab.
pub(super) fn split_ended(
    (prepared, result, lab): (Arc<Prepared>, CaseResult, Option<(Session, Evidence)>),
    with_evidence: bool,
) -> (CaseResult, Option<Arc<CaseEvidence>>, Option<KeptCase>) {
    let seen = lab
        .as_ref()
        .filter(|_| with_evidence)
        .map(|(_, evidence)| Arc::new(CaseEvidence::new(&prepared, &result.kernel, evidence)));
    let names = prepared.plan.namespaces.iter().map(|ns| ns.name.clone());
    let kept = lab.map(|(session, _)| KeptCase {
        case: prepared.case.id.clone(),
        namespaces: names.collect(),
        session,
    });
    (result, seen, kept)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use svclab_model::evidence::{Attempt, StageEvidence, Verdict};

    fn attempt(probe: &str, index: u32, port: u16) -> Attempt {
        Attempt {
            idle: None,
            probe: probe.to_owned(),
            index,
            verdict: Verdict::Connected,
            endpoint: None,
            seen_source: None,
            further_answers: Vec::new(),
            progress: None,
            local_address: Some(([10, 244, 1, 5], port).into()),
            duration: Duration::ZERO,
            settled: false,
            error: None,
        }
    }

    #[test]
    fn repeated_ports_of_all_stages_are_counted() {
        let stage = |attempts| StageEvidence {
            attempts,
            ..StageEvidence::default()
        };
        let evidence = Evidence {
            stages: vec![
                stage(vec![
                    attempt("call", 0, 40_000),
                    attempt("call", 1, 40_001),
                    attempt("other", 0, 40_000),
                    attempt("open", 0, 40_002),
                ]),
                // The first one is the same connection.
                stage(vec![
                    attempt("open", 0, 40_002),
                    attempt("later", 0, 40_001),
                ]),
            ],
            ..Evidence::default()
        };
        assert_eq!(count_repeated_ports(&Plan::default(), &evidence), 2);
        assert_eq!(
            count_repeated_ports(&Plan::default(), &Evidence::default()),
            0
        );
    }
}
