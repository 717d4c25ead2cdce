//! Assembles pages: that of a run with its cases, and that of one case.

use std::io::{self, Read as _};

use data_encoding::BASE64;
use flate2::read::GzDecoder;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use super::case::{self, CasePage, CaseSection};
use super::evidence::compressed;
use super::row::{CaseRow, ShownRun, anchor};
use super::run;
use crate::additions::Answer;
use crate::case_details::CaseDetails;
use crate::commands::compare::Comparison;
use svclab_diagnostic::printable::printable;

const STYLE: &str = concat!(
    include_str!("style.css"),
    include_str!("../../../../drawing/src/drawing.css")
);
const SCRIPT: &str = include_str!("script.js");

/// Page of one or more runs.
#[derive(Debug)]
pub(crate) struct Page {
    /// Answer of the command, if it is not `svclab run`.
    answer: Option<Answer>,
    rows: Vec<CaseRow>,
    sections: Vec<StoredSection>,
}

/// Section of a case, compressed.
#[derive(Debug)]
struct StoredSection {
    /// Index of its row.
    row: usize,
    compressed: Vec<u8>,
}

impl Page {
    /// Creates a page without cases.
    pub(crate) const fn new(answer: Option<Answer>) -> Self {
        Self {
            answer,
            rows: Vec::new(),
            sections: Vec::new(),
        }
    }

    /// Adds a case with its section.
    ///
    /// # Errors
    ///
    /// Never in practice: sections are compressed in memory.
    pub(crate) fn add_section(&mut self, run: &str, case: &CasePage) -> io::Result<()> {
        let id = anchor(run, &case.details.result);
        let CaseSection { headline, markup } = case::section(&id, case);
        let row = CaseRow::new(run, &case.details, headline);
        let markup = html! {
            (markup)
            p.back { a href="#run" { "All cases" } }
        };
        let compressed = compressed(|out| out.write_all(markup.into_string().as_bytes()))?;
        self.sections.push(StoredSection {
            row: self.rows.len(),
            compressed,
        });
        self.rows.push(row);
        Ok(())
    }

    /// Adds a case that has a page of its own. `href` is the relative URL of that page.
    pub(crate) fn add_link(&mut self, run: &str, details: &CaseDetails, href: String) {
        let mut row = CaseRow::new(run, details, case::headline(details));
        row.href = href;
        self.rows.push(row);
    }

    /// Renders the page. The cases are in the order of the results.
    ///
    /// # Errors
    ///
    /// Never in practice: sections are decompressed in memory.
    pub(crate) fn render(
        &self,
        runs: &[ShownRun<'_>],
        comparison: Option<&Comparison>,
    ) -> io::Result<String> {
        let mut rows: Vec<&CaseRow> = self.rows.iter().collect();
        rows.sort_by_cached_key(|row| row.position(runs));
        // A page about one case is complete without its script.
        let only = match self.sections.as_slice() {
            [only] if self.rows.len() == 1 => {
                let mut markup = String::new();
                GzDecoder::new(only.compressed.as_slice()).read_to_string(&mut markup)?;
                Some(markup)
            }
            _ => None,
        };
        let body = html! {
            main {
                (run::render(runs, &rows, self.answer.as_ref(), comparison))
                @if only.is_none() && !self.sections.is_empty() {
                    noscript {
                        p.warning {
                            "The cases need JavaScript. The pages of "
                            code { "--report DIRECTORY" } " do not."
                        }
                    }
                }
                @for section in &self.sections {
                    @let row = &self.rows[section.row];
                    section.case #(row.id) aria-label=(printable(&row.case)) {
                        @if let Some(markup) = &only { (PreEscaped(markup)) }
                    }
                }
            }
            @for section in self.sections.iter().filter(|_| only.is_none()) {
                script type="application/gzip" data-section=(self.rows[section.row].id) {
                    (PreEscaped(BASE64.encode(&section.compressed)))
                }
            }
        };
        let title = match &self.answer {
            Some(answer) => printable(&answer.title).into_owned(),
            None => run::title(runs),
        };
        Ok(document(&title, &body))
    }
}

/// Renders the page of one case. `back` is the relative URL of the page of its run.
pub(crate) fn render_case(case: &CasePage, back: &str) -> String {
    let result = &case.details.result;
    let id = anchor("", result);
    let markup = case::section(&id, case).markup;
    let body = html! {
        main {
            section.case #(id) aria-label=(printable(&result.case)) {
                (markup)
                p.back { a href=(back) { "All cases" } }
            }
        }
    };
    let status = case.details.status_name();
    let title = format!("svclab: {status} {}", printable(&result.case));
    document(&title, &body)
}

fn document(title: &str, body: &Markup) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(policy());
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (body)
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    document.into_string()
}

/// Returns the content security policy: nothing is loaded, and only this style and script run.
fn policy() -> String {
    let hash = |text: &str| BASE64.encode(&Sha256::digest(text));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; form-action 'none'; \
         base-uri 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
}
