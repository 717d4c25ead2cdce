//! The files in a tarball, compressed by gzip or not, as `scripts/collect-node` writes
//! it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::rc::Rc;

use flate2::bufread::GzDecoder;
use tar::{Archive, Entry, EntryType};

use svclab_diagnostic::printable::one_line;
use svclab_ruleset::text::limits::{MAX_BYTES, MAX_FILES, MAX_UNPACKED};

/// A file in a tarball.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Its path in the tarball, which names it and nothing else: nothing is written there.
    pub path: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Why a tarball cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TarballError {
    /// It ends before it should.
    #[error("the tarball is cut off: it ends within {0}; collect it again")]
    CutOff(String),
    /// Its headers are no tarball's.
    #[error("this is no tarball: behind byte {0} comes no header of a file")]
    Not(u64),
    /// A file's headers can be read in two ways.
    #[error("the headers of {0} in the tarball contradict each other; collect it again")]
    Ambiguous(String),
    /// Something is behind its end.
    #[error("the tarball goes on behind its end; collect it again")]
    GoesOn,
    /// More files than a dump has, or larger ones.
    #[error(
        "the tarball holds more than {MAX_FILES} files, one of more than {} MiB, or more than {} MiB in all: it is not a dump",
        MAX_BYTES >> 20,
        MAX_UNPACKED >> 20
    )]
    Large,
    /// A file of a dump is a link to another.
    #[error(
        "{path} in the tarball is a link to {to}, and links are not followed: pack the file itself, with `tar -h`"
    )]
    Link {
        /// The link.
        path: String,
        /// Where it leads.
        to: String,
    },
    /// A file of a dump is a device, a pipe, or a file with holes.
    #[error("{path} in the tarball is {what}; pack a plain file")]
    NotPlain {
        /// Its path.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// A file of a dump is there twice.
    #[error(
        "{0} is twice in the tarball, and which of the two is right is not known: collect it again"
    )]
    Twice(String),
    /// Decompression failed, or the system did.
    #[error("the tarball cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// A block of a tarball (POSIX.1-1988, `ustar`).
const BLOCK: u64 = 512;

/// Whether a file that begins so is a tarball.
#[must_use]
pub fn is_tarball(begins: &[u8]) -> bool {
    begins.starts_with(b"\x1f\x8b") || begins.get(257..262) == Some(b"ustar")
}

/// The plain files in a tarball that are `wanted` by their paths, in their order; and the
/// paths of the others.
///
/// # Errors
///
/// See [`TarballError`].
pub fn files(
    bytes: &[u8],
    wanted: impl Fn(&str) -> bool,
) -> Result<(Vec<Packed>, Vec<String>), TarballError> {
    if bytes.starts_with(b"\x1f\x8b") {
        // A file of several members is what `cat` makes of several (RFC 1952, 2.2).
        read(Members(GzDecoder::new(bytes)), wanted)
    } else {
        read(bytes, wanted)
    }
}

/// The members of a gzip file, one after the other.
struct Members<'b>(GzDecoder<&'b [u8]>);

impl Read for Members<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.0.read(into)?;
            let rest = *self.0.get_ref();
            if read > 0 || into.is_empty() || rest.is_empty() {
                return Ok(read);
            }
            if !rest.starts_with(b"\x1f\x8b") {
                return Err(io::Error::other(TarballError::GoesOn));
            }
            self.0 = GzDecoder::new(rest);
        }
    }
}

/// The first bytes of a stream, and what became of it.
struct Bounded<R> {
    from: R,
    left: usize,
    state: Rc<Cell<State>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    Ended,
    TooLarge,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(self.left + 1);
        let read = self.from.read(&mut into[..most])?;
        if read > self.left {
            self.state.set(State::TooLarge);
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.left -= read;
        if read == 0 && !into.is_empty() {
            self.state.set(State::Ended);
        }
        Ok(read)
    }
}

fn read(
    from: impl Read,
    wanted: impl Fn(&str) -> bool,
) -> Result<(Vec<Packed>, Vec<String>), TarballError> {
    let state = Rc::new(Cell::new(State::Reading));
    let mut archive = Archive::new(Bounded {
        from,
        left: MAX_UNPACKED,
        state: Rc::clone(&state),
    });
    let mut found = Found::default();
    let entries = archive.entries()?;
    for entry in entries {
        entry
            .and_then(|entry| found.take(entry, &wanted))
            .map_err(|error| found.why(error, state.get()))??;
    }
    if state.get() == State::Ended {
        // The end of a tarball is a block of zeros.
        return Err(TarballError::CutOff(found.last));
    }
    // What is left is padding, and the check sum of what was compressed.
    let mut rest = archive.into_inner();
    let mut block = [0; 8192];
    loop {
        match rest.read(&mut block) {
            Ok(0) => return Ok((found.files, found.others)),
            Ok(read) if block[..read].iter().all(|byte| *byte == 0) => {}
            Ok(_) => return Err(TarballError::GoesOn),
            Err(error) => return Err(found.why(error, state.get())),
        }
    }
}

/// What was found in a tarball so far.
struct Found {
    files: Vec<Packed>,
    others: Vec<String>,
    /// The path of the entry that was begun last.
    last: String,
    /// The byte behind it.
    end: u64,
}

impl Default for Found {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            others: Vec::new(),
            last: "its first header".to_owned(),
            end: 0,
        }
    }
}

impl Found {
    /// Takes an entry. The outer error is the stream's.
    fn take(
        &mut self,
        mut entry: Entry<'_, impl Read>,
        wanted: impl Fn(&str) -> bool,
    ) -> io::Result<Result<(), TarballError>> {
        let path = name(&entry.path_bytes());
        self.last.clone_from(&path);
        let size = entry.size();
        let file = entry.raw_file_position();
        self.end = size
            .checked_next_multiple_of(BLOCK)
            .and_then(|padded| padded.checked_add(file))
            .unwrap_or(file);
        let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
        if size > most {
            return Ok(Err(TarballError::Large));
        }
        let Some(has_holes) = has_holes(&mut entry)? else {
            return Ok(Err(TarballError::Ambiguous(path)));
        };
        let kind = entry.header().entry_type();
        let is_wanted = wanted(&path);
        if !kind.is_file() {
            return Ok(match kind {
                EntryType::Link | EntryType::Symlink if is_wanted => {
                    let to = entry.link_name_bytes();
                    let to = to.map(|to| name(&to)).unwrap_or_default();
                    Err(TarballError::Link { path, to })
                }
                EntryType::Directory | EntryType::XGlobalHeader => Ok(()),
                // The next file's, in a header of another format: they would not count.
                EntryType::XHeader | EntryType::GNULongName | EntryType::GNULongLink => {
                    Err(TarballError::Ambiguous(path))
                }
                _ if is_wanted => Err(not_plain(path, kind)),
                _ => Ok(()),
            });
        }
        if self.files.len() + self.others.len() == MAX_FILES {
            return Ok(Err(TarballError::Large));
        }
        if !is_wanted {
            self.others.push(path);
            return Ok(Ok(()));
        }
        // GNU tar's own way to pack holes: what follows the headers is not the file.
        if has_holes {
            return Ok(Err(not_plain(path, EntryType::GNUSparse)));
        }
        if self
            .files
            .iter()
            .any(|known| plain(&known.path).eq(plain(&path)))
        {
            return Ok(Err(TarballError::Twice(path)));
        }
        let mut bytes = Vec::new();
        entry.take(most).read_to_end(&mut bytes)?;
        if u64::try_from(bytes.len()) != Ok(size) {
            return Ok(Err(TarballError::CutOff(path)));
        }
        self.files.push(Packed { path, bytes });
        Ok(Ok(()))
    }

    /// What an error of the stream or of its headers means.
    fn why(&self, error: io::Error, state: State) -> TarballError {
        let error = match error.downcast() {
            Ok(own) => return own,
            Err(error) => error,
        };
        match error.kind() {
            _ if state == State::TooLarge => TarballError::Large,
            io::ErrorKind::UnexpectedEof => TarballError::CutOff(self.last.clone()),
            // The stream ended within a header.
            _ if state == State::Ended => TarballError::CutOff(self.last.clone()),
            io::ErrorKind::Other => TarballError::Not(self.end),
            _ => TarballError::Io(error),
        }
    }
}

fn not_plain(path: String, kind: EntryType) -> TarballError {
    let what = match kind {
        EntryType::Fifo => "a named pipe",
        EntryType::Char | EntryType::Block => "a device",
        EntryType::GNUSparse => "a file with holes",
        _ => "of a kind that is not read",
    };
    TarballError::NotPlain { path, what }
}

/// Whether pax's headers say that the file has holes; `None` if they can be read in two
/// ways: a record whose length is wrong, as one with a line end in its value is to the
/// `tar` crate, or one that is there twice.
fn has_holes(entry: &mut Entry<'_, impl Read>) -> io::Result<Option<bool>> {
    let mut keys = BTreeSet::new();
    if let Some(records) = entry.pax_extensions()? {
        for record in records {
            let Ok(record) = record else { return Ok(None) };
            if !keys.insert(record.key_bytes()) {
                return Ok(None);
            }
        }
    }
    Ok(Some(keys.iter().any(|key| key.starts_with(b"GNU.sparse."))))
}

/// A path as it is shown: whoever made the tarball has chosen it.
fn name(bytes: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(bytes)).into_owned()
}

/// The parts of a path that tell it from others.
fn plain(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !["", "."].contains(part))
}

#[cfg(test)]
#[path = "tarball_tests.rs"]
mod tests;
