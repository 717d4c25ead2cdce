//! Writes a run as text for a terminal or pipe: each case as it finishes, the failed and slow cases
//! in short form, and a summary line. A quiet writer omits everything but failures and the summary.

use std::io::{self, Write};
use std::time::Duration;

use crate::results::{CaseDocument, Document};
use crate::run_text::case::CaseRenderer;
use crate::run_text::recap::render_recap;
use crate::text::{self, certificate, flow_table};
use crate::writer::{Options, Writer};
use svclab_runner::run::Event;

/// Writer of text for people.
pub(crate) struct Human<'a, W> {
    out: W,
    options: Options<'a>,
}

impl<'a, W: Write> Human<'a, W> {
    pub(crate) fn new(out: W, options: Options<'a>) -> Self {
        Self { out, options }
    }
}

impl<W: Write> Writer for Human<'_, W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::RunStarted { .. } | Event::CaseStarted { .. } => Ok(()),
            Event::CaseEnded { result, .. } => self.write_case(&CaseDocument::from(&**result)),
            Event::RunEnded {
                results,
                duration: took,
            } => self.write_end(&Document::from(&**results), *took),
        }
    }

    fn document(&mut self, document: &Document, duration: Duration) -> io::Result<()> {
        for case in &document.cases {
            self.write_case(case)?;
        }
        self.write_end(document, duration)
    }
}

impl<W: Write> Human<'_, W> {
    fn write_case(&mut self, case: &CaseDocument) -> io::Result<()> {
        if self.options.quiet && case.result.has_passed() {
            return Ok(());
        }
        let renderer = CaseRenderer::new(&self.options);
        // A single write per case keeps it apart from other output on the terminal.
        let text = format!("{}\n{}", renderer.head(case), renderer.details(case));
        let text = self
            .options
            .width
            .fit(text::with_colour(text, self.options.colour));
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    fn write_end(&mut self, document: &Document, took: Duration) -> io::Result<()> {
        if !self.options.quiet {
            let recap = render_recap(document, CaseRenderer::new(&self.options));
            let recap = text::with_colour(recap, self.options.colour);
            let tables = flow_table::render_tables(&document.flows, self.options.width);
            let recap = self.options.width.fit(recap);
            self.out.write_all((tables + &recap).as_bytes())?;
        }
        let summary = crate::run_text::render_summary(document, took);
        writeln!(self.out, "{}", self.options.width.fit(summary))?;
        let certificate = document.certificate.as_ref();
        if let Some(certificate) =
            certificate.filter(|found| !self.options.quiet || !found.unchanged)
        {
            let text = self
                .options
                .width
                .fit(certificate::render_text(certificate));
            self.out.write_all(text.as_bytes())?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::tests::render_run;
    use svclab_runner::results::fixture;

    fn render(options: Options<'_>) -> String {
        render_run(Format::Human, options)
    }

    #[test]
    fn text_unexpected_results_match_snapshot() {
        insta::assert_snapshot!(render(Options::default()));
    }

    #[test]
    fn text_verbose_matches_snapshot() {
        insta::assert_snapshot!(render(Options {
            verbose: true,
            rerun_command: "svclab run --kernel guest".to_owned(),
            ..Options::default()
        }));
    }

    #[test]
    fn text_quiet_has_failures_and_summary_only() {
        let text = render(Options {
            quiet: true,
            ..Options::default()
        });
        let heads = text.lines().filter(|line| !line.starts_with(' '));
        insta::assert_snapshot!(heads.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn text_several_kernels_are_named() {
        let text = render(Options {
            names_kernels: true,
            ..Options::default()
        });
        for case in fixture::results().cases {
            let status = case.result.upper_case_name();
            let mut head = format!("{status} {}", case.case);
            if !case.kernel.is_empty() {
                head = format!("{head} on Linux {}", case.kernel);
            }
            let is_head = |line: &str| line.starts_with(&format!("{head}  "));
            assert!(text.lines().any(is_head), "{head}");
        }
    }

    #[test]
    fn text_colours_add_no_information() {
        let plain = render(Options::default());
        let coloured = render(Options {
            colour: true,
            ..Options::default()
        });
        assert!(!plain.contains('\x1b') && coloured.contains('\x1b'));
        assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
        for word in ["PASS ", "FAIL ", "ERROR "] {
            assert!(plain.lines().any(|line| line.starts_with(word)), "{word}");
        }
    }

    #[test]
    fn text_finished_case_is_written_immediately() {
        let mut out = Vec::new();
        let mut writer = Human::new(&mut out, Options::default());
        let events = fixture::events();
        let last = events.len() - 1;
        for event in &events[..last] {
            writer.event(event).unwrap();
        }
        let before = String::from_utf8(out).unwrap();
        for case in fixture::results().cases {
            assert!(before.contains(&case.case), "{}", case.case);
        }
    }
}
