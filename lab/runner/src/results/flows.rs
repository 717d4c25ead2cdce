//! Flow tables. The table of a lab has the result of each flow for every value of one axis, and the
//! facts that the cases confirm.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::{IndexMap, IndexSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CaseResult, CaseStatus, FileLine};
use svclab_model::evidence::Verdict;
use svclab_scenario::expectation::ProbeExpectation;

/// Result of a flow in a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowOutcome {
    /// Name of the flow in the lab.
    pub flow: String,
    /// Source of the flow.
    pub from: String,
    /// Target of the flow.
    pub to: String,
    /// Observed result.
    pub seen: FlowObservation,
    /// Whether the observed result is the expected one.
    pub holds: bool,
    /// Expectation.
    pub expected: ProbeExpectation,
    /// Location of the row that states the expectation.
    pub location: Option<FileLine>,
    /// Reason for the expectation.
    pub because: Option<String>,
    /// Source that confirms the reason.
    pub source: Option<String>,
    /// Facts that the flow confirms if `holds` is true.
    pub covers: Vec<String>,
}

/// Observed result of a flow, without counts. Two runs with the same result are therefore equal,
/// although endpoints are chosen at random.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct FlowObservation {
    /// Verdicts of the attempts.
    pub verdicts: BTreeSet<Verdict>,
    /// Endpoints that answered.
    pub endpoints: BTreeSet<String>,
    /// Sources of the requests, as the endpoints received them.
    pub sources: BTreeSet<String>,
}

/// Flows and facts that a lab declares for its table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredFlows {
    /// Name of the lab, or its name on the command line if another lab has the same name.
    pub lab: String,
    /// Indices of its cases among all cases.
    pub cases: BTreeSet<usize>,
    /// Axis whose values are the columns. `None` for a lab with one case.
    pub columns: Option<String>,
    /// Names of the flows, in the order of the rows.
    pub flows: Vec<String>,
    /// Facts by name. The value is the reason why no flow covers the fact, if none does.
    pub facts: IndexMap<String, Option<String>>,
}

/// Flow table of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowTable {
    /// Name of the lab, or its name on the command line if another lab has the same name.
    pub lab: String,
    /// Axis whose values are the columns. Null for a lab without axes.
    pub axis: Option<String>,
    /// Values of the axis for which cases ran.
    pub columns: Vec<String>,
    /// Row of each flow.
    pub flows: Vec<FlowRow>,
    /// Coverage of the facts that the lab names. Absent if the lab names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<FactCoverage>,
}

/// Row of a flow table: a flow across the columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowRow {
    /// Name of the flow.
    pub flow: String,
    /// Source of the flow.
    pub from: String,
    /// Target of the flow.
    pub to: String,
    /// Whether cases that differ only in the column have different results.
    pub differs: bool,
    /// Results in each column, in the order of the columns.
    pub cells: Vec<FlowCell>,
}

/// Cell of a flow table: the results of a flow in one column.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowCell {
    /// Axis value of the column.
    pub column: String,
    /// Distinct results. The result of most cases comes first.
    pub outcomes: Vec<CellOutcome>,
}

/// Observed result of a flow, with the cases that had it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellOutcome {
    /// Observed result.
    pub seen: FlowObservation,
    /// Whether the observed result is the expected one.
    pub holds: bool,
    /// Full names of the cases.
    pub cases: Vec<String>,
    /// Reasons that the rows of these cases state, each once with its source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
}

/// Reason for the result of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// Reason in the words of the lab.
    pub because: String,
    /// Source that confirms the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// Coverage of the facts of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FactCoverage {
    /// Number of facts.
    pub total: usize,
    /// Facts that a flow with the expected result covers.
    pub covered: Vec<String>,
    /// Facts that no flow covers, each with the reason.
    pub not_covered: BTreeMap<String, String>,
    /// Facts that flows cover, but none of these flows ran with the expected result.
    pub open: Vec<String>,
}

/// Returns the tables of the labs that have flows. Each result has the index of its case. Cases
/// without a verdict are omitted.
#[must_use]
pub fn tables(labs: &[DeclaredFlows], results: &[(usize, &CaseResult)]) -> Vec<FlowTable> {
    let table = |lab: &DeclaredFlows| {
        let of_lab = results.iter().filter(|(index, result)| {
            lab.cases.contains(index) && result.result != CaseStatus::Error
        });
        let cases: Vec<&CaseResult> = of_lab.map(|(_, result)| *result).collect();
        build_table(lab, &cases)
    };
    let with_flows = labs.iter().filter(|lab| !lab.flows.is_empty());
    with_flows
        .map(table)
        .filter(|table| !table.flows.is_empty())
        .collect()
}

fn build_table(lab: &DeclaredFlows, cases: &[&CaseResult]) -> FlowTable {
    let columns: IndexSet<&str> = cases.iter().map(|case| column_value(lab, case)).collect();
    let rows = lab.flows.iter().filter_map(|flow| {
        let seen: Vec<(&CaseResult, &FlowOutcome)> = cases
            .iter()
            .filter_map(|case| {
                let found = case.flows.iter().find(|outcome| outcome.flow == *flow)?;
                Some((*case, found))
            })
            .collect();
        let (_, first) = seen.first()?;
        let cell = |name: &&str| FlowCell {
            column: (*name).to_owned(),
            outcomes: group_outcomes(
                seen.iter()
                    .filter(|(case, _)| column_value(lab, case) == *name),
            ),
        };
        Some(FlowRow {
            flow: flow.clone(),
            from: first.from.clone(),
            to: first.to.clone(),
            differs: differs(lab, &seen),
            cells: columns.iter().map(cell).collect(),
        })
    });
    FlowTable {
        lab: lab.lab.clone(),
        axis: lab.columns.clone(),
        flows: rows.collect(),
        columns: columns.iter().map(|&column| column.to_owned()).collect(),
        facts: fact_coverage(lab, cases),
    }
}

/// Groups the observed results of several cases by equal result.
fn group_outcomes<'a>(
    seen: impl Iterator<Item = &'a (&'a CaseResult, &'a FlowOutcome)>,
) -> Vec<CellOutcome> {
    let mut groups: IndexMap<(&FlowObservation, bool), CellOutcome> = IndexMap::new();
    for (case, outcome) in seen {
        let group = groups
            .entry((&outcome.seen, outcome.holds))
            .or_insert_with(|| CellOutcome {
                seen: outcome.seen.clone(),
                holds: outcome.holds,
                cases: Vec::new(),
                reasons: Vec::new(),
            });
        group.cases.push(case.case.clone());
        let reason = outcome.because.as_ref().map(|because| Reason {
            because: because.clone(),
            source: outcome.source.clone(),
        });
        if let Some(reason) = reason.filter(|reason| !group.reasons.contains(reason)) {
            group.reasons.push(reason);
        }
    }
    let mut groups: Vec<CellOutcome> = groups.into_values().collect();
    groups.sort_by_key(|group| usize::MAX - group.cases.len());
    groups
}

/// Returns the value that the column axis has in a case; empty without a column axis.
fn column_value<'c>(lab: &DeclaredFlows, case: &'c CaseResult) -> &'c str {
    let of_axis = |pair: &'c str| {
        let (axis, value) = pair.split_once('=')?;
        (Some(axis) == lab.columns.as_deref()).then_some(value)
    };
    case.short_name().split(',').find_map(of_axis).unwrap_or("")
}

/// Returns the axis values of a case without that of the column axis.
fn values_without_column<'c>(lab: &DeclaredFlows, case: &'c CaseResult) -> Vec<&'c str> {
    let pairs = case.short_name().split(',');
    pairs
        .filter(|pair| pair.split_once('=').map(|(axis, _)| axis) != lab.columns.as_deref())
        .collect()
}

/// Whether two cases that differ only in the column have different observed results.
fn differs(lab: &DeclaredFlows, seen: &[(&CaseResult, &FlowOutcome)]) -> bool {
    let mut first: BTreeMap<Vec<&str>, &FlowObservation> = BTreeMap::new();
    seen.iter().any(|(case, outcome)| {
        let first_seen = first
            .entry(values_without_column(lab, case))
            .or_insert(&outcome.seen);
        **first_seen != outcome.seen
    })
}

fn fact_coverage(lab: &DeclaredFlows, cases: &[&CaseResult]) -> Option<FactCoverage> {
    if lab.facts.is_empty() {
        return None;
    }
    let flows = cases.iter().flat_map(|case| &case.flows);
    let confirmed: BTreeSet<&str> = flows
        .filter(|outcome| outcome.holds)
        .flat_map(|outcome| outcome.covers.iter().map(String::as_str))
        .collect();
    let (covered, unconfirmed): (Vec<_>, Vec<_>) = lab
        .facts
        .iter()
        .partition(|(id, _)| confirmed.contains(id.as_str()));
    let not_covered =
        |(id, why): &(&String, &Option<String>)| Some(((*id).clone(), (*why).clone()?));
    let open = unconfirmed.iter().filter(|(_, why)| why.is_none());
    Some(FactCoverage {
        total: lab.facts.len(),
        open: open.map(|(id, _)| (*id).clone()).collect(),
        not_covered: unconfirmed.iter().filter_map(not_covered).collect(),
        covered: covered.into_iter().map(|(id, _)| id.clone()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use crate::results::fixture;

    #[test]
    fn facts_failed_flow_confirms_none() {
        let tables = fixture::flow_tables();
        let facts = tables[0].facts.as_ref().expect("the lab declares facts");
        assert_eq!(
            (facts.total, &facts.covered[..]),
            (3, &["test.every".to_owned()][..])
        );
        assert_eq!(facts.open, ["test.pod"]);
        assert_eq!(facts.not_covered["test.sctp"], "probes do not support SCTP");
    }

    #[test]
    fn differs_compares_only_cases_of_equal_other_axes() {
        let tables = fixture::flow_tables();
        let differing: Vec<(&str, bool)> = tables[0]
            .flows
            .iter()
            .map(|flow| (flow.flow.as_str(), flow.differs))
            .collect();
        assert_eq!(differing, [("every", false), ("none", true), ("pod", true)]);
        // A case without a verdict adds no column.
        assert_eq!(tables[0].columns, ["iptables", "ipvs"]);
    }
}
