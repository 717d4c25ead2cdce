//! What makes failing cases work, for people.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::words::wrap;
use crate::why::{Came, Cure, Fared, Finding, Level, Told, Tried, Wrong};

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
    // Probes that the same changes make work are told of together.
    let mut groups: Vec<Vec<&Wrong>> = Vec::new();
    for wrong in &finding.wrong {
        let alike = |group: &&mut Vec<&Wrong>| group[0].cures == wrong.cures;
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(wrong),
            None => groups.push(vec![wrong]),
        }
    }
    for group in groups {
        for wrong in &group {
            let (probe, connected, of) = (&wrong.probe, wrong.connected, wrong.of);
            let _ = writeln!(text, "\n{probe}: {connected} of {of} connections made");
            for sentence in &wrong.told {
                item(&mut text, sentence);
            }
        }
        cures(&mut text, &group[0].cures, group.len() > 1);
    }
    let vain: Vec<&Tried> = finding
        .tried
        .iter()
        .filter(|tried| {
            !finding
                .wrong
                .iter()
                .any(|wrong| tried.came.cures(&wrong.probe))
        })
        .collect();
    if !vain.is_empty() && (verbose || !finding.is_answered()) {
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

fn cures(text: &mut String, all: &[Cure], several: bool) {
    let them = if several { "them" } else { "it" };
    let (said, written): (Vec<&Cure>, Vec<&Cure>) = all
        .iter()
        .partition(|cure| cure.changes.iter().all(|told| told.level == Level::Said));
    if all.is_empty() {
        let _ = writeln!(text, "\n  Nothing that was tried makes {them} work.");
    }
    if !said.is_empty() {
        let each = if said.len() == 1 {
            "This"
        } else {
            "Each of these alone"
        };
        let _ = writeln!(
            text,
            "\n  {each} makes {them} work, and no probe fares worse:"
        );
        said.iter()
            .for_each(|cure| item(text, &words(&cure.changes)));
    }
    if !written.is_empty() {
        let head = if said.is_empty() {
            "It is decided by what a component writes, and will write again:"
        } else {
            "It is decided by what a component writes of that, and will write again:"
        };
        let _ = writeln!(text, "\n  {head}");
        written
            .iter()
            .for_each(|cure| item(text, &words(&cure.changes)));
    }
}

fn words(changes: &[Told]) -> String {
    let each: Vec<&str> = changes.iter().map(|told| told.words.as_str()).collect();
    each.join(", and ")
}

fn came(came: &Came) -> String {
    match came {
        Came::Ran { probes, worse } => {
            let fared = probes.iter().map(|fared| {
                let Fared {
                    probe,
                    connected,
                    of,
                } = fared;
                format!("{probe} {connected} of {of}")
            });
            let mut told: Vec<String> = fared.collect();
            if !worse.is_empty() {
                told.push(format!("worse: {}", worse.join(", ")));
            }
            told.join(", ")
        }
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
