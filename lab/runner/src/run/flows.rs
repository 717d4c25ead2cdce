//! Collects the flow results of cases for reports.
//!
//! Input: prepared cases and their judgements. Output: the result of each flow with its expectation
//! row, and the flows and facts that each lab declares.

use indexmap::IndexMap;

use super::prepare::Prepared;
use crate::results::flows::{Declared, FlowOutcome, FlowSeen};
use crate::results::{CaseResult, Place};
use svclab_judge::Judgement;
use svclab_planner::cluster::place;

/// Axis of the table columns if a lab declares none.
const COLUMNS: &str = "mode";

/// Returns the flows, facts and column axis that the labs of `cases` declare, by lab.
pub(super) fn declared(cases: &[Prepared]) -> Vec<Declared> {
    let mut labs: IndexMap<&str, Declared> = IndexMap::new();
    for prepared in cases {
        let case = &prepared.case;
        labs.entry(&case.lab).or_insert_with(|| {
            let spec = &case.spec;
            let is_axis = |axis: &&str| case.values.contains_key(*axis);
            let columns = spec
                .columns
                .as_deref()
                .or(Some(COLUMNS))
                .filter(is_axis)
                .or_else(|| case.values.keys().next().map(String::as_str));
            let facts = spec.facts.iter();
            Declared {
                lab: case.lab.clone(),
                columns: columns.map(str::to_owned),
                flows: spec.flows.keys().cloned().collect(),
                facts: facts
                    .map(|(id, fact)| (id.clone(), fact.not_covered.clone()))
                    .collect(),
            }
        });
    }
    labs.into_values().collect()
}

/// Returns the results of the flows of a case.
pub(super) fn outcomes(prepared: &Prepared, judgement: &Judgement) -> Vec<FlowOutcome> {
    let case = &prepared.case;
    let one = |(name, row): (&String, &usize)| {
        let probe = judgement.probes.iter().find(|probe| probe.name == *name)?;
        let said = case.spec.flows.get(name)?.expect.get(*row)?;
        let observed = &probe.observed;
        let is_of_case = |id: &&String| {
            let fact = case.spec.facts.get(*id);
            fact.is_some_and(|fact| fact.is_of(&case.values))
        };
        Some(FlowOutcome {
            flow: name.clone(),
            from: probe.from.clone(),
            to: probe.to.clone(),
            seen: FlowSeen {
                verdicts: observed.verdicts.keys().copied().collect(),
                endpoints: observed.endpoints.clone(),
                sources: observed.seen_sources.clone(),
            },
            holds: probe.holds,
            expected: probe.expected.clone().unwrap_or_default(),
            place: prepared.place_of(&place!["spec", "flows", name, "expect", *row]),
            because: said.because.clone(),
            source: said.source.clone(),
            covers: said.covers.iter().filter(is_of_case).cloned().collect(),
        })
    };
    case.flows.iter().filter_map(one).collect()
}

/// Returns the expectation row of the first failed flow. `None` if anything other than a flow
/// failed.
pub(super) fn place(result: &CaseResult) -> Option<Place> {
    let is_flow = |name: &str| result.flows.iter().any(|flow| flow.flow == name);
    let others = result
        .probes
        .iter()
        .any(|probe| !probe.holds && !is_flow(&probe.name));
    if others || result.checks().any(|check| !check.holds) {
        return None;
    }
    let failed = result.flows.iter().find(|flow| !flow.holds)?;
    failed.place.clone()
}
