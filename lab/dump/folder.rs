//! Finding and reading the files of a dump.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::format::Format;
use super::limits::{MAX_BYTES, MAX_FILES};
use super::node::File;
use super::tarball::{self, TarballError};

/// The files of a dump, and what else lies beside them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Folder {
    /// The files.
    pub files: Vec<File>,
    /// Names of what lies in the directory and is of no known program.
    pub others: Vec<String>,
}

/// Why a dump cannot be had.
#[derive(Debug, Error)]
pub enum FolderError {
    /// There is no such file or directory.
    #[error("{0}: there is no such file or directory")]
    Missing(String),
    /// A directory without any file of a known name.
    #[error(
        "{0}: no file in this directory is named as a dump's; expected are names such as iptables-save, ipset-save, nft, ipvsadm-Sn, ip-addr, ip-route, ip-rule, sysctl-a"
    )]
    Nothing(String),
    /// A tarball without any.
    #[error(
        "{0}: no file in this tarball is named as a dump's; `scripts/collect-node` writes such tarballs"
    )]
    Foreign(String),
    /// Files of several dumps.
    #[error(
        "{name}: files of several dumps lie here, and which belong together is not known; they begin with {}: {remedy}",
        begin.join(" and with ")
    )]
    Several {
        /// The directory or the tarball.
        name: String,
        /// What files begin with, of two of the dumps.
        begin: Vec<String>,
        /// What to do.
        remedy: &'static str,
    },
    /// More than [`MAX_FILES`].
    #[error("{0}: more than {MAX_FILES} files; a dump is a directory of its own")]
    Many(String),
    /// Larger than [`MAX_BYTES`].
    #[error("{name}: larger than {} MiB, the most that svclab reads of one file", MAX_BYTES >> 20)]
    Large {
        /// The file.
        name: String,
    },
    /// A tarball that cannot be read.
    #[error("{name}: {source}")]
    Tarball {
        /// The file.
        name: String,
        /// What is wrong with it.
        source: TarballError,
    },
    /// Compressed or packed.
    #[error("{name}: this is {what}; unpack it first, or name a tarball")]
    Packed {
        /// The file.
        name: String,
        /// What it is: "compressed by gzip".
        what: &'static str,
    },
    /// Not text.
    #[error("{name}: line {line} is not UTF-8; no program prints that")]
    NotUtf8 {
        /// The file.
        name: String,
        /// The first line that is not UTF-8, from 1.
        line: usize,
    },
    /// The operating system refused.
    #[error("{name}: cannot be read: {source}")]
    Io {
        /// The path as given.
        name: String,
        /// What the operating system said.
        source: io::Error,
    },
}

/// What `scripts/collect-node` writes besides, for people.
const BESIDE: [&str; 9] = [
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

/// How files begin that are no text.
const PACKED: [(&[u8], &str); 6] = [
    (b"\x1f\x8b", "compressed by gzip"),
    (b"\xfd7zXZ", "compressed by xz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"BZh", "compressed by bzip2"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x7fELF", "a program"),
];

impl Folder {
    /// Reads a file, the files of a directory whose names say what they hold, or
    /// the files whose names begin with `path` and a dot.
    ///
    /// # Errors
    ///
    /// See [`FolderError`].
    pub fn read(path: &Path) -> Result<Self, FolderError> {
        let name = path.display().to_string();
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                let folder = Self::of(entries(path, "")?)?;
                if folder.files.is_empty() {
                    return Err(FolderError::Nothing(name));
                }
                folder.of_one(name, "name one of these as the dump")
            }
            Ok(_) => {
                let bytes = bytes(path)?;
                if tarball::is_tarball(&bytes) {
                    return Self::of_tarball(&name, &bytes);
                }
                Ok(Self {
                    files: vec![file(name, bytes)?],
                    others: Vec::new(),
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = Self::beginning_with(path)?;
                if folder.files.is_empty() {
                    return Err(FolderError::Missing(name));
                }
                folder.of_one(name, "name one of these as the dump")
            }
            Err(source) => Err(FolderError::Io { name, source }),
        }
    }

    fn beginning_with(path: &Path) -> Result<Self, FolderError> {
        let Some(begins) = path.file_name().and_then(|name| name.to_str()) else {
            return Ok(Self::default());
        };
        let folder = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) if parent.is_dir() => parent,
            _ => return Ok(Self::default()),
        };
        Self::of(entries(folder, &format!("{begins}."))?)
    }

    fn of_tarball(name: &str, packed: &[u8]) -> Result<Self, FolderError> {
        let owned = || name.to_owned();
        let wanted = |path: &str| Format::of_name(last(path)).is_some();
        let (files, others) = tarball::files(packed, wanted).map_err(|source| match source {
            // One file that was compressed.
            TarballError::Not(0) => FolderError::Packed {
                name: owned(),
                what: PACKED[0].1,
            },
            source => FolderError::Tarball {
                name: owned(),
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
        let strange = others.filter(|path| !BESIDE.contains(&last(path)));
        folder.others = strange.map(|path| format!("{name}:{path}")).collect();
        if folder.files.is_empty() {
            return Err(FolderError::Foreign(name.to_owned()));
        }
        folder.of_one(owned(), "unpack it, and name one of the directories")
    }

    /// The folder, unless files of several dumps are in it: of two nodes there may be rules of
    /// one and addresses of the other.
    fn of_one(self, name: String, remedy: &'static str) -> Result<Self, FolderError> {
        let mut begin: Vec<&str> = self.files.iter().map(|file| begins(&file.name)).collect();
        begin.sort_unstable();
        begin.dedup();
        if begin.len() < 2 {
            return Ok(self);
        }
        let begin = begin.into_iter().take(2).map(str::to_owned).collect();
        Err(FolderError::Several {
            name,
            begin,
            remedy,
        })
    }

    fn of(paths: Vec<PathBuf>) -> Result<Self, FolderError> {
        let mut folder = Self::default();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_file() && Format::of_name(&name).is_some() {
                let shown = path.display().to_string();
                folder.files.push(file(shown, bytes(&path)?)?);
            } else if !BESIDE.contains(&&*name) {
                folder.others.push(path.display().to_string());
            }
        }
        Ok(folder)
    }
}

/// A path's last part.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// What a file's name begins with, up to what says which program printed it.
fn begins(path: &str) -> &str {
    let name = path.strip_suffix(".txt").unwrap_or(path);
    let format = last(name).rsplit('.').next().unwrap_or_default();
    name.strip_suffix(format)
        .unwrap_or(name)
        .trim_end_matches(['.', '/'])
}

/// What lies in a directory under names that begin so, by name.
fn entries(folder: &Path, begins: &str) -> Result<Vec<PathBuf>, FolderError> {
    let refuse = |source| FolderError::Io {
        name: folder.display().to_string(),
        source,
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(refuse)? {
        let entry = entry.map_err(refuse)?;
        let name = entry.file_name();
        if name.to_string_lossy().starts_with(begins) {
            paths.push(entry.path());
            if paths.len() > MAX_FILES {
                return Err(FolderError::Many(folder.display().to_string()));
            }
        }
    }
    paths.sort();
    Ok(paths)
}

fn bytes(path: &Path) -> Result<Vec<u8>, FolderError> {
    let refuse = |source| FolderError::Io {
        name: path.display().to_string(),
        source,
    };
    let open = fs::File::open(path).map_err(refuse)?;
    let limit = u64::try_from(MAX_BYTES + 1).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    open.take(limit).read_to_end(&mut bytes).map_err(refuse)?;
    Ok(bytes)
}

/// A file of a dump from what is in it.
fn file(name: String, bytes: Vec<u8>) -> Result<File, FolderError> {
    if let Some((_, what)) = PACKED.iter().find(|(begins, _)| bytes.starts_with(begins)) {
        return Err(FolderError::Packed { name, what });
    }
    if bytes.len() > MAX_BYTES {
        return Err(FolderError::Large { name });
    }
    // Windows' programs begin a text so.
    let bytes = match bytes.strip_prefix(b"\xef\xbb\xbf") {
        Some(rest) => rest.to_vec(),
        None => bytes,
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let newlines = error.as_bytes()[..good].iter().filter(|b| **b == b'\n');
        FolderError::NotUtf8 {
            name: name.clone(),
            line: newlines.count() + 1,
        }
    })?;
    let format = Format::of_name(name.rsplit('/').next().unwrap_or_default());
    Ok(File { name, format, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &Path, folder: &Path) -> String {
        let error = Folder::read(path).unwrap_err().to_string();
        error.replace(&format!("{}/", folder.display()), "")
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let mut told = vec![said(&folder.path().join("a"), folder.path())];
        let empty = folder.path().join("empty");
        fs::create_dir(&empty).unwrap();
        told.push(said(&empty, folder.path()));
        for (name, bytes) in [
            ("a.gz", &b"\x1f\x8b\x08"[..]),
            ("a.tar.xz", b"\xfd7zXZ\0"),
            ("iptables-save", b"*nat\n\xff\n"),
        ] {
            told.push(said(&put(name, bytes), folder.path()));
        }
        let large = put("large", b"");
        let file = fs::OpenOptions::new().write(true).open(&large).unwrap();
        file.set_len(u64::try_from(MAX_BYTES).unwrap() + 1).unwrap();
        told.push(said(&large, folder.path()));
        let many = folder.path().join("many");
        fs::create_dir(&many).unwrap();
        for n in 0..=MAX_FILES {
            fs::write(many.join(n.to_string()), "").unwrap();
        }
        told.push(said(&many, folder.path()));
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn a_directory_a_file_and_a_beginning_are_dumps() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.iptables-save", "a.ip-addr.txt", "notes"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let count = |path: &Path| {
            let folder = Folder::read(path).unwrap();
            (folder.files.len(), folder.others.len())
        };
        assert_eq!(count(folder.path()), (2, 1));
        assert_eq!(count(&folder.path().join("a")), (2, 0));
        assert_eq!(count(&folder.path().join("notes")), (1, 0));
        fs::write(folder.path().join("b.ip-route"), "").unwrap();
        assert_eq!(count(&folder.path().join("a")), (2, 0));
        insta::assert_snapshot!(
            said(folder.path(), folder.path()).replace(&folder.path().display().to_string(), "DIR")
        );
    }
}
