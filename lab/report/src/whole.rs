//! Writes a format to a file that gets its name at the end of the run.

use std::io;

use super::writer::Writer;
use svclab_diagnostic::files::Unfinished;
use svclab_runner::results::Event;

/// Writer to a file that gets its name at the end of the run.
pub struct Whole<'a> {
    writer: Box<dyn Writer + 'a>,
    file: Option<Unfinished>,
}

impl<'a> Whole<'a> {
    /// Combines a file with the writer of its content.
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
