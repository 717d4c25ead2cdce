//! Defines the output formats of a run: one file for each, with the parts that only it uses.

mod capture;
pub(crate) mod evidence;
pub mod folder;
pub(crate) mod github;
pub(crate) mod gzip;
pub mod html;
pub(crate) mod human;
pub(crate) mod json;
pub(crate) mod junit;
pub(crate) mod markdown;
pub(crate) mod packet_comments;
pub mod pcapng;

use std::io::{self, BufWriter, Write};

use serde::Serialize;

use crate::formats::github::{Github, InertLines};
use crate::formats::human::Human;
use crate::formats::json::Json;
use crate::formats::junit::Junit;
use crate::writer::until_closed::UntilClosed;
use crate::writer::{Options, Writer};
use svclab_diagnostic::printable::{PrintableWriter, TextKind};

/// Output format of a run: `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, clap::ValueEnum)]
pub enum Format {
    /// Text for people, printed as cases finish.
    #[default]
    Human,
    /// JSON document at the end of the run; see `svclab schema results`.
    Json,
    /// `JUnit` XML at the end of the run, with a suite per lab and a test per case.
    Junit,
    /// Annotations and groups for the GitHub Actions log, at the end of the run.
    Github,
}

/// Writes a document as a line of JSON.
fn write_json_line(out: impl Write, document: &impl Serialize) -> io::Result<()> {
    // Each write to `PrintableWriter` is searched for control characters, and a serializer writes
    // single words.
    let mut out = BufWriter::new(PrintableWriter::new(out, TextKind::Json));
    serde_json::to_writer(&mut out, document)?;
    out.write_all(b"\n")?;
    out.flush()
}

impl Format {
    /// Returns the writer of this format for `out`.
    pub fn writer<'a>(self, out: impl Write + 'a, options: Options<'a>) -> Box<dyn Writer + 'a> {
        let kind = match self {
            Self::Json => TextKind::Json,
            Self::Human if options.colour => TextKind::Styled,
            _ => TextKind::Text,
        };
        let out = PrintableWriter::new(UntilClosed::new(out), kind);
        match self {
            Self::Human if options.is_read_by_runner => {
                Box::new(Human::new(InertLines::new(out), options))
            }
            Self::Human => Box::new(Human::new(out, options)),
            Self::Json => Box::new(Json::new(out)),
            Self::Junit => Box::new(Junit::new(out, options)),
            Self::Github => Box::new(Github::new(out, options)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};

    use super::*;
    use svclab_runner::results::fixture;

    /// Pipe that accepts `left` bytes and then fails.
    struct Pipe {
        left: usize,
        then: ErrorKind,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.left == 0 {
                return Err(self.then.into());
            }
            let taken = bytes.len().min(self.left);
            self.left -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const ALL: [Format; 4] = [Format::Human, Format::Json, Format::Junit, Format::Github];

    fn write_events(format: Format, left: usize, then: ErrorKind) -> io::Result<()> {
        let mut writer = format.writer(Pipe { left, then }, Options::default());
        fixture::events()
            .iter()
            .try_for_each(|event| writer.event(event))
    }

    #[test]
    fn writer_closed_pipe_is_no_error() {
        for format in ALL {
            for left in [0, 1, 40] {
                write_events(format, left, ErrorKind::BrokenPipe).unwrap();
            }
        }
    }

    #[test]
    fn writer_full_disk_returns_error() {
        for format in ALL {
            let error = write_events(format, 40, ErrorKind::StorageFull).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{format:?}");
        }
    }
}
