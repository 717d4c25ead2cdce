//! What makes failing cases work, for people.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::words::wrap;
use crate::why::{Came, Cure, Finding, Level, Told, Tried};

/// As text: what is wrong, and what to change. What was tried to no avail is told to those
/// who want it `verbose`, and where nothing helped.
#[must_use]
pub fn human(findings: &[Finding], verbose: bool, colour: bool) -> String {
    let texts: Vec<String> = findings
        .iter()
        .map(|finding| one(finding, verbose, colour))
        .collect();
    texts.join("\n")
}

fn one(finding: &Finding, verbose: bool, colour: bool) -> String {
    let mut text = format!("{}, on {}\n", bold(&finding.case, colour), finding.kernel);
    if finding.is_healthy() {
        text += "  nothing is wrong: all connections are made\n";
        return text;
    }
    for wrong in &finding.wrong {
        let _ = writeln!(
            text,
            "\n{}: {} of {} connections made",
            wrong.probe, wrong.connected, wrong.of
        );
        for sentence in &wrong.told {
            item(&mut text, sentence);
        }
    }
    let (said, written): (Vec<&Cure>, Vec<&Cure>) = finding
        .cures
        .iter()
        .partition(|cure| cure.changes.iter().all(|told| told.level == Level::Said));
    if finding.cures.is_empty() {
        let _ = writeln!(text, "\nNothing that was tried makes all of them work.");
    }
    if !said.is_empty() {
        let head = "Each of these alone makes all of them work, and nothing else fare worse:";
        let _ = writeln!(text, "\n{head}");
        said.iter()
            .for_each(|cure| item(&mut text, &words(&cure.changes)));
    }
    if !written.is_empty() {
        let head = if said.is_empty() {
            "It is decided by what a component writes, and will write again:"
        } else {
            "Where it is decided, by what a component writes and will write again:"
        };
        let _ = writeln!(text, "\n{head}");
        written
            .iter()
            .for_each(|cure| item(&mut text, &words(&cure.changes)));
    }
    let vain: Vec<&Tried> = finding
        .tried
        .iter()
        .filter(|tried| tried.came != Came::Cure)
        .collect();
    if !vain.is_empty() && (verbose || finding.cures.is_empty()) {
        let _ = writeln!(text, "\nTried to no avail:");
        for tried in vain {
            item(
                &mut text,
                &format!("{}: {}", words(&tried.changes), came(&tried.came)),
            );
        }
    }
    let _ = writeln!(
        text,
        "\n{} {} tried in {} runs",
        finding.tried.len(),
        if finding.tried.len() == 1 {
            "change was"
        } else {
            "changes were"
        },
        finding.runs
    );
    text
}

fn words(changes: &[Told]) -> String {
    let each: Vec<&str> = changes.iter().map(|told| told.words.as_str()).collect();
    each.join(", and ")
}

fn came(came: &Came) -> String {
    match came {
        Came::Cure => "all connections were made".to_owned(),
        Came::NoCure { connected, of } => format!("{connected} of {of} connections made"),
        Came::Harm { probes } => format!("it works, but {} fares worse", probes.join(", ")),
        Came::Refused { why } => format!("it cannot be made: {why}"),
    }
}

fn item(text: &mut String, words: &str) {
    for (at, line) in wrap(words, 76).iter().enumerate() {
        let lead = if at == 0 { "  - " } else { "    " };
        let _ = writeln!(text, "{lead}{line}");
    }
}

fn bold(text: &str, colour: bool) -> String {
    if !colour {
        return text.to_owned();
    }
    let style = Style::new().bold().fg_color(Some(AnsiColor::Yellow.into()));
    format!("{style}{text}{style:#}")
}
