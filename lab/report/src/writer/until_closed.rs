//! Handles outputs whose reader may close them.

use std::io::{self, ErrorKind, Write};

/// Output that discards everything after the reader has closed its end.
#[derive(Debug)]
pub(crate) struct UntilClosed<W> {
    out: W,
    closed: bool,
}

impl<W: Write> UntilClosed<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, closed: false }
    }

    fn unless_closed<T>(
        &mut self,
        otherwise: T,
        write: impl FnOnce(&mut W) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.closed {
            return Ok(otherwise);
        }
        match write(&mut self.out) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(otherwise)
            }
            result => result,
        }
    }
}

impl<W: Write> Write for UntilClosed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unless_closed(bytes.len(), |out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unless_closed((), Write::flush)
    }
}
