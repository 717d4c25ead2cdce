//! Writes a run as text for a terminal or pipe: each case as it finishes, and a summary line.

use std::io::{self, Write};

use super::case_text::{Telling, plain};
use super::writer::{Options, Writer};
use super::{certificate, flow_table, words};
use svclab_runner::results::Event;

/// Writer of text for people.
pub(super) struct Human<'a, W> {
    out: W,
    options: Options<'a>,
}

impl<'a, W: Write> Human<'a, W> {
    pub(super) fn new(out: W, options: Options<'a>) -> Self {
        Self { out, options }
    }
}

impl<W: Write> Writer for Human<'_, W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let telling = Telling {
            verbose: self.options.verbose,
            again: &self.options.again,
        };
        match event {
            Event::Begun { .. } | Event::Started { .. } => return Ok(()),
            Event::Finished { result, .. } => {
                // A single write per case keeps it apart from other output on the terminal.
                let text = format!("{}\n{}", Telling::head(result), telling.details(result));
                let text = if self.options.colour {
                    text
                } else {
                    plain(&text)
                };
                self.out.write_all(text.as_bytes())?;
            }
            Event::Over { results, took } => {
                self.out
                    .write_all(flow_table::text(&results.flows).as_bytes())?;
                writeln!(self.out, "{}", words::summary(results, *took))?;
                if let Some(certificate) = &results.certificate {
                    self.out
                        .write_all(certificate::text(certificate).as_bytes())?;
                }
            }
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::fixture;

    fn told(options: Options<'_>) -> String {
        fixture::told(Format::Human, options)
    }

    #[test]
    fn what_differs_is_told_and_how_to_run_it_again() {
        insta::assert_snapshot!(told(Options::default()));
    }

    #[test]
    fn everything_is_told_to_who_asks_for_it() {
        insta::assert_snapshot!(told(Options {
            verbose: true,
            again: "svclab run --kernel guest".to_owned(),
            ..Options::default()
        }));
    }

    #[test]
    fn colours_add_nothing_that_one_has_to_see() {
        let plain = told(Options::default());
        let coloured = told(Options {
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
    fn a_case_is_told_as_soon_as_it_ends() {
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
