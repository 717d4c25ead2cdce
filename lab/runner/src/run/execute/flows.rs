//! Collects the flow results of cases for reports.
//!
//! Input: prepared cases and their judgements. Output: the result of each flow with its expectation
//! row, and the flows and facts that each lab declares.

use std::collections::{BTreeSet, HashMap};

use indexmap::IndexMap;

use crate::results::flows::{DeclaredFlows, FlowObservation, FlowOutcome};
use crate::results::{CaseResult, FileLine};
use crate::run::prepare::Prepared;
use svclab_judge::Judgement;
use svclab_planner::cluster::place;

/// Axis of the table columns if a lab declares none.
const DEFAULT_COLUMNS: &str = "mode";

/// Returns the flows, facts and column axis that the labs of `cases` declare, by lab. Each case has
/// its index among all cases.
pub(in crate::run) fn declared_flows<'p>(
    cases: impl Iterator<Item = (usize, &'p Prepared)>,
) -> Vec<DeclaredFlows> {
    // Labs in different files may have the same name.
    let mut labs: IndexMap<String, DeclaredFlows> = IndexMap::new();
    for (index, prepared) in cases {
        let lab = labs
            .entry(prepared.cli_lab_name())
            .or_insert_with(|| flows_of_lab(prepared));
        lab.cases.insert(index);
    }
    let mut names: HashMap<String, usize> = HashMap::new();
    for lab in labs.values() {
        *names.entry(lab.lab.clone()).or_default() += 1;
    }
    let distinct = labs.into_iter().map(|(cli_name, mut lab)| {
        if names[&lab.lab] > 1 {
            lab.lab = cli_name;
        }
        lab
    });
    distinct.collect()
}

/// Returns the flows, facts and column axis of a case's lab, without cases.
fn flows_of_lab(prepared: &Prepared) -> DeclaredFlows {
    let case = &prepared.case;
    let spec = &case.spec;
    let is_axis = |axis: &&str| case.values.contains_key(*axis);
    let columns = spec
        .columns
        .as_deref()
        .or(Some(DEFAULT_COLUMNS))
        .filter(is_axis)
        .or_else(|| case.values.keys().next().map(String::as_str));
    let facts = spec.facts.iter();
    DeclaredFlows {
        lab: case.lab.clone(),
        cases: BTreeSet::new(),
        columns: columns.map(str::to_owned),
        flows: spec.flows.keys().cloned().collect(),
        facts: facts
            .map(|(id, fact)| (id.clone(), fact.not_covered.clone()))
            .collect(),
    }
}

/// Returns the results of the flows of a case.
pub(in crate::run) fn flow_results(prepared: &Prepared, judgement: &Judgement) -> Vec<FlowOutcome> {
    let case = &prepared.case;
    let to_result = |(name, row): (&String, &usize)| {
        let probe = judgement.probes().find(|probe| probe.name == *name)?;
        let expected_row = case.spec.flows.get(name)?.expect.get(*row)?;
        let observed = &probe.observed;
        let is_of_case = |id: &&String| {
            let fact = case.spec.facts.get(*id);
            fact.is_some_and(|fact| fact.is_applicable(&case.values))
        };
        Some(FlowOutcome {
            flow: name.clone(),
            from: probe.from.clone(),
            to: probe.to.clone(),
            seen: FlowObservation {
                verdicts: observed.verdicts.keys().copied().collect(),
                endpoints: observed.endpoints.clone(),
                sources: observed.seen_sources.clone(),
            },
            holds: probe.holds,
            expected: probe.expected.clone().unwrap_or_default(),
            location: prepared.location_of(&place!["spec", "flows", name, "expect", *row]),
            because: expected_row.because.clone(),
            source: expected_row.source.clone(),
            covers: expected_row
                .covers
                .iter()
                .filter(is_of_case)
                .cloned()
                .collect(),
        })
    };
    case.flows.iter().filter_map(to_result).collect()
}

/// Returns the expectation row of the first failed flow. `None` if anything other than a flow
/// failed.
pub(in crate::run) fn failed_flow_location(result: &CaseResult) -> Option<FileLine> {
    let is_flow = |name: &str| result.flows.iter().any(|flow| flow.flow == name);
    let has_other_failures = result
        .probes
        .iter()
        .any(|probe| !probe.holds && !is_flow(&probe.name));
    if has_other_failures || result.checks().any(|check| !check.holds()) {
        return None;
    }
    let failed = result.flows.iter().find(|flow| !flow.holds)?;
    failed.location.clone()
}
