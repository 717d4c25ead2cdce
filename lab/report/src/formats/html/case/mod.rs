//! Renders a case: the answer first, then the topology, the packets, the checks and the evidence.

mod answer;
mod checks;
pub(crate) mod evidence;
mod fixes;
mod markdown;
mod probe_answer;
mod shown;
mod topology;

use maud::{Markup, html};

use super::packets::connections::connections;
use super::packets::{ladder, side_by_side, timeline};
use crate::case_details::CaseDetails;
use answer::Answer;
use evidence::FileLink;

/// Case with its files.
#[derive(Debug, Clone)]
pub(crate) struct CasePage {
    pub details: CaseDetails,
    /// Files with their URLs.
    pub files: Vec<FileLink>,
    /// Whether the files contain only the connections that the page shows.
    pub has_reduced_files: bool,
    /// Whether the files lack the evidence, because the page has many cases and this one passed.
    pub omits_evidence: bool,
    /// Details of the case in an earlier run.
    pub baseline: Option<CaseDetails>,
}

impl CasePage {
    /// Creates the page of a case that is not compared with an earlier run.
    pub(crate) const fn new(details: CaseDetails, files: Vec<FileLink>) -> Self {
        Self {
            details,
            files,
            has_reduced_files: false,
            omits_evidence: false,
            baseline: None,
        }
    }
}

/// Rendered case.
pub(super) struct CaseSection {
    /// Results of the first probe, in one line.
    pub headline: String,
    pub markup: Markup,
}

/// Renders a case. Identifiers of elements start with `id`, that of the section, and a colon.
pub(super) fn section(id: &str, case: &CasePage) -> CaseSection {
    let details = &case.details;
    let connections = connections(&details.stages);
    let answer = Answer::new(details, &connections);
    let start = timeline::start(details, &connections);
    let markup = html! {
        (answer.render())
        details.markdown {
            summary { "As Markdown, for an issue" }
            pre.copy { (markdown::render(&answer)) }
        }
        @if let Some(places) = &details.topology {
            (topology::render(&details.result.case, places, &connections))
        }
        @if !details.stages.is_empty() {
            (ladder::render(id, details, &connections, start))
            (side_by_side::render(&connections, case.baseline.as_ref()))
            (timeline::render(id, details, &connections, start))
        }
        (checks::render(details))
        (evidence::render(case, details.lab_text.as_deref()))
    };
    CaseSection {
        headline: answer.headline,
        markup,
    }
}

/// Returns the results of the first probe of a case, in one line.
pub(super) fn headline(details: &CaseDetails) -> String {
    Answer::new(details, &connections(&details.stages)).headline
}
