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

use super::case_text::{Telling, plain};
use super::writer::{Options, Writer};
use super::{certificate, markdown, words};
use svclab_diagnostic::printable::printable;
use svclab_runner::results::{CaseResult, Event, Outcome, Place, Results, Summary};

/// Writer of workflow commands.
pub(super) struct Github<'a, W> {
    out: W,
    options: Options<'a>,
}

impl<'a, W: Write> Github<'a, W> {
    pub(super) fn new(out: W, options: Options<'a>) -> Self {
        Self { out, options }
    }

    fn log(&mut self, results: &Results) -> io::Result<()> {
        for warning in &results.warnings {
            let mut properties = place(warning.place.as_ref());
            properties.push(format!("title={}", property(&warning.lab)));
            let text = data(&warning.to_string());
            writeln!(self.out, "::warning {}::{text}", properties.join(","))?;
        }
        let telling = Telling {
            verbose: self.options.verbose,
            again: &self.options.again,
        };
        for (lab, cases) in results.by_lab() {
            let counts = words::counts(Summary::of(cases.iter().copied()));
            writeln!(self.out, "::group::{}", data(&format!("{lab}: {counts}")))?;
            for case in &cases {
                let text = format!("{}\n{}", Telling::head(case), telling.details(case));
                for line in printable(&plain(&text)).lines() {
                    writeln!(self.out, "{}", inert(line))?;
                }
            }
            writeln!(self.out, "::endgroup::")?;
            // Annotations are visible only outside the folded group.
            for case in cases {
                if case.result != Outcome::Pass {
                    writeln!(self.out, "{}", annotation(case, telling))?;
                }
            }
        }
        Ok(())
    }
}

impl<W: Write> Writer for Github<'_, W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        if let Event::Over { results, took } = event {
            self.log(results)?;
            let summary = words::summary(results, *took);
            for line in printable(&summary).lines() {
                writeln!(self.out, "{}", inert(line))?;
            }
            if let Some(lost) = words::lost(results) {
                let title = property("cases without a result");
                writeln!(self.out, "::error title={title}::{}", data(&lost))?;
            }
            if let Some(certificate) = &results.certificate {
                let text = certificate::text(certificate);
                for line in printable(&text).lines() {
                    writeln!(self.out, "{}", inert(line))?;
                }
                if !certificate.unchanged {
                    let title = property("this machine is not as it was before");
                    writeln!(self.out, "::error title={title}::{}", data(&text))?;
                }
            }
            self.out.flush()?;
            if let Some(page) = &mut self.options.summary {
                let text = markdown::page(results, &summary);
                page.write_all(printable(&text).as_bytes())?;
                page.flush()?;
            }
        }
        Ok(())
    }
}

/// Renders `::error file=…,line=…,title=…::DIFFERENCES`.
fn annotation(case: &CaseResult, telling: Telling<'_>) -> String {
    let mut properties = place(case.place.as_ref());
    let title = format!("{} {}", case.result.shout(), case.case);
    properties.push(format!("title={}", property(&title)));
    let text = telling.plain_details(case);
    format!("::error {}::{}", properties.join(","), data(&text))
}

/// Returns the properties that locate an annotation in a file.
fn place(place: Option<&Place>) -> Vec<String> {
    let properties = |place: &Place| {
        vec![
            format!("file={}", property(&place.file)),
            format!("line={}", place.line),
        ]
    };
    place.map(properties).unwrap_or_default()
}

/// Escapes text after the last `::` of a command, and breaks up commands of the older syntax.
fn data(text: &str) -> String {
    defused(text)
        .replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Escapes text of a property, which `:` and `,` would end.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::fixture;

    /// Undoes the escapes in the order of the runner, `%25` last.
    fn read(text: &str, escapes: &[(&str, &str)]) -> String {
        let read = escapes.iter().fold(text.to_owned(), |text, (code, means)| {
            text.replace(code, means)
        });
        read.replace("%25", "%")
    }

    #[test]
    fn what_did_not_pass_is_annotated() {
        let mut page = Vec::new();
        let log = fixture::told(
            Format::Github,
            Options {
                summary: Some(Box::new(&mut page)),
                ..Options::default()
            },
        );
        insta::assert_snapshot!(log);
        insta::assert_snapshot!(
            "what_did_not_pass_is_in_the_table",
            String::from_utf8(page).unwrap()
        );
    }

    #[test]
    fn only_our_own_commands_are_commands() {
        let log = fixture::told(Format::Github, Options::default());
        assert!(!log.contains("##["));
        let names = log
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("::"))
            .filter_map(|line| line.split([' ', ':']).next());
        let mut count = std::collections::BTreeMap::new();
        for name in names {
            *count.entry(name).or_insert(0) += 1;
        }
        let labs = fixture::results().by_lab().len();
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
            assert_eq!(read(&data(text), &lines), text);
            let all = [("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ",")];
            assert_eq!(read(&property(text), &all), text);
            let escaped = property(text);
            assert!(!escaped.contains([':', ',', '\n', '\r']), "{escaped}");
        }
    }

    #[test]
    fn no_line_of_a_dump_is_a_command() {
        assert_eq!(inert("  ::error::x"), "|   ::error::x");
        assert_eq!(inert("a ##[error]x"), "a ## [error]x");
        assert_eq!(inert("fd00::1 → fd00::2"), "fd00::1 → fd00::2");
    }
}
