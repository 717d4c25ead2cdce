//! Flows side by side: for each lab that has any, what became of each flow in the
//! cases of every value of one axis, and which facts were borne out.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::{IndexMap, IndexSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CaseResult, Outcome, Place};
use svclab_model::evidence::Verdict;

/// What became of one flow in one case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowOutcome {
    /// The flow, by its name in the lab.
    pub flow: String,
    /// Who called.
    pub from: String,
    /// Whom.
    pub to: String,
    /// What was seen.
    pub seen: FlowSeen,
    /// Whether that is what was expected.
    pub holds: bool,
    /// What was expected, in the lab's words.
    pub expected: String,
    /// The row that expected it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Why it is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Where that can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The facts that it bears out if it holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covers: Vec<String>,
}

/// What is seen of a flow, without how often: two runs of one flow that see the same
/// are the same, however random the choice of endpoints.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct FlowSeen {
    /// What its exchanges came to.
    pub verdicts: BTreeSet<Verdict>,
    /// Who answered.
    pub endpoints: BTreeSet<String>,
    /// The sources that those who answered saw.
    pub sources: BTreeSet<String>,
}

/// What a lab with flows says of its table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Declared {
    /// The lab.
    pub lab: String,
    /// The axis whose values are the columns; none in a lab of one case.
    pub columns: Option<String>,
    /// The flows, in order.
    pub flows: Vec<String>,
    /// The facts, and of those that no flow covers why.
    pub facts: IndexMap<String, Option<String>>,
}

/// The flows of one lab, side by side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowTable {
    /// The lab.
    pub lab: String,
    /// The axis whose values are the columns; nothing in a lab without axes.
    pub axis: Option<String>,
    /// Its values, as far as cases with them ran.
    pub columns: Vec<String>,
    /// Each flow.
    pub flows: Vec<FlowRow>,
    /// What became of the facts that the lab names; nothing if it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Facts>,
}

/// One flow across the columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowRow {
    /// The flow.
    pub flow: String,
    /// Who called.
    pub from: String,
    /// Whom.
    pub to: String,
    /// Whether cases that differ in the column alone came to something else.
    pub differs: bool,
    /// What was seen in each column, in the order of the columns.
    pub cells: Vec<FlowCell>,
}

/// One flow in one column: what was seen, and in which cases.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowCell {
    /// The column.
    pub column: String,
    /// What was seen, what most cases saw first.
    pub outcomes: Vec<CellOutcome>,
}

/// Something that was seen of a flow, and in which cases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellOutcome {
    /// What was seen.
    pub seen: FlowSeen,
    /// Whether it was expected.
    pub holds: bool,
    /// The cases.
    pub cases: Vec<String>,
    /// Why, as their rows say, each reason with its source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
}

/// Why a flow comes out as it does.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// Why.
    pub because: String,
    /// Where that can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// Which facts were borne out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// How many there are.
    pub all: usize,
    /// Those that flows covered which came out as expected.
    pub covered: Vec<String>,
    /// Those that no flow covers, with the reason.
    pub not_covered: BTreeMap<String, String>,
    /// Those that flows cover of which none ran and came out as expected.
    pub open: Vec<String>,
}

/// The tables of the labs that have flows. Cases of no verdict are left out.
#[must_use]
pub fn tables(labs: &[Declared], cases: &[CaseResult]) -> Vec<FlowTable> {
    let table = |lab: &Declared| {
        let own = |case: &&CaseResult| case.lab == lab.lab && case.result != Outcome::Error;
        let cases: Vec<&CaseResult> = cases.iter().filter(own).collect();
        table(lab, &cases)
    };
    let with_flows = labs.iter().filter(|lab| !lab.flows.is_empty());
    with_flows
        .map(table)
        .filter(|table| !table.flows.is_empty())
        .collect()
}

fn table(lab: &Declared, cases: &[&CaseResult]) -> FlowTable {
    let columns: IndexSet<&str> = cases.iter().map(|case| column(lab, case)).collect();
    let rows = lab.flows.iter().filter_map(|flow| {
        let seen: Vec<(&CaseResult, &FlowOutcome)> = cases
            .iter()
            .filter_map(|case| {
                let found = case.flows.iter().find(|outcome| outcome.flow == *flow)?;
                Some((*case, found))
            })
            .collect();
        let (_, first) = seen.first()?;
        let cell = |column_: &&str| FlowCell {
            column: (*column_).to_owned(),
            outcomes: outcomes(
                seen.iter()
                    .filter(|(case, _)| column(lab, case) == *column_),
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
        facts: facts(lab, cases),
    }
}

/// What was seen in some cases, equal outcomes together.
fn outcomes<'a>(
    seen: impl Iterator<Item = &'a (&'a CaseResult, &'a FlowOutcome)>,
) -> Vec<CellOutcome> {
    let mut groups: IndexMap<(&FlowSeen, bool), CellOutcome> = IndexMap::new();
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

/// The value of the columns' axis in a case; empty without such an axis.
fn column<'c>(lab: &Declared, case: &'c CaseResult) -> &'c str {
    let of_axis = |pair: &'c str| {
        let (axis, value) = pair.split_once('=')?;
        (Some(axis) == lab.columns.as_deref()).then_some(value)
    };
    case.short_name().split(',').find_map(of_axis).unwrap_or("")
}

/// A case's name without the value of the columns' axis.
fn apart_from_column<'c>(lab: &Declared, case: &'c CaseResult) -> Vec<&'c str> {
    let pairs = case.short_name().split(',');
    pairs
        .filter(|pair| pair.split_once('=').map(|(axis, _)| axis) != lab.columns.as_deref())
        .collect()
}

/// Whether two cases that have all but the column in common saw different things.
fn differs(lab: &Declared, seen: &[(&CaseResult, &FlowOutcome)]) -> bool {
    let mut first: BTreeMap<Vec<&str>, &FlowSeen> = BTreeMap::new();
    seen.iter().any(|(case, outcome)| {
        let known = first
            .entry(apart_from_column(lab, case))
            .or_insert(&outcome.seen);
        **known != outcome.seen
    })
}

fn facts(lab: &Declared, cases: &[&CaseResult]) -> Option<Facts> {
    if lab.facts.is_empty() {
        return None;
    }
    let flows = cases.iter().flat_map(|case| &case.flows);
    let borne_out: BTreeSet<&str> = flows
        .filter(|outcome| outcome.holds)
        .flat_map(|outcome| outcome.covers.iter().map(String::as_str))
        .collect();
    let (covered, others): (Vec<_>, Vec<_>) = lab
        .facts
        .iter()
        .partition(|(id, _)| borne_out.contains(id.as_str()));
    let why = |(id, why): &(&String, &Option<String>)| Some(((*id).clone(), (*why).clone()?));
    let open = others.iter().filter(|(_, why)| why.is_none());
    Some(Facts {
        all: lab.facts.len(),
        open: open.map(|(id, _)| (*id).clone()).collect(),
        not_covered: others.iter().filter_map(why).collect(),
        covered: covered.into_iter().map(|(id, _)| id.clone()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use crate::results::fixture;

    #[test]
    fn only_what_held_bears_facts_out() {
        let tables = fixture::flow_tables();
        let facts = tables[0].facts.as_ref().expect("the lab names facts");
        assert_eq!(
            (facts.all, &facts.covered[..]),
            (3, &["test.every".to_owned()][..])
        );
        assert_eq!(facts.open, ["test.pod"]);
        assert_eq!(facts.not_covered["test.sctp"], "probes do not speak SCTP");
    }

    #[test]
    fn columns_differ_only_in_cases_that_have_all_else_in_common() {
        let tables = fixture::flow_tables();
        let differing: Vec<(&str, bool)> = tables[0]
            .flows
            .iter()
            .map(|flow| (flow.flow.as_str(), flow.differs))
            .collect();
        assert_eq!(differing, [("every", false), ("none", true), ("pod", true)]);
        // A case without a verdict has no part in it.
        assert_eq!(tables[0].columns, ["iptables", "ipvs"]);
    }
}
