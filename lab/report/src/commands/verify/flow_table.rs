//! Builds the table of changed flows: a column for each side.

use super::{AGAINST, NEW};
use svclab_experiment::OutcomeCount;
use svclab_experiment::verify::{ChangedFlow, Verification};
use svclab_runner::results::flows::{CellOutcome, FlowCell, FlowObservation, FlowRow, FlowTable};

/// Returns the table of the flows that differ between the sides; `None` if no flow differs. A row
/// is named by its case, step and probe.
#[must_use]
pub fn changed_flows(verification: &Verification) -> Option<FlowTable> {
    let rows: Vec<FlowRow> = verification.changed.iter().map(row).collect();
    (!rows.is_empty()).then(|| FlowTable {
        lab: "changed flows".to_owned(),
        axis: None,
        columns: [AGAINST, NEW].map(str::to_owned).into(),
        flows: rows,
        facts: None,
    })
}

fn row(changed: &ChangedFlow) -> FlowRow {
    let flow = &changed.flow;
    let parts = [Some(&flow.case), flow.step.as_ref(), Some(&flow.probe)];
    let name: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
    let sides = [(AGAINST, &changed.against), (NEW, &changed.new)];
    let cells = sides.map(|(side, outcomes)| FlowCell {
        column: side.to_owned(),
        outcomes: vec![CellOutcome {
            seen: observation(outcomes),
            holds: true,
            cases: vec![flow.case.clone()],
            reasons: Vec::new(),
        }],
    });
    FlowRow {
        flow: name.join("/"),
        from: flow.from.clone(),
        to: flow.to.clone(),
        differs: true,
        cells: cells.into(),
    }
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
