//! Finds and reads the files of a dump.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::node::{File, NodeDump, ParsedDump};
use super::tarball::{self, TarballError};
use svclab_diagnostic::files::{FileError, Location};
use svclab_diagnostic::printable::one_line;
use svclab_ruleset::text::limits::{MAX_BYTES, MAX_FILES};
use svclab_ruleset::tool::Format;

/// Files of a dump, and other files next to them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DumpFiles {
    /// Files with the output of known programs.
    pub files: Vec<File>,
    /// Names of files in the directory or tarball that belong to no known program.
    pub unknown_files: Vec<String>,
    /// Targets of symbolic links, by the names of the links.
    link_targets: BTreeMap<String, PathBuf>,
}

/// Error of finding or reading the files of a dump.
#[derive(Debug, Error)]
pub enum DumpFilesError {
    /// Path does not exist.
    #[error("{0}: no such file or directory")]
    Missing(String),
    /// Directory contains no file with a known name.
    #[error(
        "{0}: the directory contains no dump file; expected file names such as iptables-save, \
         ipset-save, nft, ipvsadm-Sn, ip-addr, ip-route, ip-rule, sysctl-a"
    )]
    NoKnownFile(String),
    /// Tarball contains no file with a known name.
    #[error("{0}: the tarball contains no dump file; create a tarball with `scripts/collect-node`")]
    NoKnownFileInTarball(String),
    /// Location contains files of several dumps.
    #[error(
        "{name}: contains files of several dumps, with the prefixes {}; {remedy}",
        begin.join(" and ")
    )]
    SeveralDumps {
        /// Path of the directory or the tarball.
        name: String,
        /// Name prefixes of two of the dumps.
        begin: Vec<String>,
        /// Remedy for the user.
        remedy: &'static str,
    },
    /// Directory has more files than [`MAX_FILES`].
    #[error("{0}: more than {MAX_FILES} files; put the dump in a separate directory")]
    TooManyFiles(String),
    /// File is larger than [`MAX_BYTES`].
    #[error("{name}: larger than {} MiB, the maximum size of a dump file", MAX_BYTES >> 20)]
    TooLarge {
        /// Path of the file.
        name: String,
    },
    /// Tarball is invalid.
    #[error("{name}: {source}")]
    Tarball {
        /// Path of the tarball.
        name: String,
        /// Defect of the tarball.
        source: TarballError,
    },
    /// File is compressed or an archive.
    #[error("{name}: the file is {what}; unpack it first, or specify a tarball")]
    Packed {
        /// Path of the file.
        name: String,
        /// Kind of the file: "compressed with gzip".
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

/// Further files of `scripts/collect-node`, for human readers.
const INFORMATIONAL_FILES: [&str; 9] = [
    "versions.txt",
    "missing.txt",
    "ip-neigh",
    "bridge-fdb",
    "bridge-link",
    "conntrack-S",
    "netstat",
    "snmp",
    "proc-ip_vs",
];

/// First bytes of an ELF file (System V ABI, "ELF Identification").
const ELF_SIGNATURE: &[u8] = b"\x7fELF";

/// First bytes of compressed files and archives, with the kind of file.
const PACKED_SIGNATURES: [(&[u8], &str); 5] = [
    (b"\x1f\x8b", "compressed with gzip"),
    (b"\xfd7zXZ", "compressed with xz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"BZh", "compressed with bzip2"),
    (b"PK\x03\x04", "a zip archive"),
];

impl DumpFiles {
    /// Reads a file, the files of a directory that have known names, or the files whose names begin
    /// with `path` and a dot.
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
                let folder = Self::from_locations(entries(location, "")?)?;
                if folder.files.is_empty() {
                    return Err(DumpFilesError::NoKnownFile(name));
                }
                folder.require_single_dump(name, "specify one of these prefixes as the dump")
            }
            Ok(opened) => {
                let (bytes, linked_to) = opened.read(MAX_BYTES).map_err(io_error(&name))?;
                if tarball::is_tarball(&bytes) {
                    return Self::from_tarball(&name, &bytes);
                }
                let mut folder = Self::default();
                folder.add(name, bytes, linked_to)?;
                Ok(folder)
            }
            Err(error) if error.is_missing() => {
                let folder = Self::read_with_prefix(location)?;
                if folder.files.is_empty() {
                    return Err(DumpFilesError::Missing(name));
                }
                folder.require_single_dump(name, "specify one of these prefixes as the dump")
            }
            Err(source) => Err(DumpFilesError::Io { name, source }),
        }
    }

    /// Parses the files and collects diagnostics. Diagnostics show no text of files that were
    /// reached through symbolic links.
    #[must_use]
    pub fn parse(self) -> ParsedDump {
        let mut read = NodeDump::parse(self.files);
        if !self.link_targets.is_empty() {
            read.redact(&self.link_targets);
        }
        read
    }

    fn read_with_prefix(location: &Location) -> Result<Self, DumpFilesError> {
        let prefix = location.file_name().and_then(|name| name.to_str());
        let (Some(begins), Some(folder)) = (prefix, location.parent()) else {
            return Ok(Self::default());
        };
        match folder.open() {
            Ok(opened) if opened.is_directory() => {
                Self::from_locations(entries(&folder, &format!("{begins}."))?)
            }
            _ => Ok(Self::default()),
        }
    }

    fn add(
        &mut self,
        name: String,
        bytes: Vec<u8>,
        linked_to: Option<PathBuf>,
    ) -> Result<(), DumpFilesError> {
        let linked_to = linked_to.map(|file| (name.clone(), file));
        self.link_targets.extend(linked_to);
        self.files.push(file(name, bytes)?);
        Ok(())
    }

    fn from_tarball(name: &str, packed: &[u8]) -> Result<Self, DumpFilesError> {
        let owned_name = || name.to_owned();
        let is_dump_file = |path: &str| Format::from_file_name(file_name(path)).is_some();
        let (files, others) =
            tarball::read_files(packed, is_dump_file).map_err(|source| match source {
                // The file is a single compressed file, not a tarball.
                TarballError::NotTarball(0) if packed.starts_with(PACKED_SIGNATURES[0].0) => {
                    DumpFilesError::Packed {
                        name: owned_name(),
                        what: PACKED_SIGNATURES[0].1,
                    }
                }
                source => DumpFilesError::Tarball {
                    name: owned_name(),
                    source,
                },
            })?;
        let mut folder = Self::default();
        for packed in files {
            folder
                .files
                .push(file(format!("{name}:{}", packed.path), packed.bytes)?);
        }
        let others = others.into_iter();
        let unknown = others.filter(|path| !INFORMATIONAL_FILES.contains(&file_name(path)));
        folder.unknown_files = unknown.map(|path| format!("{name}:{path}")).collect();
        if folder.files.is_empty() {
            return Err(DumpFilesError::NoKnownFileInTarball(name.to_owned()));
        }
        folder.require_single_dump(
            owned_name(),
            "unpack the tarball and specify one of its directories",
        )
    }

    /// Returns the folder unless it contains files of several dumps. With files of two nodes, rules
    /// of one node could be combined with addresses of the other.
    fn require_single_dump(
        self,
        name: String,
        remedy: &'static str,
    ) -> Result<Self, DumpFilesError> {
        let mut prefixes: Vec<&str> = self
            .files
            .iter()
            .map(|file| dump_prefix(&file.name))
            .collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        if prefixes.len() < 2 {
            return Ok(self);
        }
        let begin = prefixes.into_iter().take(2).map(str::to_owned).collect();
        Err(DumpFilesError::SeveralDumps {
            name,
            begin,
            remedy,
        })
    }

    fn from_locations(locations: Vec<Location>) -> Result<Self, DumpFilesError> {
        let mut folder = Self::default();
        for location in locations {
            let name = location.file_name().unwrap_or_default().to_string_lossy();
            let is_known = Format::from_file_name(&name).is_some();
            let opened = is_known.then(|| location.open());
            match opened {
                Some(Ok(opened)) if !opened.is_directory() => {
                    let name = display_path(&location);
                    let (bytes, linked_to) = opened.read(MAX_BYTES).map_err(io_error(&name))?;
                    folder.add(name, bytes, linked_to)?;
                }
                Some(Err(source)) => return Err(io_error(&display_path(&location))(source)),
                _ if INFORMATIONAL_FILES.contains(&&*name) => {}
                _ => folder.unknown_files.push(display_path(&location)),
            }
        }
        Ok(folder)
    }
}

/// Returns a path in the form for messages.
fn display_path(location: &Location) -> String {
    one_line(&location.display_path().to_string_lossy()).into_owned()
}

fn io_error(name: &str) -> impl FnOnce(FileError) -> DumpFilesError + use<> {
    let name = name.to_owned();
    move |source| DumpFilesError::Io { name, source }
}

/// Returns the last component of a path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Returns the part of a file name before the name of the program.
fn dump_prefix(path: &str) -> &str {
    let name = path.strip_suffix(".txt").unwrap_or(path);
    let format = file_name(name).rsplit('.').next().unwrap_or_default();
    name.strip_suffix(format)
        .unwrap_or(name)
        .trim_end_matches(['.', '/'])
}

/// Lists the entries of a directory whose names begin with `begins`, sorted by name.
fn entries(folder: &Location, prefix: &str) -> Result<Vec<Location>, DumpFilesError> {
    let name = display_path(folder);
    let mut names = Vec::new();
    for entry in folder.list().map_err(io_error(&name))? {
        let entry = entry.map_err(|error| io_error(&name)(error.into()))?;
        if entry.to_string_lossy().starts_with(prefix) {
            names.push(entry);
            if names.len() > MAX_FILES {
                return Err(DumpFilesError::TooManyFiles(name));
            }
        }
    }
    names.sort();
    Ok(names.iter().map(|name| folder.child(name)).collect())
}

/// Creates a file of a dump from its content.
fn file(name: String, bytes: Vec<u8>) -> Result<File, DumpFilesError> {
    if let Some((_, kind)) = PACKED_SIGNATURES
        .iter()
        .find(|(signature, _)| bytes.starts_with(signature))
    {
        return Err(DumpFilesError::Packed { name, what: kind });
    }
    if bytes.starts_with(ELF_SIGNATURE) {
        return Err(DumpFilesError::Executable(name));
    }
    if bytes.len() > MAX_BYTES {
        return Err(DumpFilesError::TooLarge { name });
    }
    // Windows programs begin a text with a byte order mark.
    let bytes = match bytes.strip_prefix(b"\xef\xbb\xbf") {
        Some(rest) => rest.to_vec(),
        None => bytes,
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid_length = error.utf8_error().valid_up_to();
        let newlines = error.as_bytes()[..valid_length]
            .iter()
            .filter(|b| **b == b'\n');
        DumpFilesError::NotUtf8 {
            name: name.clone(),
            line: newlines.count() + 1,
        }
    })?;
    let format = Format::from_file_name(name.rsplit('/').next().unwrap_or_default());
    Ok(File { name, format, text })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read_error(path: &Path, folder: &Path) -> String {
        let error = DumpFiles::read(path).unwrap_err().to_string();
        error.replace(&format!("{}/", folder.display()), "")
    }

    #[test]
    fn dump_files_unreadable_returns_error() {
        let folder = tempfile::tempdir().unwrap();
        let write_file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let mut messages = vec![read_error(&folder.path().join("a"), folder.path())];
        let empty = folder.path().join("empty");
        fs::create_dir(&empty).unwrap();
        messages.push(read_error(&empty, folder.path()));
        for (name, bytes) in [
            ("a.gz", &b"\x1f\x8b\x08"[..]),
            ("a.tar.xz", b"\xfd7zXZ\0"),
            ("nft", b"\x7fELF\x02\x01"),
            ("iptables-save", b"*nat\n\xff\n"),
        ] {
            messages.push(read_error(&write_file(name, bytes), folder.path()));
        }
        let large = write_file("large", b"");
        let file = fs::OpenOptions::new().write(true).open(&large).unwrap();
        file.set_len(u64::try_from(MAX_BYTES).unwrap() + 1).unwrap();
        messages.push(read_error(&large, folder.path()));
        let many = folder.path().join("many");
        fs::create_dir(&many).unwrap();
        for n in 0..=MAX_FILES {
            fs::write(many.join(n.to_string()), "").unwrap();
        }
        messages.push(read_error(&many, folder.path()));
        insta::assert_snapshot!(messages.join("\n"));
    }

    #[test]
    fn dump_files_directory_file_and_prefix_are_read() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.iptables-save", "a.ip-addr.txt", "notes"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let count = |path: &Path| {
            let folder = DumpFiles::read(path).unwrap();
            (folder.files.len(), folder.unknown_files.len())
        };
        assert_eq!(count(folder.path()), (2, 1));
        assert_eq!(count(&folder.path().join("a")), (2, 0));
        assert_eq!(count(&folder.path().join("notes")), (1, 0));
        fs::write(folder.path().join("b.ip-route"), "").unwrap();
        assert_eq!(count(&folder.path().join("a")), (2, 0));
        insta::assert_snapshot!(
            read_error(folder.path(), folder.path())
                .replace(&folder.path().display().to_string(), "DIR")
        );
    }
}
