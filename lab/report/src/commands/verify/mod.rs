//! Renders the result of a verification as text.

mod flow_table;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use indexmap::IndexSet;

use crate::commands::diff::DiffDocument;
use crate::text::terminal::TerminalWidth;
use crate::text::{count, join, list_first, push_hanging, refused, render_seconds, with_colour};
use svclab_experiment::OutcomeCount;
use svclab_experiment::verify::{
    ChangedFlow, FlowId, FlowShift, NotCompared, RulesDiffer, Share, SharesDiffer, ShiftTimes,
    SideInfo, SideName, UndecidedFlow, Verification,
};

pub use flow_table::{ComparedTables, compared_flows};

/// Labels of the two sides.
const AGAINST: &str = "against";
const NEW: &str = "new";

/// Maximum width of sentences, in columns.
const WIDTH: usize = 98;

const HEAD: Style = AnsiColor::Red.on_default();

/// Renders the differences, what was not compared, and a summary line. With `verbose`, also the
/// differences of rules and the traffic shifts after each step.
#[must_use]
pub fn render_text(
    verification: &Verification,
    verbose: bool,
    colour: bool,
    width: TerminalWidth,
) -> String {
    let mut text = String::new();
    for changed in &verification.changed {
        push_changed(&mut text, changed);
    }
    for undecided in &verification.undecided {
        push_undecided(&mut text, undecided);
    }
    for differ in &verification.shares {
        push_shares(&mut text, differ);
    }
    for failed in &verification.failed {
        let side = match failed.side {
            SideName::Against => AGAINST,
            SideName::New => NEW,
        };
        let _ = writeln!(text, "{HEAD}ERROR{HEAD:#} {} ({side})", failed.case);
        text.push_str(&indent_lines(&failed.error.message));
        if let Some(remedy) = &failed.error.remedy {
            text.push_str(&indent_lines(&format!("help: {remedy}")));
        }
    }
    push_rules(&mut text, &verification.rules, verbose);
    if verbose {
        push_shifts(&mut text, &verification.shifts);
    }
    for skipped in &verification.not_compared {
        push_not_compared(&mut text, skipped, width);
    }
    for (side, side_info) in [(AGAINST, &verification.against), (NEW, &verification.new)] {
        let _ = writeln!(text, "{side:<8} {}", render_side(side_info));
        for line in refused::render_lines(&side_info.refused, 0) {
            let _ = writeln!(text, "         {}: {line}", refused::LABEL);
        }
    }
    let _ = writeln!(text, "{}", render_summary(verification));
    width.fit(with_colour(text, colour))
}

/// Indents each line by two spaces and terminates it.
fn indent_lines(text: &str) -> String {
    text.lines()
        .fold(String::new(), |text, line| text + "  " + line + "\n")
}

/// Renders a flow with the outcomes of both sides.
fn push_flow(text: &mut String, head: &str, flow: &FlowId, outcomes: [&[OutcomeCount]; 2]) {
    let _ = writeln!(
        text,
        "{HEAD}{head}{HEAD:#} {}  (Linux {})",
        flow.case, flow.kernel
    );
    let step = flow.step.iter().map(|step| format!("{step}/"));
    let name = step.chain([flow.probe.clone()]).collect::<String>();
    let _ = writeln!(text, "  {name}  {} → {}", flow.from, flow.to);
    for (side, times) in [AGAINST, NEW].into_iter().zip(outcomes) {
        let _ = writeln!(text, "    {side:<8} {}", render_outcomes(times));
    }
}

fn push_undecided(text: &mut String, undecided: &UndecidedFlow) {
    let outcomes = [&*undecided.against, &*undecided.new];
    push_flow(text, "UNDECIDED", &undecided.flow, outcomes);
    let _ = writeln!(text, "    too few runs to say whether the sides differ");
}

fn push_changed(text: &mut String, changed: &ChangedFlow) {
    let outcomes = [&*changed.against, &*changed.new];
    push_flow(text, "CHANGED", &changed.flow, outcomes);
    push_error_probability(text, changed.error_per_billion);
    for (side, met) in [
        (AGAINST, &changed.matches.against),
        (NEW, &changed.matches.new),
    ] {
        if met.is_empty() {
            continue;
        }
        let _ = writeln!(text, "    matched only with `{side}`:");
        for step in met {
            let _ = writeln!(text, "      {step}");
        }
    }
}

fn push_error_probability(text: &mut String, in_billion: u64) {
    if let Some(chance) = 1_000_000_000_u64.checked_div(in_billion) {
        let _ = writeln!(text, "    error probability: 1 in {chance}");
    }
}

fn push_shares(text: &mut String, differ: &SharesDiffer) {
    let _ = writeln!(
        text,
        "{HEAD}CHANGED{HEAD:#} shares of {}  ({} mode)",
        differ.service, differ.modes
    );
    let flows = count(differ.flows, "flow", "flows");
    let _ = writeln!(text, "  {flows} of {}", list_first(&differ.cases));
    let unit = if differ.by_client {
        "clients"
    } else {
        "connections"
    };
    for (side, shares) in [(AGAINST, &differ.against), (NEW, &differ.new)] {
        let total: u64 = shares.iter().map(|share| share.draws).sum();
        let shares = shares.iter().map(|share| render_share(share, total));
        let _ = writeln!(
            text,
            "    {side:<8} {} of {total} {unit}",
            join(shares, ", ")
        );
    }
    push_error_probability(text, differ.error_per_billion);
}

fn render_share(share: &Share, total: u64) -> String {
    let endpoint = share.endpoint.as_deref().unwrap_or("no endpoint");
    let per_mille = share.draws * 1000 / total.max(1);
    format!("{endpoint} {}.{} %", per_mille / 10, per_mille % 10)
}

/// Renders the outcomes of connections with their counts: `connected 2 pod/default/web, timeout 14`.
pub(crate) fn render_outcomes(times: &[OutcomeCount]) -> String {
    let each = times.iter().map(|times| {
        let (outcome, count) = (&times.outcome, times.connections);
        let rest = outcome.to_string();
        let verdict = outcome.verdict.name();
        format!("{verdict} {count}{}", &rest[verdict.len()..])
    });
    join(each, ", ")
}

fn push_rules(text: &mut String, rules: &[RulesDiffer], verbose: bool) {
    if verbose {
        for differ in rules {
            let document = DiffDocument::new(
                format!("{} of {} ({AGAINST})", differ.node, describe_stage(differ)),
                format!("{} of {} ({NEW})", differ.node, describe_stage(differ)),
                Vec::new(),
                differ.differences.clone(),
            );
            text.push_str(&document.render_text(true));
            text.push('\n');
        }
    }
    if rules.is_empty() {
        return;
    }
    let mut cases: BTreeMap<String, usize> = BTreeMap::new();
    for differ in rules {
        *cases.entry(describe_stage(differ)).or_default() += differ.differences.len();
    }
    let total: usize = cases.values().sum();
    let line = format!(
        "rules differ in {} in {}{}",
        count(total, "place", "places"),
        list_first(cases.keys()),
        if verbose {
            ""
        } else {
            "; --verbose prints them"
        }
    );
    let _ = writeln!(text, "{line}");
}

/// Describes the case and the step, if any, after which the rules differ.
fn describe_stage(differ: &RulesDiffer) -> String {
    match &differ.step {
        Some(step) => format!("{} after {step}", differ.case),
        None => differ.case.clone(),
    }
}

/// Adds the traffic shifts, step by step.
fn push_shifts(text: &mut String, shifts: &[FlowShift]) {
    let render_shift = |us: Option<u64>| us.map_or_else(|| "not seen".to_owned(), render_duration);
    for steps in shifts.chunk_by(|a, b| (&a.case, &a.step) == (&b.case, &b.step)) {
        let Some(first) = steps.first() else { continue };
        let _ = writeln!(
            text,
            "traffic moved in {} after {}:",
            first.case, first.step
        );
        for moved in steps {
            let (against, new) = (render_shift(moved.against_us), render_shift(moved.new_us));
            let probe = &moved.probe;
            let _ = writeln!(text, "  {probe}  {against} ({AGAINST}), {new} ({NEW})");
        }
    }
}

fn render_duration(us: u64) -> String {
    svclab_judge::render_duration(Duration::from_micros(us))
}

fn push_not_compared(text: &mut String, skipped: &NotCompared, width: TerminalWidth) {
    let from = match &skipped.from_step {
        Some(step) => format!(" from step {step} on"),
        None => String::new(),
    };
    let line = format!(
        "not compared: {}{from}: {}",
        list_first(&skipped.cases),
        skipped.reason
    );
    push_hanging(text, "", "  ", &line, width.limit(WIDTH));
}

fn render_side(side_info: &SideInfo) -> String {
    let rules = match &side_info.program {
        Some(program) => format!("{program}, {}", side_info.version),
        None => format!("rules of {} generated by svclab", side_info.version),
    };
    let sync = side_info.sync.as_ref().map(|sync| {
        format!(
            ": rules complete after {} ({} to {}, {})",
            render_seconds(sync.median_ms),
            render_seconds(sync.min_ms),
            render_seconds(sync.max_ms),
            count(sync.proxies, "time", "times")
        )
    });
    let moving = side_info
        .shift_times
        .as_ref()
        .map(|moving| render_shift_times(moving, side_info));
    [Some(rules), sync, moving].into_iter().flatten().collect()
}

/// Renders the times of traffic shifts. Generated rules are changed by svclab itself.
fn render_shift_times(moving: &ShiftTimes, side_info: &SideInfo) -> String {
    let prefix = match side_info.program {
        Some(_) => "; traffic moved after",
        None => "; changes by svclab moved traffic after",
    };
    format!(
        "{prefix} {} ({} to {}, {})",
        render_duration(moving.median_us),
        render_duration(moving.min_us),
        render_duration(moving.max_us),
        count(moving.flows, "time", "times")
    )
}

fn render_summary(verification: &Verification) -> String {
    if verification.cases == 0 && verification.failed.is_empty() && !verification.interrupted {
        return "nothing was compared".to_owned();
    }
    let names: IndexSet<&String> = verification
        .failed
        .iter()
        .map(|failed| &failed.case)
        .collect();
    let changed = match (verification.changed.len(), names.len()) {
        (0, 0) => "no flow changed".to_owned(),
        (0, _) => format!("not compared: {}", list_first(&names)),
        (changed, _) => format!("{changed} changed"),
    };
    let mut text = format!(
        "{} of {}: {changed}",
        count(verification.flows, "flow", "flows"),
        count(verification.cases, "case", "cases")
    );
    if !verification.undecided.is_empty() {
        let undecided = count(verification.undecided.len(), "flow is", "flows are");
        let _ = write!(text, "; {undecided} undecided");
    }
    if !verification.shares.is_empty() {
        let services = count(verification.shares.len(), "service has", "services have");
        let _ = write!(text, "; {services} different shares");
    }
    if !verification.changed.is_empty() && !names.is_empty() {
        let _ = write!(
            text,
            "; {} no result",
            count(names.len(), "case has", "cases have")
        );
    }
    if verification.interrupted {
        text += "; interrupted";
    }
    text
}
