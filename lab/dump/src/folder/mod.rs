//! Finds and reads the files of a dump: in a directory, in an archive, or a single file.

mod gaps;
mod missing;
mod parts;
mod tree;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::archive::{self, ArchiveError, ArchiveFile, SkippedFile};
use super::gap::Gap;
use super::node::{File, NodeDump, ParsedDump};
use svclab_diagnostic::files::{FileError, Location, OpenedPath};
use svclab_diagnostic::printable::one_line;
use svclab_ruleset::text::limits::{MAX_BYTES, MAX_ENTRIES};

/// Files of a dump, and other files next to them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DumpFiles {
    /// Files with the output of known programs.
    pub files: Vec<File>,
    /// Files of the directory or archive that are not read.
    pub gaps: Vec<Gap>,
    /// Whether the dump is one file with the output of one program, not a directory or archive.
    pub is_single_output: bool,
    /// Targets of symbolic links, by the names of the links.
    link_targets: BTreeMap<String, PathBuf>,
}

/// Maximum number of unread files in an error.
const MAX_SHOWN_GAPS: usize = 5;

/// Error of finding or reading the files of a dump.
#[derive(Debug, Error)]
pub enum DumpFilesError {
    /// Path does not exist.
    #[error("{0}: no such file or directory")]
    Missing(String),
    /// Directory or archive contains no output of a known program.
    #[error(
        "{name}: no file contains output of a supported program, such as iptables-save, ipset \
         save, nft list ruleset, ipvsadm -Sn, ip addr, ip route, ip rule or sysctl -a{}",
        list_gaps(gaps)
    )]
    NoKnownFile {
        /// Path of the directory or the archive.
        name: String,
        /// Files that are not read.
        gaps: Vec<Gap>,
    },
    /// Location contains files of several dumps.
    #[error(
        "{name}: contains files of several dumps, with the prefixes {}; {remedy}",
        begin.join(" and ")
    )]
    SeveralDumps {
        /// Path of the directory or the archive.
        name: String,
        /// Name prefixes of two of the dumps.
        begin: Vec<String>,
        /// Remedy for the user.
        remedy: &'static str,
    },
    /// Directory has more entries than [`MAX_ENTRIES`].
    #[error("{0}: more than {MAX_ENTRIES} files; put the dump in a separate directory")]
    TooManyFiles(String),
    /// Directory has more data than a dump can have.
    #[error("{0}: larger than a dump; put the dump in a separate directory")]
    TooMuchData(String),
    /// File is larger than [`MAX_BYTES`].
    #[error("{name}: larger than {} MiB, the maximum size of a dump file", MAX_BYTES >> 20)]
    TooLarge {
        /// Path of the file.
        name: String,
    },
    /// Archive is invalid.
    #[error("{name}: {source}")]
    Archive {
        /// Path of the archive.
        name: String,
        /// Defect of the archive.
        source: ArchiveError,
    },
    /// Prompts in a file name several hosts.
    #[error("{name}: contains outputs of several hosts: {}; split the file", hosts.join(", "))]
    SeveralHosts {
        /// Path of the file.
        name: String,
        /// Names of the hosts.
        hosts: Vec<String>,
    },
    /// File is compressed with an unsupported program.
    #[error("{name}: the file is {what}; unpack it first")]
    Packed {
        /// Path of the file.
        name: String,
        /// Kind of the file: "compressed with bzip2".
        what: &'static str,
    },
    /// File is a program.
    #[error("{0}: the file is an ELF executable; specify a file with the output of a program")]
    Executable(String),
    /// File is not UTF-8 text.
    #[error("{name}: line {line} is not UTF-8, so no supported program printed it")]
    NotUtf8 {
        /// Path of the file.
        name: String,
        /// First line that is not UTF-8, from 1.
        line: usize,
    },
    /// Path is not a regular file, is outside the permitted location, or cannot be read.
    #[error("cannot read {name}: {source}")]
    Io {
        /// Path as given.
        name: String,
        /// Error of the operating system.
        source: FileError,
    },
}

/// Lists the first gaps, each in a line of its own.
fn list_gaps(gaps: &[Gap]) -> String {
    let shown = gaps.iter().take(MAX_SHOWN_GAPS).map(Gap::describe);
    let lines: Vec<String> = std::iter::once(String::new()).chain(shown).collect();
    lines.join("\n")
}

impl DumpFiles {
    /// Reads a file, the files of a directory or archive that contain output of known programs, the
    /// files in a part of an archive (`ARCHIVE:PREFIX`), or the files whose names begin with `path`
    /// and a dot.
    ///
    /// # Errors
    ///
    /// Returns a [`DumpFilesError`] if no file is found, files of several dumps are found, or a
    /// file is not readable text.
    pub fn read(path: &Path) -> Result<Self, DumpFilesError> {
        Self::read_at(&Location::anywhere(path))
    }

    /// Reads the files like [`DumpFiles::read`], limited to files that the location permits.
    ///
    /// # Errors
    ///
    /// Returns a [`DumpFilesError`] if no file is found, files of several dumps are found, or a
    /// file is not readable text.
    pub fn read_at(location: &Location) -> Result<Self, DumpFilesError> {
        let name = display_path(location);
        match location.open() {
            Ok(opened) if opened.is_directory() => {
                let found = tree::read_directory(location)?;
                Self::from_found(&name, found)?.require_dump(name)
            }
            Ok(opened) => {
                let link_target = opened.link_target.clone();
                let mut reader = opened.into_reader().map_err(io_error(&name))?;
                let mut files = Self::from_reader(&name, &mut reader)?;
                let target = link_target.map(|target| (name, target));
                files.link_targets.extend(target);
                Ok(files)
            }
            Err(error) if error.is_missing() => {
                let found = match open_archive_of(location) {
                    Some((archive, reader)) => read_part(&name, &archive, reader)?,
                    None => tree::read_prefix(location)?,
                };
                let files = Self::from_found(&name, found)?;
                if files.files.is_empty() {
                    return Err(DumpFilesError::Missing(name));
                }
                files.require_dump(name)
            }
            Err(source) => Err(DumpFilesError::Io { name, source }),
        }
    }

    /// Reads a file or an archive.
    ///
    /// # Errors
    ///
    /// Returns a [`DumpFilesError`] like [`DumpFiles::read`].
    pub fn from_reader(name: &str, reader: &mut dyn Read) -> Result<Self, DumpFilesError> {
        let select = tree::select_below(name);
        let contents = archive::read_files(name, reader, &select)
            .map_err(|source| archive_error(name, source))?;
        let found = Found {
            files: contents.files,
            skipped: contents.skipped,
            link_targets: BTreeMap::new(),
        };
        let mut files = Self::from_found(name, found)?;
        files.is_single_output = !contents.is_archive && files.files.len() == 1;
        if contents.is_archive || files.files.is_empty() {
            files.require_dump(name.to_owned())
        } else {
            Ok(files)
        }
    }

    /// Parses the files and collects diagnostics. Diagnostics show no text of files that were
    /// reached through symbolic links.
    #[must_use]
    pub fn parse(self) -> ParsedDump {
        let mut read = NodeDump::parse(self.files);
        read.gaps.extend(self.gaps);
        read.gaps.extend(read.dump.incomplete_rules());
        if !self.link_targets.is_empty() {
            read.redact(&self.link_targets);
        }
        read
    }

    fn from_found(name: &str, found: Found) -> Result<Self, DumpFilesError> {
        let mut files = Vec::new();
        let mut skipped = found.skipped;
        let mut listings = Vec::new();
        for file in found.files {
            let parts = parts::parse_file(file)?;
            files.extend(parts.files);
            skipped.extend(parts.skipped);
            listings.extend(parts.listings);
        }
        parts::assign_backends(&mut files);
        skipped.extend(parts::listing_gaps(&files, listings));
        skipped.extend(parts::missing_legacy_rules(&files));
        skipped.extend(parts::unprinted_tables(&files));
        let gaps = gaps::list_gaps(name, &files, skipped);
        Ok(Self {
            files,
            gaps,
            is_single_output: false,
            link_targets: found.link_targets,
        })
    }

    /// Returns the files if there are any, and if all are of one dump. With files of two nodes,
    /// rules of one node could be combined with addresses of the other.
    fn require_dump(self, name: String) -> Result<Self, DumpFilesError> {
        if self.files.is_empty() {
            let gaps = self.gaps;
            return Err(DumpFilesError::NoKnownFile { name, gaps });
        }
        let mut prefixes: Vec<String> = self
            .files
            .iter()
            .map(|file| parts::dump_prefix(&file.name))
            .collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        if prefixes.len() < 2 {
            return Ok(self);
        }
        prefixes.truncate(2);
        Err(DumpFilesError::SeveralDumps {
            name,
            begin: prefixes,
            remedy: "specify one of these prefixes as the dump",
        })
    }
}

/// Files that were found in a directory or archive.
#[derive(Default)]
struct Found {
    files: Vec<ArchiveFile>,
    skipped: Vec<SkippedFile>,
    link_targets: BTreeMap<String, PathBuf>,
}

/// Whether a path names a part of an archive: `ARCHIVE:PREFIX`.
#[must_use]
pub fn is_archive_part(path: &Path) -> bool {
    !path.exists() && open_archive_of(&Location::anywhere(path)).is_some()
}

/// Opens the archive of a path of the form `ARCHIVE:PREFIX`. Also returns the location of the
/// archive. `None` if there is no such file.
fn open_archive_of(location: &Location) -> Option<(Location, OpenedPath)> {
    let path = location.path().to_str()?;
    path.rmatch_indices(':').find_map(|(index, _)| {
        let archive = location.with_path(&path[..index]);
        let opened = archive
            .open()
            .ok()
            .filter(|opened| !opened.is_directory())?;
        Some((archive, opened))
    })
}

/// Reads the files of an archive whose paths begin with the name of a part.
fn read_part(name: &str, archive: &Location, opened: OpenedPath) -> Result<Found, DumpFilesError> {
    let archive_name = display_path(archive);
    let mut reader = opened.into_reader().map_err(io_error(&archive_name))?;
    let select = tree::select_below(&archive_name);
    let contents = archive::read_files(&archive_name, &mut reader, &select)
        .map_err(|source| archive_error(&archive_name, source))?;
    let is_below = |path: &str| {
        let rest = path.strip_prefix(name.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.starts_with(['/', '.', ':']))
    };
    let mut found = Found {
        files: contents.files,
        skipped: contents.skipped,
        ..Found::default()
    };
    found.files.retain(|file| is_below(&file.path));
    found.skipped.retain(|file| is_below(&file.path));
    Ok(found)
}

/// Returns a path in the form for messages.
fn display_path(location: &Location) -> String {
    one_line(&location.display_path().to_string_lossy()).into_owned()
}

fn io_error(name: &str) -> impl FnOnce(FileError) -> DumpFilesError + use<> {
    let name = name.to_owned();
    move |source| DumpFilesError::Io { name, source }
}

fn archive_error(name: &str, source: ArchiveError) -> DumpFilesError {
    let name = name.to_owned();
    match source {
        ArchiveError::LargeFile { path: name } => DumpFilesError::TooLarge { name },
        source => DumpFilesError::Archive { name, source },
    }
}

#[cfg(test)]
mod tests;
