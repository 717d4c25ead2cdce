//! Writes the results of a run as one JSON document at the end of the run.

use std::io::{self, Write};
use std::time::Duration;

use crate::results::Document;
use crate::writer::Writer;
use svclab_runner::run::Event;

/// Writer of JSON.
pub(crate) struct Json<W> {
    out: W,
}

impl<W: Write> Json<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out }
    }
}

impl<W: Write> Writer for Json<W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::RunEnded { results, duration } => {
                self.document(&Document::from(&**results), *duration)
            }
            _ => Ok(()),
        }
    }

    fn document(&mut self, document: &Document, _duration: Duration) -> io::Result<()> {
        writeln!(self.out, "{}", serde_json::to_string_pretty(document)?)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use crate::results::Document;
    use crate::tests::render_run;
    use crate::{Format, Options};
    use svclab_runner::results::fixture;

    #[test]
    fn json_document_matches_snapshot() {
        insta::assert_snapshot!(render_run(Format::Json, Options::default()));
    }

    #[test]
    fn json_document_roundtrip_is_equal() {
        let json = render_run(Format::Json, Options::default());
        let read: Document = serde_json::from_str(&json).unwrap();
        assert_eq!(read, Document::from(&fixture::results()));
    }
}
