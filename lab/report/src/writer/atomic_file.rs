//! Writes a format to a file that gets its name at the end of the run.

use std::io;

use crate::writer::Writer;
use svclab_diagnostic::files::UnfinishedFile;
use svclab_runner::run::Event;

/// Writer to a file that gets its name at the end of the run.
pub struct AtomicFileWriter<'a> {
    writer: Box<dyn Writer + 'a>,
    file: Option<UnfinishedFile>,
}

impl<'a> AtomicFileWriter<'a> {
    /// Combines a file with the writer of its content.
    #[must_use]
    pub fn new(writer: Box<dyn Writer + 'a>, file: UnfinishedFile) -> Self {
        Self {
            writer,
            file: Some(file),
        }
    }
}

impl Writer for AtomicFileWriter<'_> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.writer.event(event)?;
        match event {
            Event::RunEnded { .. } => self.file.take().map_or(Ok(()), UnfinishedFile::finish),
            _ => Ok(()),
        }
    }
}
