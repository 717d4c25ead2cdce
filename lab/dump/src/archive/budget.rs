//! Limits the files and bytes of an archive, over all archives inside it.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use super::ArchiveError;
use svclab_ruleset::text::limits::{MAX_ENTRIES, MAX_FILES, MAX_STREAM, MAX_UNPACKED};

/// Limits of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Number of entries.
    pub entries: usize,
    /// Bytes of all streams: the archive, and the output of each decompression.
    pub stream: u64,
    /// Number of selected files.
    pub files: usize,
    /// Bytes of all selected files.
    pub unpacked: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: MAX_ENTRIES,
            stream: MAX_STREAM,
            files: MAX_FILES,
            unpacked: MAX_UNPACKED,
        }
    }
}

/// Remaining amounts of the limits.
pub(super) struct Budget {
    entries: usize,
    files: usize,
    unpacked: usize,
    stream: Rc<Stream>,
}

/// Remaining bytes of all streams.
struct Stream {
    remaining: Cell<u64>,
    is_exceeded: Cell<bool>,
}

impl Budget {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            entries: limits.entries,
            files: limits.files,
            unpacked: limits.unpacked,
            stream: Rc::new(Stream {
                remaining: Cell::new(limits.stream),
                is_exceeded: Cell::new(false),
            }),
        }
    }

    /// Whether a limit was exceeded. The error of a reader may have lost the reason.
    pub(super) fn is_exceeded(&self) -> bool {
        self.stream.is_exceeded.get()
    }

    /// Counts an entry.
    pub(super) fn add_entry(&mut self) -> Result<(), ArchiveError> {
        self.entries = self.subtract(self.entries, 1)?;
        Ok(())
    }

    /// Counts a selected file.
    pub(super) fn add_file(&mut self, bytes: usize) -> Result<(), ArchiveError> {
        self.files = self.subtract(self.files, 1)?;
        self.unpacked = self.subtract(self.unpacked, bytes)?;
        Ok(())
    }

    fn subtract(&self, from: usize, amount: usize) -> Result<usize, ArchiveError> {
        from.checked_sub(amount).ok_or_else(|| {
            self.stream.is_exceeded.set(true);
            ArchiveError::TooLarge
        })
    }
}

/// Reader whose bytes count against a budget.
pub(super) struct Metered<R> {
    from: R,
    stream: Rc<Stream>,
}

impl<R: Read> Metered<R> {
    pub(super) fn new(from: R, budget: &Budget) -> Self {
        Self {
            from,
            stream: Rc::clone(&budget.stream),
        }
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        let bytes = u64::try_from(read).unwrap_or(u64::MAX);
        let Some(remaining) = self.stream.remaining.get().checked_sub(bytes) else {
            self.stream.is_exceeded.set(true);
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        self.stream.remaining.set(remaining);
        Ok(read)
    }
}
