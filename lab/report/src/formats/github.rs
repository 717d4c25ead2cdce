//! Writes a run for the GitHub Actions log at the end of the run.
//!
//! The log has a group per lab with its cases, and an annotation at the row of every case that did
//! not pass. The job summary has a table.
//!
//! The commands follow the parser of the runner (`src/Runner.Common/ActionCommand.cs` in
//! actions/runner at 079cdb1d05fe). A command is a line that begins with `::name`, after optional
//! spaces, or the older `##[name]` anywhere in a line. The runner parses standard output and
//! standard error alike. `\r` ends a line like `\n` (.NET's `StreamReader.ReadLine`, called by
//! `StartReadStream` in `src/Runner.Sdk/ProcessInvoker.cs`).

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use crate::formats::markdown;
use crate::results::{CaseDocument, Document};
use crate::run_text::case::CaseRenderer;
use crate::run_text::unexpected::{describe_stopped, list_not_run};
use crate::text::repository::Repository;
use crate::text::strip_colours;
use crate::text::{self, certificate};
use crate::writer::{Options, Writer};
use svclab_diagnostic::printable::printable;
use svclab_runner::results::{CaseStatus, FileLine, Summary};
use svclab_runner::run::Event;

/// Writer of workflow commands.
pub(crate) struct Github<'a, W> {
    out: W,
    options: Options<'a>,
}

impl<'a, W: Write> Github<'a, W> {
    pub(crate) fn new(out: W, options: Options<'a>) -> Self {
        Self { out, options }
    }

    fn log(&mut self, results: &Document) -> io::Result<()> {
        for warning in &results.warnings {
            let mut properties = location_properties(warning.location.as_ref());
            properties.push(format!("title={}", escape_property(&warning.lab)));
            let text = escape_data(&warning.to_string());
            writeln!(self.out, "::warning {}::{text}", properties.join(","))?;
        }
        let renderer = CaseRenderer::new(&self.options);
        for (lab, cases) in results.by_lab() {
            let counts =
                text::render_counts(Summary::from_statuses(cases.iter().map(|case| case.result)));
            writeln!(
                self.out,
                "::group::{}",
                escape_data(&format!("{lab}: {counts}"))
            )?;
            for case in &cases {
                let text = format!("{}\n{}", renderer.head(case), renderer.details(case));
                for line in printable(&strip_colours(&text)).lines() {
                    writeln!(self.out, "{}", inert(line))?;
                }
            }
            writeln!(self.out, "::endgroup::")?;
            // Annotations are visible only outside the folded group.
            for case in cases {
                if case.result != CaseStatus::Pass {
                    writeln!(self.out, "{}", annotation(case, renderer))?;
                }
            }
        }
        Ok(())
    }
}

impl<W: Write> Writer for Github<'_, W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::RunEnded { results, duration } => {
                self.document(&Document::from(&**results), *duration)
            }
            _ => Ok(()),
        }
    }

    fn document(&mut self, results: &Document, took: Duration) -> io::Result<()> {
        self.log(results)?;
        let summary = crate::run_text::render_summary(results, took);
        for line in printable(&summary).lines() {
            writeln!(self.out, "{}", inert(line))?;
        }
        if let Some(lost) = crate::run_text::describe_lost(results) {
            let title = escape_property("cases without a result");
            writeln!(self.out, "::error title={title}::{}", escape_data(&lost))?;
        }
        if let Some(stopped) = describe_stopped(results) {
            let title = escape_property("the run is incomplete");
            let names = list_not_run(&results.not_run);
            let text = escape_data(&format!("{stopped}: {names}"));
            writeln!(self.out, "::error title={title}::{text}")?;
        }
        if let Some(certificate) = &results.certificate {
            let text = certificate::render_text(certificate);
            for line in printable(&text).lines() {
                writeln!(self.out, "{}", inert(line))?;
            }
            if !certificate.unchanged {
                let title = escape_property("this machine has changed");
                writeln!(self.out, "::error title={title}::{}", escape_data(&text))?;
            }
        }
        self.out.flush()?;
        let renderer = CaseRenderer::new(&self.options);
        let text = markdown::render_page(results, &summary, renderer);
        if let Some(page) = &mut self.options.summary {
            page.write_all(printable(&text).as_bytes())?;
            page.flush()?;
        }
        Ok(())
    }
}

/// Renders `::error file=…,line=…,title=…::DIFFERENCES`, or `::warning` for a flaky case.
fn annotation(case: &CaseDocument, renderer: CaseRenderer<'_>) -> String {
    let command = match case.result {
        CaseStatus::Flaky => "warning",
        _ => "error",
    };
    let mut properties = location_properties(case.location.as_ref());
    let title = format!("{} {}", case.result.upper_case_name(), renderer.name(case));
    properties.push(format!("title={}", escape_property(&title)));
    let text = renderer.plain_details(case);
    format!(
        "::{command} {}::{}",
        properties.join(","),
        escape_data(&text)
    )
}

/// Returns the properties that locate an annotation in a file.
fn location_properties(place: Option<&FileLine>) -> Vec<String> {
    let properties = |place: &FileLine| {
        vec![
            format!(
                "file={}",
                escape_property(&Repository::find().path(&place.file))
            ),
            format!("line={}", place.line),
        ]
    };
    place.map(properties).unwrap_or_default()
}

/// Escapes text after the last `::` of a command, and breaks up commands of the older syntax.
fn escape_data(text: &str) -> String {
    defused(text)
        .replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Escapes text of a property, which `:` and `,` would end.
fn escape_property(text: &str) -> String {
    escape_data(text).replace(':', "%3A").replace(',', "%2C")
}

/// Changes a line so that no runner parses a command in it, whatever a dump or a kernel message
/// contains.
#[must_use]
pub fn inert(line: &str) -> Cow<'_, str> {
    let line = defused(line);
    if line.trim_start().starts_with("::") {
        Cow::Owned(format!("| {line}"))
    } else {
        line
    }
}

fn defused(text: &str) -> Cow<'_, str> {
    if text.contains("##[") {
        Cow::Owned(text.replace("##[", "## ["))
    } else {
        Cow::Borrowed(text)
    }
}

/// Writer of lines in which no runner parses a command.
pub(crate) struct InertLines<W> {
    out: W,
    /// Line without an end.
    pending: Vec<u8>,
}

impl<W: Write> InertLines<W> {
    pub(crate) const fn new(out: W) -> Self {
        Self {
            out,
            pending: Vec::new(),
        }
    }

    fn write_lines(&mut self, length: usize) -> io::Result<()> {
        let rest = self.pending.split_off(length);
        let lines = std::mem::replace(&mut self.pending, rest);
        let text = String::from_utf8_lossy(&lines);
        let text: String = text.split_inclusive('\n').map(inert).collect();
        self.out.write_all(text.as_bytes())
    }
}

impl<W: Write> Write for InertLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        if let Some(end) = self.pending.iter().rposition(|byte| *byte == b'\n') {
            self.write_lines(end + 1)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_lines(self.pending.len())?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::tests::render_run;
    use svclab_runner::results::fixture;

    /// Undoes the escapes in the order of the runner, `%25` last.
    fn unescape(text: &str, escapes: &[(&str, &str)]) -> String {
        let read = escapes.iter().fold(text.to_owned(), |text, (code, means)| {
            text.replace(code, means)
        });
        read.replace("%25", "%")
    }

    #[test]
    fn log_failed_cases_are_annotated() {
        let mut page = Vec::new();
        let log = render_run(
            Format::Github,
            Options {
                summary: Some(Box::new(&mut page)),
                ..Options::default()
            },
        );
        insta::assert_snapshot!(log);
        insta::assert_snapshot!(
            "summary_failed_cases_are_in_table",
            String::from_utf8(page).unwrap()
        );
    }

    #[test]
    fn log_stopped_run_is_incomplete() {
        let mut page = Vec::new();
        let mut out = Vec::new();
        let mut writer = Format::Github.writer(
            &mut out,
            Options {
                summary: Some(Box::new(&mut page)),
                ..Options::default()
            },
        );
        let ended = Event::RunEnded {
            results: Box::new(fixture::stopped_results()),
            duration: Duration::from_secs(3),
        };
        writer.event(&ended).unwrap();
        drop(writer);
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
        insta::assert_snapshot!(String::from_utf8(page).unwrap());
    }

    #[test]
    fn log_and_summary_name_kernels_on_request() {
        let mut page = Vec::new();
        let log = render_run(
            Format::Github,
            Options {
                summary: Some(Box::new(&mut page)),
                names_kernels: true,
                ..Options::default()
            },
        );
        let page = String::from_utf8(page).unwrap();
        let cases = fixture::results().cases;
        let failed = cases
            .iter()
            .filter(|case| case.result == CaseStatus::Fail && !case.kernel.is_empty());
        for case in failed {
            let name = format!("FAIL {} on Linux {}", case.case, case.kernel);
            let title = format!("title={}", escape_property(&name));
            let row = format!("| FAIL | {} on Linux {} |", case.case, case.kernel);
            assert!(log.lines().any(|line| line.starts_with(&name)), "{name}");
            assert!(log.contains(&title), "{title}");
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn log_contains_only_own_commands() {
        let log = render_run(Format::Github, Options::default());
        assert!(!log.contains("##["));
        let names = log
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("::"))
            .filter_map(|line| line.split([' ', ':']).next());
        let mut count = std::collections::BTreeMap::new();
        for name in names {
            *count.entry(name).or_insert(0) += 1;
        }
        let labs = Document::from(&fixture::results()).by_lab().len();
        let Summary { failed, errors, .. } = fixture::results().summary;
        let wanted = [
            ("endgroup", labs),
            ("error", failed + errors),
            ("group", labs),
            ("warning", fixture::results().warnings.len()),
        ];
        assert_eq!(count.into_iter().collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn escapes_read_back() {
        for text in ["100%", "%0A", "a\r\nb", "a: b, c=d", "%253A::"] {
            let lines = [("%0D", "\r"), ("%0A", "\n")];
            assert_eq!(unescape(&escape_data(text), &lines), text);
            let all = [("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ",")];
            assert_eq!(unescape(&escape_property(text), &all), text);
            let escaped = escape_property(text);
            assert!(!escaped.contains([':', ',', '\n', '\r']), "{escaped}");
        }
    }

    #[test]
    fn inert_lines_in_any_parts_are_no_commands() {
        let text = "passed\n::error::x\n  ::stop-commands::y\nend ::error::z";
        for length in 1..text.len() {
            let mut out = Vec::new();
            let mut lines = InertLines::new(&mut out);
            for part in text.as_bytes().chunks(length) {
                lines.write_all(part).unwrap();
            }
            lines.flush().unwrap();
            let written = String::from_utf8(out).unwrap();
            let expected = "passed\n| ::error::x\n|   ::stop-commands::y\nend ::error::z";
            assert_eq!(written, expected, "{length}");
        }
    }

    #[test]
    fn inert_dump_lines_are_no_commands() {
        assert_eq!(inert("  ::error::x"), "|   ::error::x");
        assert_eq!(inert("a ##[error]x"), "a ## [error]x");
        assert_eq!(inert("fd00::1 → fd00::2"), "fd00::1 → fd00::2");
    }
}
