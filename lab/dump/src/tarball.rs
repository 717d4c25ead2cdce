//! Reads the files in a tarball of `scripts/collect-node`, with or without gzip compression.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::rc::Rc;

use flate2::bufread::GzDecoder;
use tar::{Archive, Entry, EntryType};

use svclab_diagnostic::printable::one_line;
use svclab_ruleset::text::limits::{MAX_BYTES, MAX_FILES, MAX_UNPACKED};

/// File in a tarball.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TarballFile {
    /// Path in the tarball. It serves only as a name: no file is written to this path.
    pub path: String,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// Error of reading a tarball.
#[derive(Debug, thiserror::Error)]
pub enum TarballError {
    /// Tarball is truncated.
    #[error("the tarball is truncated within {0}; collect the dump again")]
    CutOff(String),
    /// Data is not a tarball: a header is invalid.
    #[error("not a tarball: no file header follows byte {0}")]
    NotTarball(u64),
    /// Headers of a file are ambiguous.
    #[error("the headers of {0} in the tarball are ambiguous; collect the dump again")]
    Ambiguous(String),
    /// Data follows the end of the tarball.
    #[error("the tarball has data after its end; collect the dump again")]
    TrailingData,
    /// Tarball has more files or more data than a dump can have.
    #[error(
        "the tarball is larger than a dump: more than {MAX_FILES} files, a file above {} MiB, or \
         more than {} MiB in total",
        MAX_BYTES >> 20,
        MAX_UNPACKED >> 20
    )]
    TooLarge,
    /// File of a dump is a link.
    #[error(
        "{path} in the tarball is a link to {to}, and links are not followed; pack the file itself \
         with `tar -h`"
    )]
    Link {
        /// Path of the link.
        path: String,
        /// Target of the link.
        to: String,
    },
    /// File of a dump is a device, a pipe, or a sparse file.
    #[error("{path} in the tarball is {what}; pack a regular file")]
    NotPlain {
        /// Path of the file.
        path: String,
        /// Kind of the file.
        what: &'static str,
    },
    /// Tarball contains a file of a dump twice.
    #[error("{0} occurs twice in the tarball, so its content is ambiguous; collect the dump again")]
    Duplicate(String),
    /// Decompression or reading failed.
    #[error("cannot read the tarball: {0}")]
    Io(#[from] io::Error),
}

/// Block size of a tarball in bytes (POSIX.1-1988, `ustar`).
const BLOCK: u64 = 512;

/// Whether a file with these first bytes is a tarball.
#[must_use]
pub fn is_tarball(begins: &[u8]) -> bool {
    begins.starts_with(b"\x1f\x8b") || begins.get(257..262) == Some(b"ustar")
}

/// Returns the plain files in a tarball whose paths are `wanted`, in their order, and the paths of
/// the other files.
///
/// # Errors
///
/// Returns a [`TarballError`] if the tarball is truncated, invalid, ambiguous or too large, or if a
/// wanted file is not plain.
pub fn read_files(
    bytes: &[u8],
    is_wanted: impl Fn(&str) -> bool,
) -> Result<(Vec<TarballFile>, Vec<String>), TarballError> {
    if bytes.starts_with(b"\x1f\x8b") {
        // Concatenated gzip files are a gzip file with several members (RFC 1952, 2.2).
        read(GzipMembers(GzDecoder::new(bytes)), is_wanted)
    } else {
        read(bytes, is_wanted)
    }
}

/// Reader of all members of a gzip file, one after the other.
struct GzipMembers<'b>(GzDecoder<&'b [u8]>);

impl Read for GzipMembers<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.0.read(into)?;
            let rest = *self.0.get_ref();
            if read > 0 || into.is_empty() || rest.is_empty() {
                return Ok(read);
            }
            if !rest.starts_with(b"\x1f\x8b") {
                return Err(io::Error::other(TarballError::TrailingData));
            }
            self.0 = GzDecoder::new(rest);
        }
    }
}

/// Reader of a limited number of bytes, with the state of the stream.
struct LimitedReader<R> {
    from: R,
    remaining: usize,
    state: Rc<Cell<State>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    Ended,
    TooLarge,
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let max_length = into.len().min(self.remaining + 1);
        let read = self.from.read(&mut into[..max_length])?;
        if read > self.remaining {
            self.state.set(State::TooLarge);
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.remaining -= read;
        if read == 0 && !into.is_empty() {
            self.state.set(State::Ended);
        }
        Ok(read)
    }
}

fn read(
    from: impl Read,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<(Vec<TarballFile>, Vec<String>), TarballError> {
    let state = Rc::new(Cell::new(State::Reading));
    let mut archive = Archive::new(LimitedReader {
        from,
        remaining: MAX_UNPACKED,
        state: Rc::clone(&state),
    });
    let mut contents = TarballContents::default();
    let entries = archive.entries()?;
    for entry in entries {
        entry
            .and_then(|entry| contents.read_entry(entry, &is_wanted))
            .map_err(|error| contents.convert_error(error, state.get()))??;
    }
    if state.get() == State::Ended {
        // A tarball ends with a block of zeros.
        return Err(TarballError::CutOff(contents.last_path));
    }
    // The remaining bytes are padding, and the checksum of the compressed data.
    let mut rest = archive.into_inner();
    let mut block = [0; 8192];
    loop {
        match rest.read(&mut block) {
            Ok(0) => return Ok((contents.files, contents.others)),
            Ok(read) if block[..read].iter().all(|byte| *byte == 0) => {}
            Ok(_) => return Err(TarballError::TrailingData),
            Err(error) => return Err(contents.convert_error(error, state.get())),
        }
    }
}

/// Content of a tarball that was read so far.
struct TarballContents {
    files: Vec<TarballFile>,
    others: Vec<String>,
    /// Path of the entry that was started last.
    last_path: String,
    /// Offset of the byte after that entry.
    end: u64,
}

impl Default for TarballContents {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            others: Vec::new(),
            last_path: "the first header".to_owned(),
            end: 0,
        }
    }
}

impl TarballContents {
    /// Reads an entry. The outer error is an error of the stream.
    fn read_entry(
        &mut self,
        mut entry: Entry<'_, impl Read>,
        wanted: impl Fn(&str) -> bool,
    ) -> io::Result<Result<(), TarballError>> {
        let path = display_path(&entry.path_bytes());
        self.last_path.clone_from(&path);
        let size = entry.size();
        let file = entry.raw_file_position();
        self.end = size
            .checked_next_multiple_of(BLOCK)
            .and_then(|padded| padded.checked_add(file))
            .unwrap_or(file);
        let max_bytes = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
        if size > max_bytes {
            return Ok(Err(TarballError::TooLarge));
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
                    let to = to.map(|to| display_path(&to)).unwrap_or_default();
                    Err(TarballError::Link { path, to })
                }
                EntryType::Directory | EntryType::XGlobalHeader => Ok(()),
                // These headers describe the next file, but in a mix of formats the `tar` crate
                // does not apply them.
                EntryType::XHeader | EntryType::GNULongName | EntryType::GNULongLink => {
                    Err(TarballError::Ambiguous(path))
                }
                _ if is_wanted => Err(not_plain(path, kind)),
                _ => Ok(()),
            });
        }
        if self.files.len() + self.others.len() == MAX_FILES {
            return Ok(Err(TarballError::TooLarge));
        }
        if !is_wanted {
            self.others.push(path);
            return Ok(Ok(()));
        }
        // GNU tar packs sparse files in its own format: the data after the headers is not the file.
        if has_holes {
            return Ok(Err(not_plain(path, EntryType::GNUSparse)));
        }
        if self
            .files
            .iter()
            .any(|known| path_components(&known.path).eq(path_components(&path)))
        {
            return Ok(Err(TarballError::Duplicate(path)));
        }
        let mut bytes = Vec::new();
        entry.take(max_bytes).read_to_end(&mut bytes)?;
        if u64::try_from(bytes.len()) != Ok(size) {
            return Ok(Err(TarballError::CutOff(path)));
        }
        self.files.push(TarballFile { path, bytes });
        Ok(Ok(()))
    }

    /// Converts an error of the stream or of its headers.
    fn convert_error(&self, error: io::Error, state: State) -> TarballError {
        let error = match error.downcast() {
            Ok(tarball_error) => return tarball_error,
            Err(error) => error,
        };
        match error.kind() {
            _ if state == State::TooLarge => TarballError::TooLarge,
            io::ErrorKind::UnexpectedEof => TarballError::CutOff(self.last_path.clone()),
            // The stream ended within a header.
            _ if state == State::Ended => TarballError::CutOff(self.last_path.clone()),
            io::ErrorKind::Other => TarballError::NotTarball(self.end),
            _ => TarballError::Io(error),
        }
    }
}

fn not_plain(path: String, kind: EntryType) -> TarballError {
    let description = match kind {
        EntryType::Fifo => "a named pipe",
        EntryType::Char | EntryType::Block => "a device",
        EntryType::GNUSparse => "a sparse file",
        _ => "of an unsupported file type",
    };
    TarballError::NotPlain {
        path,
        what: description,
    }
}

/// Whether pax headers declare a sparse file. `None` if the headers are ambiguous: a record has a
/// wrong length or occurs twice. To the `tar` crate, a record with a line end in its value has a
/// wrong length.
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

/// Returns a path for display. The creator of the tarball controls the path.
fn display_path(bytes: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(bytes)).into_owned()
}

/// Returns the components that identify a path.
fn path_components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !["", "."].contains(part))
}

#[cfg(test)]
mod tests;
