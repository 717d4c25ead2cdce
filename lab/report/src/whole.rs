//! A format's output as a file that has its name once the run is over.

use std::io;

use super::writer::Writer;
use svclab_diagnostic::files::Unfinished;
use svclab_runner::results::Event;

/// Writes a format to a file, and gives the file its name at the end.
pub struct Whole<'a> {
    writer: Box<dyn Writer + 'a>,
    file: Option<Unfinished>,
}

impl<'a> Whole<'a> {
    /// What `writer` writes is in that file.
    #[must_use]
    pub fn new(writer: Box<dyn Writer + 'a>, file: Unfinished) -> Self {
        Self {
            writer,
            file: Some(file),
        }
    }
}

impl Writer for Whole<'_> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.writer.event(event)?;
        match event {
            Event::Over { .. } => self.file.take().map_or(Ok(()), Unfinished::finish),
            _ => Ok(()),
        }
    }
}
