//! Reads files in archives: tarballs, zip archives and compressed files, also inside each other.
//! Nothing is written to the disk, and all sizes are limited.

mod budget;
mod packing;
mod tarball;
mod watched;
mod zipped;

use std::io::{self, Read};
use std::rc::Rc;

use svclab_diagnostic::printable::one_line;
use svclab_ruleset::Family;
use svclab_ruleset::text::limits::{MAX_BYTES, MAX_ENTRIES, MAX_FILES, MAX_STREAM, MAX_UNPACKED};
use svclab_ruleset::tool::Format;

pub use budget::Limits;
use budget::{Budget, Metered};
use packing::Packing;
use watched::{State, Watched};

/// Number of first bytes of a file that show its kind.
const HEAD: u64 = 64 << 10;

/// Maximum number of archives and compressions around a file.
const MAX_DEPTH: usize = 8;

/// File in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveFile {
    /// Path in the archive, after the path of the archive and a colon. It serves only as a name: no
    /// file is written to this path.
    pub path: String,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// File in an archive whose content is not needed or cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedFile {
    /// Path in the archive, after the path of the archive and a colon.
    pub path: String,
    /// Reason, and the possible effect of skipping the file.
    pub skipped: Skipped,
}

/// Suffixes of archives, which may contain any files.
const ARCHIVE_SUFFIXES: [&str; 10] = [
    "tar", "tgz", "txz", "tbz", "tbz2", "tzst", "zip", "7z", "rar", "cpio",
];

/// Suffixes of compressed files.
const COMPRESSION_SUFFIXES: [&str; 8] = ["gz", "bz2", "xz", "zst", "lz", "lz4", "lzma", "Z"];

/// Reason for skipping a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skipped {
    /// Reason: such as "svclab does not read output of conntrack -L".
    pub reason: String,
    /// Possible effect on results. Empty if the file contains no state of the kernel.
    pub affects: String,
    /// Formats whose output has the same state. If the dump has one of them, there is no effect.
    pub same_as: &'static [Format],
    /// Format and only family of output that lacks the other family. If the dump has such output of
    /// the other family, too, there is no effect.
    pub only: Option<(Format, Family)>,
    /// Whether content without a known effect may be state of the node, so that a comparison without
    /// it is not complete.
    pub is_uncompared: bool,
}

impl Skipped {
    /// Creates a reason for a file without state of the kernel.
    #[must_use]
    pub fn without_effect(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            affects: String::new(),
            same_as: &[],
            only: None,
            is_uncompared: false,
        }
    }

    /// Creates a reason for content that may be state of the node, but whose effect is not known.
    #[must_use]
    pub fn uncompared(reason: impl Into<String>) -> Self {
        Self {
            is_uncompared: true,
            ..Self::without_effect(reason)
        }
    }

    /// Creates a reason for a file that cannot be read. Files with the name of output, and archives,
    /// may contain state of the kernel.
    #[must_use]
    pub fn unreadable(path: &str, reason: impl Into<String>) -> Self {
        let mut name = path.rsplit(['/', ':']).next().unwrap_or(path);
        let mut is_archive = false;
        while let Some((stem, suffix)) = name.rsplit_once('.') {
            is_archive |= ARCHIVE_SUFFIXES.contains(&suffix);
            if !is_archive && !COMPRESSION_SUFFIXES.contains(&suffix) {
                break;
            }
            name = stem;
        }
        if is_archive || Format::from_file_name(name).is_some() {
            Self::with_effect(reason, "state of the node in it is not known")
        } else {
            Self {
                is_uncompared: !crate::silent::is_silent_file(name),
                ..Self::without_effect(reason)
            }
        }
    }

    /// Creates a reason for output of which the dump has no other copy.
    #[must_use]
    pub fn with_effect(reason: impl Into<String>, affects: impl Into<String>) -> Self {
        Self {
            affects: affects.into(),
            ..Self::without_effect(reason)
        }
    }
}

/// Files of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// Selected files, in their order.
    pub files: Vec<ArchiveFile>,
    /// Other files, in their order.
    pub skipped: Vec<SkippedFile>,
    /// Whether the file is an archive with files, and not a single file.
    pub is_archive: bool,
}

/// Error of reading an archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Archive is truncated.
    #[error("the archive is truncated within {0}; collect the dump again")]
    CutOff(String),
    /// Data is not a tarball: a header is invalid.
    #[error("not a tarball: no file header follows byte {0}")]
    NotTarball(u64),
    /// Headers of a file are ambiguous.
    #[error("the headers of {0} in the archive are ambiguous; collect the dump again")]
    Ambiguous(String),
    /// Data follows the end of the archive.
    #[error("the archive has data after its end; collect the dump again")]
    TrailingData,
    /// Archive has more files or more data than a dump can have.
    #[error(
        "the archive is larger than a dump: more than {MAX_ENTRIES} files or {} GiB, or more than \
         {MAX_FILES} files of a dump or {} MiB of them",
        MAX_STREAM >> 30,
        MAX_UNPACKED >> 20
    )]
    TooLarge,
    /// File of a dump is larger than [`MAX_BYTES`].
    #[error("{path} is larger than {} MiB, the maximum size of a dump file", MAX_BYTES >> 20)]
    LargeFile {
        /// Path of the file.
        path: String,
    },
    /// File of a dump is a link.
    #[error(
        "{path} in the archive is a link to {to}, and links are not followed; pack the file itself \
         with `tar -h`"
    )]
    Link {
        /// Path of the link.
        path: String,
        /// Target of the link.
        to: String,
    },
    /// File of a dump is a device, a pipe, or a sparse file.
    #[error("{path} in the archive is {what}; pack a regular file")]
    NotPlain {
        /// Path of the file.
        path: String,
        /// Kind of the file.
        what: &'static str,
    },
    /// Archive contains a file of a dump twice.
    #[error("{0} occurs twice in the archive, so its content is ambiguous; collect the dump again")]
    Duplicate(String),
    /// Decompression or reading failed.
    #[error("cannot read the archive: {0}")]
    Io(#[from] io::Error),
}

/// Function that decides from the path and the first bytes of a file whether its content is needed.
pub type Select<'s> = dyn Fn(&str, &[u8]) -> Result<(), Skipped> + 's;

/// Returns the files in an archive that `select` accepts, and the paths of the other files. A file
/// that is neither an archive nor compressed is a single file, which `select` does not see.
///
/// # Errors
///
/// Returns an [`ArchiveError`] if the archive is truncated, invalid, ambiguous or too large, or if a
/// file of a dump is not plain.
pub fn read_files(
    name: &str,
    input: &mut dyn Read,
    select: &Select<'_>,
) -> Result<Contents, ArchiveError> {
    read_limited(name, input, select, &Limits::default(), false)
}

/// Reads a file of a directory like [`read_files`], but lets `select` decide about a single file.
/// A damaged archive is skipped.
///
/// # Errors
///
/// Returns an [`ArchiveError`] like [`read_files`].
pub fn read_entry(
    name: &str,
    input: &mut dyn Read,
    select: &Select<'_>,
) -> Result<Contents, ArchiveError> {
    read_limited(name, input, select, &Limits::default(), true)
}

fn read_limited(
    name: &str,
    input: &mut dyn Read,
    select: &Select<'_>,
    limits: &Limits,
    is_entry: bool,
) -> Result<Contents, ArchiveError> {
    let mut reader = ArchiveReader {
        select,
        budget: Budget::new(limits),
        contents: Contents::default(),
    };
    let mut metered = Metered::new(input, &reader.budget);
    let place = Place {
        path: name.to_owned(),
        depth: 0,
        is_entry,
    };
    match reader.read_stream(&place, &mut metered) {
        Ok(()) => Ok(reader.contents),
        Err(_) if reader.budget.is_exceeded() => Err(ArchiveError::TooLarge),
        Err(error) => Err(error),
    }
}

/// Reader of an archive and of the archives inside it.
struct ArchiveReader<'s> {
    select: &'s Select<'s>,
    budget: Budget,
    contents: Contents,
}

/// File that is being read.
struct Place {
    /// Path for display.
    path: String,
    /// Number of archives and compressions around the file.
    depth: usize,
    /// Whether the file is an entry of an archive. Otherwise the user named the file.
    is_entry: bool,
}

impl Place {
    fn unpacked(&self) -> Self {
        Self {
            path: self.path.clone(),
            depth: self.depth + 1,
            is_entry: self.is_entry,
        }
    }

    fn entry(&self, path: &str) -> Self {
        Self {
            path: format!("{}:{path}", self.path),
            depth: self.depth + 1,
            is_entry: true,
        }
    }
}

impl ArchiveReader<'_> {
    /// Reads a file, which may be an archive or compressed.
    fn read_stream(&mut self, place: &Place, input: &mut dyn Read) -> Result<(), ArchiveError> {
        let mut head = Vec::new();
        // A reader that fails after some bytes fails again when these bytes are read.
        let mut failed = input.take(HEAD).read_to_end(&mut head).err().map(Failing);
        let input: &mut dyn Read = match &mut failed {
            Some(failing) => failing,
            None => input,
        };
        let Some(packing) = Packing::detect(&head) else {
            return self.read_plain(place, head, input);
        };
        if place.depth >= MAX_DEPTH {
            self.skip(&place.path, "too many archives are inside each other");
            return Ok(());
        }
        let mut whole = head.as_slice().chain(input);
        match packing {
            Packing::Tar => {
                self.contents.is_archive = true;
                self.read_tarball(place, &mut whole)
            }
            Packing::Zip => {
                self.contents.is_archive = true;
                self.read_zip(place, &mut whole)
            }
            Packing::Compressed(compression) => {
                let state = Rc::default();
                let mut watched = Watched::new(&mut whole, &state);
                let decoder = compression.decoder(&mut watched);
                let unpacked = decoder.map_err(ArchiveError::Io).and_then(|decoder| {
                    let mut metered = Metered::new(decoder, &self.budget);
                    self.read_stream(&place.unpacked(), &mut metered)
                });
                unpacked.map_err(|error| match error {
                    ArchiveError::Io(error) => decoder_error(error, &place.path, state.get()),
                    other => other,
                })
            }
        }
    }

    /// Reads a file that is no archive.
    fn read_plain(
        &mut self,
        place: &Place,
        head: Vec<u8>,
        input: &mut dyn Read,
    ) -> Result<(), ArchiveError> {
        if place.is_entry
            && let Err(skipped) = (self.select)(&place.path, &head)
        {
            self.contents.skipped.push(SkippedFile {
                path: place.path.clone(),
                skipped,
            });
            return Ok(());
        }
        let mut bytes = head;
        let limit = u64::try_from(MAX_BYTES + 1).unwrap_or(u64::MAX);
        let rest = limit.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        input.take(rest).read_to_end(&mut bytes)?;
        if bytes.len() > MAX_BYTES {
            return Err(ArchiveError::LargeFile {
                path: place.path.clone(),
            });
        }
        self.budget.add_file(bytes.len())?;
        self.contents.files.push(ArchiveFile {
            path: place.path.clone(),
            bytes,
        });
        Ok(())
    }

    fn skip(&mut self, path: &str, reason: impl Into<String>) {
        self.contents.skipped.push(SkippedFile {
            path: path.to_owned(),
            skipped: Skipped::unreadable(path, reason),
        });
    }
}

/// Reader that returns an error.
struct Failing(io::Error);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        let kind = self.0.kind();
        Err(std::mem::replace(&mut self.0, kind.into()))
    }
}

/// Returns the error of a compressed file. If a decoder needs more data at the end of its input, the
/// file is truncated.
fn decoder_error(error: io::Error, path: &str, input: State) -> ArchiveError {
    match error.downcast() {
        Ok(archive_error) => archive_error,
        Err(_) if input == State::Ended => ArchiveError::CutOff(path.to_owned()),
        Err(error) => ArchiveError::Io(error),
    }
}

/// Returns a path for display. The creator of the archive controls the path.
fn display_path(bytes: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(bytes)).into_owned()
}

/// Returns the components that identify a path.
fn path_components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !["", "."].contains(part))
}

#[cfg(test)]
mod tests;
