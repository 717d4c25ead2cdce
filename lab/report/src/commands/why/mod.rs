//! Renders the changes that make failing cases succeed.

mod document;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};

use crate::text::conclusion::render_facts;
use crate::text::terminal::TerminalWidth;
use crate::text::{count, join, push_wrapped, with_colour};
use svclab_experiment::bisect::Difference;
use svclab_experiment::why::{
    ChangeResult, DescribedChange, FailingProbe, Finding, Fix, Origin, ProbeCount, Stopped,
    TriedChanges, UnreadState,
};

use svclab_judge::is_name_suffix;

pub use document::{CaseFinding, Document, ExplainedProbe, SCHEMA};

/// Maximum width of sentences, in columns.
const WIDTH: usize = 80;

const HEAD: Style = AnsiColor::Yellow.on_default().bold();

/// Renders the failing probes and their fixes. Changes that did not help are included with
/// `verbose`, or if a probe has no fix.
#[must_use]
pub fn render_text(
    findings: &[Finding],
    verbose: bool,
    colour: bool,
    width: TerminalWidth,
) -> String {
    let findings = findings.iter();
    let max = width.limit(WIDTH);
    let texts = findings.map(|finding| render_finding(finding, verbose, max));
    width.fit(with_colour(join(texts, "\n"), colour))
}

/// Renders the first confirmed fix of a probe, for a user who waits for the others.
#[must_use]
pub fn render_first_fix(case: &str, probe: &str, changes: &[DescribedChange]) -> String {
    let mut text = format!(
        "{case}: {probe} is fixed by: {}",
        join_descriptions(changes)
    );
    for command in changes.iter().flat_map(|described| &described.commands) {
        let _ = write!(text, "\n  {}# {}", command.namespace, command.command);
    }
    text
}

fn render_finding(finding: &Finding, verbose: bool, width: usize) -> String {
    let mut text = format!("{HEAD}{}{HEAD:#}, on {}\n", finding.case, finding.kernel);
    if finding.is_healthy() {
        text += if finding.unexamined.is_empty() {
            "  no failing probe: all connections succeed\n"
        } else {
            "  no failing probe: all examined connections succeed\n"
        };
        push_unexpected(&mut text, finding, width);
        push_not_looked_at(&mut text, finding, width);
        push_unexamined(&mut text, &finding.unexamined);
        return text;
    }
    for assumption in &finding.assumed {
        push_wrapped(&mut text, "  assumed: ", assumption, width);
    }
    // Probes with the same fixes are grouped.
    let mut groups: Vec<Vec<&FailingProbe>> = Vec::new();
    for wrong in &finding.failing {
        let alike = |group: &&mut Vec<&FailingProbe>| group[0].fixes == wrong.fixes;
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(wrong),
            None => groups.push(vec![wrong]),
        }
    }
    for group in groups {
        for wrong in &group {
            let (probe, connected, total) = (&wrong.probe, wrong.connected, wrong.total);
            let after = wrong.after.iter().map(|step| format!(", after `{step}`"));
            let after: String = after.collect();
            let _ = writeln!(
                text,
                "\n{probe}{after}: {connected} of {total} connections {}",
                describe_success(wrong)
            );
            for sentence in wrong_results(wrong) {
                push_item(&mut text, &sentence, width);
            }
            for sentence in render_facts(&wrong.facts) {
                push_item(&mut text, &sentence, width);
            }
        }
        push_fixes(&mut text, &group[0].fixes, group.len() > 1, width);
    }
    let useless: Vec<&TriedChanges> = finding.useless_changes().collect();
    if !useless.is_empty() && (verbose || !finding.is_answered()) {
        let _ = writeln!(text, "\nChanges that do not help:");
        let shown = |tried: &&&TriedChanges| verbose || tried.changes.len() == 1;
        for tried in useless.iter().filter(shown) {
            push_item(
                &mut text,
                &format!(
                    "{}: {}",
                    join_descriptions(&tried.changes),
                    describe_result(&tried.result)
                ),
                width,
            );
        }
        let hidden = useless.iter().filter(|tried| !shown(tried)).count();
        if hidden > 0 {
            let pairs = count(hidden, "pair", "pairs");
            let _ = writeln!(text, "  and {pairs} of these changes (-v shows all)");
        }
    }
    let tried = count(finding.tried.len(), "change was", "changes were");
    let _ = writeln!(text, "\n{tried} tried");
    match finding.untried_pairs {
        0 => {}
        1 => text += "1 pair of changes was not tried: there are too many pairs\n",
        many => {
            let _ = writeln!(
                text,
                "{many} pairs of changes were not tried: there are too many pairs"
            );
        }
    }
    if let Some(stopped) = &finding.stopped {
        push_wrapped(&mut text, "", &describe_stop(stopped), width);
    }
    if let Some(unread) = &finding.unread {
        push_wrapped(&mut text, "", &describe_unread(unread), width);
    }
    push_unexpected(&mut text, finding, width);
    push_unexamined(&mut text, &finding.unexamined);
    text
}

/// Describes the end of a search at its time limit.
pub(crate) fn describe_stop(stopped: &Stopped) -> String {
    let limit = humantime::format_duration(Duration::from_millis(stopped.limit_ms));
    let untried = match stopped.untried {
        0 => "further changes were".to_owned(),
        known => format!(
            "{}, and further ones that follow from their results, were",
            count(
                known,
                "known change or set of changes",
                "known changes or sets of changes"
            )
        ),
    };
    format!("{untried} not tried: the search ended after {limit} (--timeout)")
}

/// Describes the state of which no single object was changed.
pub(crate) fn describe_unread(unread: &UnreadState) -> String {
    format!(
        "single objects of {} were not restored, because the state after the manual commands is \
         unknown: {}",
        join(&unread.nodes, ", "),
        unread.reason
    )
}

/// Describes what the counted connections of a probe do.
fn describe_success(wrong: &FailingProbe) -> &'static str {
    let verdicts = wrong.observed.verdicts.keys();
    let mut failures = verdicts.filter(|verdict| !verdict.is_success());
    // A probe without any observation failed.
    if failures.next().is_none() && !wrong.observed.verdicts.is_empty() {
        "have the expected result"
    } else {
        "succeed"
    }
}

/// Describes the endpoints and sources of a probe that are not the expected ones.
fn wrong_results(wrong: &FailingProbe) -> Vec<String> {
    let Some(expected) = &wrong.expected else {
        return Vec::new();
    };
    let observed = &wrong.observed;
    let describe = |what: &str, names: &[String], seen: &BTreeSet<String>| {
        let seen = if seen.is_empty() {
            "none".to_owned()
        } else {
            join(seen, ", ")
        };
        format!("expected {what}: {}; observed: {seen}", join(names, ", "))
    };
    let is_same = |names: &[String], seen: &BTreeSet<String>| {
        let is_seen = |name: &String| seen.iter().any(|own| is_name_suffix(own, name));
        names.len() == seen.len() && names.iter().all(is_seen)
    };
    let parts = [
        ("endpoints", &expected.endpoints, &observed.endpoints),
        ("sources", &expected.sources, &observed.seen_sources),
    ];
    let parts = parts.into_iter().filter_map(|(what, names, seen)| {
        let names = names.as_ref()?;
        // Without an answer, the facts state what happened.
        let is_wrong = !seen.is_empty() && !is_same(names, seen);
        is_wrong.then(|| describe(what, names, seen))
    });
    parts.collect()
}

/// Adds what a case without failing probes says nothing about.
fn push_not_looked_at(text: &mut String, finding: &Finding, width: usize) {
    let mut parts: Vec<String> = finding
        .omitted_parts()
        .map(|(node, item)| format!("{node}: {}", item.render_lines().join("; ")))
        .collect();
    for report in &finding.dumps {
        let simulated = report.simulated.iter();
        parts.extend(simulated.map(|part| format!("{}: simulated: {part}", report.node)));
    }
    if !finding.not_modelled.is_empty() {
        parts.push(format!("not modelled: {}", finding.not_modelled.join(", ")));
    }
    if !parts.is_empty() {
        text.push_str("  Not looked at:\n");
        for part in parts {
            push_item(text, &part, width);
        }
    }
}

/// Adds the probes that succeed although the case expects another result.
fn push_unexpected(text: &mut String, finding: &Finding, width: usize) {
    if finding.unexpected.is_empty() {
        return;
    }
    let sentence = format!(
        "The case expects another result of {}. `svclab why` only finds changes that make \
         connections succeed; `svclab explain` explains these connections.",
        finding.unexpected.join(", ")
    );
    push_wrapped(text, "  ", &sentence, width);
}

/// Adds the failing probes that were not examined.
fn push_unexamined(text: &mut String, probes: &[String]) {
    if !probes.is_empty() {
        let _ = writeln!(
            text,
            "Other failing probes, not examined: {}; select one with `--probe`",
            probes.join(", ")
        );
    }
}

fn push_fixes(text: &mut String, fixes: &[Fix], several: bool, width: usize) {
    let them = if several { "them" } else { "it" };
    let (configured, generated): (Vec<&Fix>, Vec<&Fix>) =
        fixes.iter().partition(|fix| is_lasting(fix));
    if fixes.is_empty() {
        let _ = writeln!(text, "\n  No tried change fixes {them}.");
    }
    let only_generated = configured.is_empty();
    if !configured.is_empty() {
        let each = if configured.len() == 1 {
            "This change"
        } else {
            "Each of these changes alone"
        };
        let _ = writeln!(
            text,
            "\n  {each} fixes {them}, and no other probe gets worse:"
        );
        for fix in configured {
            push_fix(text, fix, width);
            push_necessary(text, &fix.necessary, width);
        }
    }
    if !generated.is_empty() {
        let head = if only_generated {
            "Only changes to generated state help, until the component writes it again:"
        } else {
            "Changes to generated state also help, until the component writes it again:"
        };
        let _ = writeln!(text, "\n  {head}");
        for fix in generated {
            push_fix(text, fix, width);
        }
    }
}

/// Whether a fix lasts. A component writes generated state again.
pub(crate) fn is_lasting(fix: &Fix) -> bool {
    let mut changes = fix.changes.iter();
    changes.all(|change| change.origin == Origin::Configured)
}

/// Adds a fix with its commands. A command has one line, so that a user can copy it.
fn push_fix(text: &mut String, fix: &Fix, width: usize) {
    push_item(text, &join_descriptions(&fix.changes), width);
    for effect in side_effects(fix) {
        push_wrapped(text, "    * ", &format!("side effect: {effect}"), width - 2);
    }
    for command in fix.changes.iter().flat_map(|described| &described.commands) {
        let _ = writeln!(text, "    {}# {}", command.namespace, command.command);
    }
}

/// Adds the differences that are needed, as they are without the fix.
fn push_necessary(text: &mut String, differences: &[Difference], width: usize) {
    for difference in differences {
        let location = difference.place();
        let sentence = match (&difference.good, &difference.bad) {
            (Some(good), Some(bad)) if good == bad => {
                format!("in {location}, this is in another position: `{bad}`")
            }
            (Some(good), Some(bad)) => format!("in {location}, `{bad}` replaces `{good}`"),
            (Some(good), None) => format!("in {location}, this is missing: `{good}`"),
            (None, Some(bad)) => format!("in {location}, this is unexpected: `{bad}`"),
            (None, None) => continue,
        };
        push_wrapped(text, "    * ", &sentence, width - 2);
    }
}

/// Returns what a fix affects beside the failing connections.
pub(crate) fn side_effects(fix: &Fix) -> BTreeSet<&'static str> {
    let changes = fix.changes.iter();
    changes
        .filter_map(|described| described.change.side_effect())
        .collect()
}

pub(crate) fn join_descriptions(changes: &[DescribedChange]) -> String {
    let each = changes.iter().map(|described| &described.description);
    join(each, ", and ")
}

pub(crate) fn describe_result(result: &ChangeResult) -> String {
    match result {
        ChangeResult::Finished { probes, worse } => {
            let counts = probes.iter().map(|fared| {
                let ProbeCount {
                    probe,
                    connected,
                    total: of,
                    ..
                } = fared;
                format!("{probe} {connected} of {of} succeed")
            });
            let mut parts: Vec<String> = counts.collect();
            if !worse.is_empty() {
                parts.push(format!("worse: {}", worse.join(", ")));
            }
            parts.join(", ")
        }
        ChangeResult::Refused { why } => format!("cannot be applied: {why}"),
    }
}

fn push_item(text: &mut String, content: &str, width: usize) {
    push_wrapped(text, "  - ", content, width);
}
