//! Writes a run as one HTML page that opens from disk: the result of each case, what happened to its
//! packets, and the evidence.
//!
//! The page makes no request. Its policy allows only its own style and script, by their hashes. All
//! text of users and programs is escaped by `maud`.

mod answer;
mod case;
mod checks;
mod connections;
mod evidence;
mod ladder;
mod lanes;
mod run;

use std::io::{self, Write};

use data_encoding::BASE64;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use crate::writer::Writer;
use case::CaseSection;
pub(crate) use evidence::Attachments;
use svclab_runner::results::{CaseResult, Results};
use svclab_runner::run::{CaseEvidence, Event};

const STYLE: &str = concat!(
    include_str!("style.css"),
    include_str!("../../../../drawing/src/drawing.css")
);
const SCRIPT: &str = include_str!("script.js");

/// Page of a run.
#[derive(Debug)]
pub(crate) struct Page {
    rerun_command: String,
    cases: Vec<CaseSection>,
}

impl Page {
    /// Creates a page without cases. `rerun_command` is the command that repeats a case, without the
    /// case name.
    pub(crate) fn new(rerun_command: &str) -> Self {
        Self {
            rerun_command: rerun_command.to_owned(),
            cases: Vec::new(),
        }
    }

    /// Adds a case.
    pub(crate) fn add(
        &mut self,
        result: &CaseResult,
        seen: Option<&CaseEvidence>,
        attachments: &Attachments,
    ) {
        let section = CaseSection::new(result, seen, attachments, &self.rerun_command);
        self.cases.push(section);
    }

    /// Renders the page of a finished run, with the cases in the order of the results.
    pub(crate) fn finish(&mut self, results: &Results) -> String {
        let order = |section: &CaseSection| {
            let mut cases = results.cases.iter();
            cases.position(|case| case.case == section.case && case.kernel == section.kernel)
        };
        self.cases.sort_by_cached_key(order);
        self.render(results).into_string()
    }

    fn render(&self, results: &Results) -> Markup {
        let summary = results.summary;
        let title = format!(
            "svclab: {} passed, {} failed, {} errors",
            summary.passed, summary.failed, summary.errors
        );
        html! {
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
                    (run::render(results, &self.cases))
                    @for case in &self.cases { (PreEscaped(&case.markup)) }
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        }
    }
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

/// Writer of a run's page, which contains the evidence.
#[derive(Debug)]
pub struct HtmlWriter<W> {
    page: Page,
    out: W,
}

impl<W: Write> HtmlWriter<W> {
    /// Creates a writer that writes the page when the run ends. `rerun_command` is the command that
    /// repeats a case, without the case name.
    pub fn new(out: W, rerun_command: &str) -> Self {
        Self {
            page: Page::new(rerun_command),
            out,
        }
    }
}

impl<W: Write> Writer for HtmlWriter<W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::CaseEnded { result, evidence } => {
                let seen = evidence.as_deref();
                self.page.add(result, seen, &Attachments::Embedded);
                Ok(())
            }
            Event::RunEnded { results, .. } => {
                self.out.write_all(self.page.finish(results).as_bytes())?;
                self.out.flush()
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_runner::results::fixture;

    /// Renders results without evidence.
    fn page(results: &Results) -> String {
        let mut page = Page::new("svclab run");
        for case in &results.cases {
            page.add(case, None, &Attachments::Embedded);
        }
        page.finish(results)
    }

    #[test]
    fn page_of_run_lists_every_case() {
        let results = fixture::results();
        let page = page(&results);
        let (head, body) = page.split_once("<body>").expect("a body");
        let body = body.split_once("<script>").expect("a script").0;
        insta::assert_snapshot!(body.replace("><", ">\n<"));
        assert!(head.contains("Content-Security-Policy"));
        for case in &results.cases {
            assert!(body.contains(&case.case), "{}", case.case);
        }
    }

    #[test]
    fn page_loads_nothing_and_has_no_inline_style() {
        let page = page(&fixture::results());
        for forbidden in [" style=", "src=", "<link", "@import", "url(", "onclick"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        let addresses = page.matches("http").count();
        let allowed = page.matches("http://www.w3.org/2000/svg").count();
        let policy = page.matches("http-equiv").count();
        assert_eq!(addresses, allowed + policy);
    }

    #[test]
    fn page_hostile_names_stay_text() {
        let hostile = "</script><script>alert(1)</script><b>\u{202e}\u{1b}[31m";
        let mut results = fixture::results();
        for case in &mut results.cases {
            case.case = format!("{hostile}/{}", case.case);
            case.lab = hostile.to_owned();
            case.kernel = hostile.to_owned();
            for probe in &mut case.probes {
                probe.name = hostile.to_owned();
                probe.from = hostile.to_owned();
            }
        }
        let page = page(&results);
        assert_eq!(page.matches("<script").count(), 1);
        assert!(!page.contains("<b>"));
        assert!(!page.contains(['\u{202e}', '\u{1b}']));
    }
}
