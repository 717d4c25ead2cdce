//! Renders a case: the answer first, then the topology, the packets, the checks and the evidence.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::answer::Answer;
use super::connections::{Connections, connections};
use super::evidence::{self, Attachments};
use super::{checks, ladder};
use crate::drawing::ways;
use svclab_diagnostic::printable::printable;
use svclab_drawing::{Topology, draw, svg};
use svclab_runner::results::{CaseResult, CaseStatus};
use svclab_runner::run::CaseEvidence;

/// Maximum number of connections of which a section shows the packets.
const MAX_CONNECTIONS: usize = 12;

/// Rendered case.
#[derive(Debug)]
pub(super) struct CaseSection {
    /// Anchor of the section.
    pub id: String,
    /// Full name of the case.
    pub case: String,
    pub lab: String,
    /// Name within the lab.
    pub name: String,
    pub status: CaseStatus,
    pub kernel: String,
    pub duration_ms: u64,
    /// Results of the first probe, in one line.
    pub headline: String,
    pub markup: String,
}

impl CaseSection {
    pub(super) fn new(
        result: &CaseResult,
        seen: Option<&CaseEvidence>,
        attachments: &Attachments,
        rerun_command: &str,
    ) -> Self {
        let id = anchor(&format!("{}@{}", result.case, result.kernel));
        let connections = seen.map_or_else(Vec::new, |seen| connections(result, seen));
        let answer = Answer::new(result, seen, &connections, rerun_command);
        let markup = html! {
            section.case #(id) aria-label=(printable(&result.case)) {
                (answer.render(result))
                @if let Some(seen) = seen {
                    @let places = Topology::new(&seen.prepared.plan, &seen.prepared.cluster);
                    (topology(result, &places, &connections))
                    (ladder::render(&places, &connections, MAX_CONNECTIONS))
                }
                (checks::render(result))
                @if let Some(seen) = seen { (evidence::render(result, seen, attachments)) }
                p.back { a href="#run" { "All cases" } }
            }
        };
        Self {
            id,
            case: result.case.clone(),
            lab: result.lab.clone(),
            name: result.short_name().to_owned(),
            status: result.result,
            kernel: result.kernel.clone(),
            duration_ms: result.duration_ms,
            headline: answer.headline,
            markup: markup.into_string(),
        }
    }
}

/// Draws the packets of the first connection.
fn topology(result: &CaseResult, topology: &Topology, connections: &[Connections<'_>]) -> Markup {
    let first = connections.first().map(|first| first.journey);
    let ways = first.map(ways).unwrap_or_default();
    let title = first.map_or_else(
        || result.case.clone(),
        |journey| format!("{}: {} #{}", result.case, journey.probe, journey.number + 1),
    );
    let description = svg::describe(topology, &ways);
    html! {
        h3 { "Topology" }
        div.drawing tabindex="0" role="region" aria-label="Topology" {
            (svg::render_element(&draw(topology, &ways), &title, &description))
        }
        p.note { (printable(&description)) }
    }
}

/// Converts a name to an anchor. Different names have different anchors.
fn anchor(name: &str) -> String {
    let mut anchor = String::from("case-");
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'=' | b',' | b'/' | b'@' => {
                anchor.push(char::from(byte));
            }
            _ => {
                let _ = write!(anchor, "_{byte:02x}");
            }
        }
    }
    anchor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchor_of_other_name_differs() {
        assert_eq!(anchor("lab/a=b@6.12"), "case-lab/a=b@6.12");
        assert_eq!(anchor("a b"), "case-a_20b");
        assert_ne!(anchor("a_b"), anchor("a b"));
    }
}
