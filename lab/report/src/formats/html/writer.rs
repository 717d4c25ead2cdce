//! Writes a run as one page with everything in it.

use std::io::{self, Write};

use super::case::evidence::with_embedded_files;
use super::{Page, ShownRun};
use crate::additions::Additions;
use crate::results::Document;
use crate::writer::Writer;
use svclab_runner::run::Event;

/// Writer of a run's page, which contains the evidence.
#[derive(Debug)]
pub struct HtmlWriter<W> {
    page: Page,
    rerun_command: String,
    additions: Additions,
    /// Number of cases of the run.
    cases: usize,
    out: W,
}

impl<W: Write> HtmlWriter<W> {
    /// Creates a writer that writes the page when the run ends. `rerun_command` is the command that
    /// repeats a case, without the case name.
    pub fn new(out: W, rerun_command: &str, additions: Additions) -> Self {
        Self {
            page: Page::new(additions.answer.clone()),
            rerun_command: rerun_command.to_owned(),
            additions,
            cases: 0,
            out,
        }
    }
}

impl<W: Write> Writer for HtmlWriter<W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::RunStarted { cases } => {
                self.cases = *cases;
                Ok(())
            }
            Event::CaseEnded { result, evidence } => {
                let seen = evidence.as_deref();
                let details = self.additions.details(result, seen, &self.rerun_command);
                let evidence = seen.map(|seen| &seen.evidence);
                let case = with_embedded_files(details, evidence, self.cases)?;
                self.page.add_section("", &case)
            }
            Event::RunEnded { results, .. } => {
                let document = &Document::from(&**results);
                let run = ShownRun {
                    label: "",
                    document,
                };
                self.out
                    .write_all(self.page.render(&[run], None)?.as_bytes())?;
                self.out.flush()
            }
            Event::CaseStarted { .. } => Ok(()),
        }
    }
}
