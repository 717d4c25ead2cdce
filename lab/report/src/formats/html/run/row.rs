//! Renders the row of a case in the table of a run, and names the section of the case.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::case_details::CaseDetails;
use crate::commands::compare::{CaseChange, short_kernel};
use crate::results::{CaseDocument, Document};
use crate::text::render_seconds;
use svclab_diagnostic::printable::printable;
use svclab_runner::results::CaseStatus;

/// Run that a page shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownRun<'d> {
    /// Name of the run. Empty if the page shows only one run.
    pub label: &'d str,
    /// Results of the run.
    pub document: &'d Document,
}

/// Row of the table of cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::formats::html) struct CaseRow {
    /// Anchor of the case.
    pub id: String,
    /// URL of the section or page of the case.
    pub href: String,
    /// Name of the run. Empty if the page shows only one run.
    pub run: String,
    /// Full name of the case.
    pub case: String,
    pub lab: String,
    named: String,
    cli_name: String,
    /// Name within the lab.
    name: String,
    pub status: &'static str,
    /// Class of the status in the style.
    class: &'static str,
    pub kernel: String,
    duration_ms: u64,
    /// Results of the first probe, in one line.
    headline: String,
}

impl CaseRow {
    /// Creates the row of a case, whose section or page has the URL `href`.
    pub(in crate::formats::html) fn new(
        run: &str,
        details: &CaseDetails,
        headline: String,
        href: String,
    ) -> Self {
        let result = &details.result;
        Self {
            id: anchor(run, result),
            href,
            run: run.to_owned(),
            case: result.case.clone(),
            lab: result.lab.clone(),
            named: result.named.clone(),
            cli_name: result.cli_name().to_owned(),
            name: result.short_name().to_owned(),
            status: details.status_name(),
            class: if details.additions.unjudged {
                "unjudged"
            } else {
                class(result.result)
            },
            kernel: result.kernel.clone(),
            duration_ms: result.duration_ms,
            headline,
        }
    }

    /// Whether this is the case of a change.
    pub(in crate::formats::html) fn shows(&self, change: &CaseChange) -> bool {
        self.cli_name == change.case && short_kernel(&self.kernel) == change.kernel
    }

    /// Renders the row. The name of the run is only shown with `has_labels`.
    pub(in crate::formats::html) fn render(&self, has_labels: bool) -> Markup {
        html! {
            tr.(self.class) data-result=(self.status) data-lab=(printable(&self.lab))
                data-kernel=(printable(&self.kernel)) data-ms=(self.duration_ms) {
                td { span.pill.(self.class) { (self.status) } }
                @if has_labels { td { (printable(&self.run)) } }
                td {
                    a href=(self.href) {
                        (breakable(&self.lab))
                    @if self.name != self.lab { "/" wbr; (breakable(&self.name)) }
                    }
                }
                td { (printable(&self.headline)) }
                td { (printable(&self.kernel)) }
                td.number { (render_seconds(self.duration_ms)) }
            }
        }
    }

    /// Returns the position of the case among the results of the runs.
    pub(in crate::formats::html) fn position(
        &self,
        runs: &[ShownRun<'_>],
    ) -> Option<(usize, usize)> {
        let run = runs.iter().position(|run| run.label == self.run)?;
        let mut cases = runs[run].document.cases.iter();
        let case = cases.position(|case| {
            (&case.case, &case.named, &case.kernel) == (&self.case, &self.named, &self.kernel)
        });
        Some((run, case?))
    }
}

/// Returns the anchor of a case. Different cases have different anchors.
pub(in crate::formats::html) fn anchor(run: &str, result: &CaseDocument) -> String {
    let name = format!("{run}/{}@{}", result.cli_name(), result.kernel);
    format!("case-{}", encode(name.trim_start_matches('/')))
}

/// Encodes a name for an identifier. Different names have different results, without a colon.
pub(in crate::formats::html) fn encode(name: &str) -> String {
    let mut anchor = String::new();
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

/// Renders a name that may be broken into lines after its separators.
pub(in crate::formats::html) fn breakable(name: &str) -> Markup {
    let name = printable(name);
    html! {
        @for (index, part) in name.split_inclusive(['/', ',']).enumerate() {
            @if index > 0 { wbr; }
            (part)
        }
    }
}

/// Returns the class of a result in the style.
pub(in crate::formats::html) const fn class(status: CaseStatus) -> &'static str {
    match status {
        CaseStatus::Pass => "pass",
        CaseStatus::Flaky => "flaky",
        CaseStatus::Fail => "fail",
        CaseStatus::Error => "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_runner::results::{CaseResult, RunError};

    #[test]
    fn anchor_of_other_case_differs() {
        let result = |case: &str, named: &str| {
            let mut result = CaseResult::without_verdict("lab", case, RunError::no_kernel());
            result.named = named.to_owned();
            result.kernel = "6.12".to_owned();
            CaseDocument::from(&result)
        };
        let plain = result("lab/a=b", "");
        assert_eq!(anchor("", &plain), "case-lab/a=b@6.12");
        assert_eq!(anchor("a b", &plain), "case-a_20b/lab/a=b@6.12");
        assert_ne!(anchor("a_b", &plain), anchor("a b", &plain));
        let other = result("lab/a=b", "dir/lab.yaml/a=b");
        assert_eq!(anchor("", &other), "case-dir/lab.yaml/a=b@6.12");
    }
}
