//! Builds the tables of the compared flows: one for each lab, with a column for each side.

use indexmap::IndexMap;

use super::{AGAINST, NEW};
use svclab_experiment::OutcomeCount;
use svclab_experiment::verify::{ComparedFlow, SideInfo, Verification};
use svclab_runner::results::flows::{CellOutcome, FlowCell, FlowObservation, FlowRow, FlowTable};

/// Maximum number of rows of all tables. Rows that differ are never omitted.
const MAX_ROWS: usize = 1000;

/// Tables of compared flows, and the number of omitted rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ComparedTables {
    /// Table of each lab.
    pub tables: Vec<FlowTable>,
    /// Number of rows without a difference that are omitted.
    pub omitted: usize,
}

/// Returns the tables of the compared flows. The cases of a lab share a row for each step and probe.
#[must_use]
pub fn compared_flows(verification: &Verification) -> ComparedTables {
    let titles = [(AGAINST, &verification.against), (NEW, &verification.new)]
        .map(|(name, side)| column(name, side));
    let mut labs: IndexMap<&str, IndexMap<String, Vec<&ComparedFlow>>> = IndexMap::new();
    for compared in &verification.compared {
        let flow = &compared.flow;
        let lab = flow.case.split('/').next().unwrap_or_default();
        let name = match &flow.step {
            Some(step) => format!("{step}/{}", flow.probe),
            None => flow.probe.clone(),
        };
        let rows = labs.entry(lab).or_default();
        rows.entry(name).or_default().push(compared);
    }
    let mut left = MAX_ROWS;
    let mut omitted = 0;
    let tables = labs.into_iter().map(|(lab, rows)| {
        let mut rows: Vec<FlowRow> = rows
            .into_iter()
            .map(|(name, flows)| row(name, &flows, &titles))
            .collect();
        let all = rows.len();
        rows.retain(|row| {
            let is_shown = row.differs || left > 0;
            left = left.saturating_sub(usize::from(is_shown));
            is_shown
        });
        omitted += all - rows.len();
        FlowTable {
            lab: lab.to_owned(),
            axis: None,
            columns: titles.to_vec(),
            flows: rows,
            facts: None,
        }
    });
    let mut tables: Vec<FlowTable> = tables.collect();
    tables.retain(|table| !table.flows.is_empty());
    ComparedTables { tables, omitted }
}

/// Returns the title of a column: the side with its version, and whether its rules are generated.
fn column(name: &str, side: &SideInfo) -> String {
    match side.program {
        Some(_) => format!("{name}: kube-proxy {}", side.version),
        None => format!("{name}: generated rules of {}", side.version),
    }
}

fn row(name: String, flows: &[&ComparedFlow], titles: &[String; 2]) -> FlowRow {
    let first = &flows[0].flow;
    let cell = |title: &String, side: fn(&ComparedFlow) -> &Vec<OutcomeCount>| FlowCell {
        column: title.clone(),
        outcomes: group(flows, side),
    };
    FlowRow {
        flow: name,
        from: first.from.clone(),
        to: first.to.clone(),
        differs: flows.iter().any(|compared| compared.is_changed),
        cells: vec![
            cell(&titles[0], |compared| &compared.against),
            cell(&titles[1], |compared| &compared.new),
        ],
    }
}

/// Groups the outcomes of several cases by equal outcome. That of most cases is first.
fn group(
    flows: &[&ComparedFlow],
    side: fn(&ComparedFlow) -> &Vec<OutcomeCount>,
) -> Vec<CellOutcome> {
    let mut groups: IndexMap<FlowObservation, CellOutcome> = IndexMap::new();
    for compared in flows {
        let seen = observation(side(compared));
        let group = groups.entry(seen.clone()).or_insert_with(|| CellOutcome {
            seen,
            holds: true,
            cases: Vec::new(),
            reasons: Vec::new(),
        });
        group.cases.push(compared.flow.case.clone());
        // The lab does not give a reason for another result.
        let reason = compared.reason.iter().filter(|_| !compared.is_changed);
        for reason in reason {
            if !group.reasons.contains(reason) {
                group.reasons.push(reason.clone());
            }
        }
    }
    let mut groups: Vec<CellOutcome> = groups.into_values().collect();
    groups.sort_by_key(|group| usize::MAX - group.cases.len());
    groups
}

fn observation(outcomes: &[OutcomeCount]) -> FlowObservation {
    let outcomes = outcomes.iter().map(|counted| &counted.outcome);
    FlowObservation {
        verdicts: outcomes.clone().map(|outcome| outcome.verdict).collect(),
        endpoints: outcomes
            .clone()
            .filter_map(|outcome| outcome.endpoint.clone())
            .collect(),
        sources: outcomes
            .filter_map(|outcome| outcome.source.clone())
            .collect(),
    }
}
