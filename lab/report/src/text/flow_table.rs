//! Renders flows as a text table: one row per flow, one column per value of an axis.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use comfy_table::{ContentArrangement, Table, presets};
use indexmap::{IndexMap, IndexSet};

use crate::text::cover::cover;
use crate::text::terminal::TerminalWidth;
use crate::text::{count, join, push_hanging, push_wrapped, strip_colours};
use svclab_runner::results::flows::{
    CellOutcome, FactCoverage, FlowCell, FlowObservation, FlowRow, FlowTable, Reason,
};

/// Maximum width of the lines below a table.
const MAX_WIDTH: usize = 100;

/// Mark of a flow whose results differ between columns.
const DIFFERS: &str = "≠";

/// Reasons for results, each with its sources.
type Notes<'t> = IndexMap<&'t str, IndexSet<&'t str>>;

/// Renders all tables, each terminated by a newline, and the number of facts that they cover.
pub(crate) fn render_tables(tables: &[FlowTable], width: TerminalWidth) -> String {
    let mut text = String::new();
    for table in tables {
        text.push_str(&render_table(table, width));
    }
    let facts: Vec<&FactCoverage> = tables
        .iter()
        .filter_map(|table| table.facts.as_ref())
        .collect();
    if facts.len() > 1 {
        let covered = facts.iter().map(|facts| facts.covered.len()).sum();
        let total = facts.iter().map(|facts| facts.total).sum();
        let _ = writeln!(text, "\nall labs: {}", coverage_text(covered, total));
    }
    strip_colours(&text)
}

fn render_table(table: &FlowTable, width: TerminalWidth) -> String {
    let mut notes = Notes::default();
    let mut drawn = Table::new();
    drawn
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    if let Some(columns) = width.0.and_then(|columns| u16::try_from(columns).ok()) {
        drawn
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(columns);
    }
    let head = ["", "flow"].map(str::to_owned).into_iter();
    drawn.set_header(head.chain(table.columns.iter().cloned()));
    for flow in &table.flows {
        drawn.add_row(row(table, flow, &mut notes));
    }
    let mut text = String::new();
    let by = match &table.axis {
        Some(axis) => format!(", by {axis}"),
        None => String::new(),
    };
    let flows = count(table.flows.len(), "flow", "flows");
    let _ = writeln!(text, "\n{}: {flows}{by}", table.lab);
    for line in drawn.to_string().lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let differing = table.flows.iter().filter(|flow| flow.differs).count();
    if table.columns.len() > 1 {
        let _ = writeln!(
            text,
            "{DIFFERS} {differing} of {} flows differ between columns",
            table.flows.len()
        );
    }
    for (index, (because, sources)) in notes.iter().enumerate() {
        let words = if sources.is_empty() {
            (*because).to_owned()
        } else {
            format!("{because} ({})", join(sources, "; "))
        };
        push_wrapped(
            &mut text,
            &format!("[{}] ", index + 1),
            &words,
            width.limit(MAX_WIDTH),
        );
    }
    if let Some(facts) = &table.facts {
        let _ = writeln!(text, "{}", coverage_text(facts.covered.len(), facts.total));
        // Many facts are not covered for the same reason.
        let reasons: BTreeSet<&String> = facts.not_covered.values().collect();
        for why in reasons {
            let count = facts
                .not_covered
                .values()
                .filter(|other| *other == why)
                .count();
            let words = format!("not covered, {count}: {why}");
            push_hanging(&mut text, "  ", "    ", &words, width.limit(MAX_WIDTH));
        }
        if !facts.open.is_empty() {
            let _ = writeln!(text, "  not confirmed by this run: {}", facts.open.len());
        }
    }
    text
}

fn coverage_text(covered: usize, all: usize) -> String {
    format!("upstream flow cases covered: {covered} of {all}")
}

fn row<'t>(table: &FlowTable, flow: &'t FlowRow, notes: &mut Notes<'t>) -> Vec<String> {
    let mark = if flow.differs { DIFFERS } else { "" };
    let name = format!(
        "{}\n  {} → {}",
        flow.flow,
        short(&flow.from),
        short(&flow.to)
    );
    let mut cells = vec![mark.to_owned(), name];
    let all_alike = !flow.differs && table.columns.len() > 1;
    let mut first = true;
    for cell in &flow.cells {
        // A column without further results refers to the first one.
        if all_alike && !first && is_subset(&flow.cells[0], cell) {
            cells.push("the same".to_owned());
        } else {
            cells.push(self::cell(cell, notes));
        }
        first = false;
    }
    cells
}

/// Whether the results of `other` are a subset of the results of `one`.
fn is_subset(one: &FlowCell, other: &FlowCell) -> bool {
    let seen = |cell: &FlowCell| -> BTreeSet<(FlowObservation, bool)> {
        let outcomes = cell.outcomes.iter();
        outcomes
            .map(|outcome| (outcome.seen.clone(), outcome.holds))
            .collect()
    };
    seen(other).is_subset(&seen(one))
}

fn cell<'t>(cell: &'t FlowCell, notes: &mut Notes<'t>) -> String {
    let lines = cell.outcomes.iter().enumerate().map(|(index, outcome)| {
        let mut line = if outcome.holds {
            String::new()
        } else {
            "FAIL ".to_owned()
        };
        line.push_str(&render_outcome(&outcome.seen));
        for reason in &outcome.reasons {
            let _ = write!(line, " [{}]", note(notes, reason));
        }
        match describe_cases(cell, index) {
            Some(which) => format!("{line}\n  {which}"),
            None => line,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the number of a reason's note. Equal reasons share a note.
fn note<'t>(notes: &mut Notes<'t>, reason: &'t Reason) -> usize {
    let entry = notes.entry(&reason.because);
    let number = entry.index() + 1;
    let sources = entry.or_default();
    sources.extend(reason.source.as_deref());
    number
}

/// Describes the cases of a column that have an outcome, or `None` if all have the same.
pub(crate) fn describe_cases(cell: &FlowCell, index: usize) -> Option<String> {
    if cell.outcomes.len() < 2 {
        return None;
    }
    let names = |outcome: &CellOutcome| -> Vec<String> { outcome.cases.clone() };
    let own_cases = names(&cell.outcomes[index]);
    let other_cases: Vec<String> = cell
        .outcomes
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != index)
        .flat_map(|(_, outcome)| names(outcome))
        .collect();
    let own_cases: Vec<&str> = own_cases.iter().map(String::as_str).collect();
    let other_cases: Vec<&str> = other_cases.iter().map(String::as_str).collect();
    Some(match cover(&own_cases, &other_cases) {
        Some(terms) => terms.join(" or "),
        None => format!(
            "{} of {} cases",
            own_cases.len(),
            own_cases.len() + other_cases.len()
        ),
    })
}

/// Renders an outcome in short form: `web-a, web-b from laptop`, `refused`.
pub(crate) fn render_outcome(seen: &FlowObservation) -> String {
    let list = |names: &BTreeSet<String>| join(names.iter().map(|name| short(name)), ", ");
    let failed: Vec<&str> = seen
        .verdicts
        .iter()
        .map(|verdict| verdict.name())
        .filter(|word| !["connected", "answered"].contains(word))
        .collect();
    let mut parts = Vec::new();
    if !seen.endpoints.is_empty() {
        parts.push(format!(
            "{} from {}",
            list(&seen.endpoints),
            list(&seen.sources)
        ));
    }
    parts.extend(failed.iter().map(|&word| word.to_owned()));
    if parts.is_empty() {
        return "nothing".to_owned();
    }
    parts.join("; ")
}

/// Shortens the reference of a pod or host to its name.
pub(crate) fn short(name: &str) -> &str {
    let last = |rest: &str| rest.rfind('/').map_or(0, |at| at + 1);
    match name.strip_prefix("pod/") {
        Some(rest) if !rest.contains(':') => &rest[last(rest)..],
        _ => name.strip_prefix("host/").unwrap_or(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_runner::results::fixture;

    #[test]
    fn tables_differences_and_failures_are_marked() {
        insta::assert_snapshot!(render_tables(
            &fixture::flow_tables(),
            TerminalWidth::default()
        ));
    }

    #[test]
    fn tables_lab_without_axes_has_one_column() {
        insta::assert_snapshot!(render_tables(
            &fixture::flow_table_of_one_case(),
            TerminalWidth::default()
        ));
    }

    #[test]
    fn facts_of_several_labs_are_added_up() {
        let tables = [fixture::flow_tables(), fixture::flow_tables()].concat();
        let text = render_tables(&tables, TerminalWidth::default());
        let last = text.lines().last();
        assert_eq!(last, Some("all labs: upstream flow cases covered: 2 of 6"));
    }

    #[test]
    fn tables_without_flows_are_empty() {
        assert_eq!(render_tables(&[], TerminalWidth::default()), "");
    }

    #[test]
    fn short_unambiguous_names_are_shortened() {
        assert_eq!(short("pod/default/web-a"), "web-a");
        assert_eq!(short("pod/default/web-a:80"), "pod/default/web-a:80");
        assert_eq!(short("host/laptop"), "laptop");
        assert_eq!(short("lb/default/web"), "lb/default/web");
        assert_eq!(short("node-1/cbr0"), "node-1/cbr0");
    }
}
