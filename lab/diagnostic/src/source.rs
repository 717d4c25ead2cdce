//! Holds the text of files, and positions in it.

use std::borrow::Cow;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::{FileError, Location};
use crate::printable::one_line;

/// Maximum size of a file, in bytes: 64 MiB, the same as for dumps. A cluster of ten thousand
/// services, as `kubectl` prints it, has about half of that.
pub const MAX_BYTES: usize = 64 << 20;

/// Name of standard input in messages.
pub const STDIN: &str = "<stdin>";

/// Text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    name: String,
    text: String,
    /// Path as given. `None` if the text was not read from a file.
    path: Option<PathBuf>,
    /// Target, if the path is a symbolic link. The text of such a file is not printed.
    link_target: Option<PathBuf>,
}

/// Error for a file that cannot be read as text.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file does not exist.
    #[error("cannot read {name}: no such file")]
    Missing {
        /// Path as given.
        name: String,
    },
    /// The path is a directory.
    #[error("cannot read {name}: is a directory; name a lab file in it")]
    Directory {
        /// Path as given.
        name: String,
    },
    /// The file contains only whitespace.
    #[error("{name} is empty; write at least one YAML document")]
    Empty {
        /// Name of the file.
        name: String,
    },
    /// The file is not UTF-8 text.
    #[error("{name}: line {line} is not UTF-8; save the file as UTF-8")]
    NotUtf8 {
        /// Name of the file.
        name: String,
        /// First line that is not UTF-8, from 1.
        line: usize,
    },
    /// The file is larger than [`MAX_BYTES`].
    #[error(
        "{name} is larger than {} MiB, the maximum; remove objects that the lab does not need",
        MAX_BYTES >> 20
    )]
    TooLarge {
        /// Name of the file.
        name: String,
    },
    /// The file is not a regular file, or the operating system reports an error.
    #[error("cannot read {name}: {source}")]
    Io {
        /// Path as given.
        name: String,
        /// Cause of the error.
        source: FileError,
    },
}

impl SourceError {
    /// Returns the line of the error, from 1. `None` if the error concerns the whole file.
    #[must_use]
    pub fn line(&self) -> Option<u32> {
        match self {
            Self::NotUtf8 { line, .. } => u32::try_from(*line).ok(),
            _ => None,
        }
    }
}

impl Source {
    /// Reads a regular file, at most [`MAX_BYTES`] and one byte. Messages name the file by the path
    /// as given.
    ///
    /// # Errors
    ///
    /// Returns a [`SourceError`] if the path is not a UTF-8 text file of at most [`MAX_BYTES`].
    pub fn read(path: &Path) -> Result<Self, SourceError> {
        Self::read_at(&Location::anywhere(path))
    }

    /// Reads a file like [`Source::read`]. Its location may have to stay in a directory.
    ///
    /// # Errors
    ///
    /// Returns a [`SourceError`] like [`Source::read`].
    pub fn read_at(location: &Location) -> Result<Self, SourceError> {
        let path = location.display_path();
        let name = one_line(&path.to_string_lossy()).into_owned();
        let read = location.read(MAX_BYTES);
        let (bytes, linked_to) = read.map_err(|source| match source {
            FileError::Directory => SourceError::Directory { name: name.clone() },
            source if source.is_missing() => SourceError::Missing { name: name.clone() },
            source => SourceError::Io {
                name: name.clone(),
                source,
            },
        })?;
        Ok(Self {
            path: Some(path),
            link_target: linked_to,
            ..Self::from_bytes(name, bytes)?
        })
    }

    /// Reads standard input, at most [`MAX_BYTES`] and one byte.
    ///
    /// # Errors
    ///
    /// Returns a [`SourceError`] if it is not a UTF-8 text of at most [`MAX_BYTES`].
    pub fn read_stdin() -> Result<Self, SourceError> {
        let mut bytes = Vec::new();
        let limit = u64::try_from(MAX_BYTES)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        let read = std::io::stdin().lock().take(limit).read_to_end(&mut bytes);
        read.map_err(|source| SourceError::Io {
            name: STDIN.to_owned(),
            source: FileError::from(source),
        })?;
        Self::from_bytes(STDIN, bytes)
    }

    /// Creates a source from text that is not a file, such as standard input or an embedded lab.
    ///
    /// # Errors
    ///
    /// Returns [`SourceError::Empty`], [`SourceError::NotUtf8`] or [`SourceError::TooLarge`].
    pub fn from_bytes(name: impl Into<String>, bytes: Vec<u8>) -> Result<Self, SourceError> {
        let name = name.into();
        if bytes.len() > MAX_BYTES {
            return Err(SourceError::TooLarge { name });
        }
        match String::from_utf8(bytes) {
            Ok(text) if text.trim().is_empty() => Err(SourceError::Empty { name }),
            Ok(text) => Ok(Self::from_text(name, text)),
            Err(error) => {
                let valid_len = error.utf8_error().valid_up_to();
                let newlines = error.as_bytes()[..valid_len]
                    .iter()
                    .filter(|b| **b == b'\n');
                let line = newlines.count() + 1;
                Err(SourceError::NotUtf8 { name, line })
            }
        }
    }

    /// Creates a source from text that was already read, without a check.
    #[must_use]
    pub fn from_text(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
            path: None,
            link_target: None,
        }
    }

    /// Sets the target of the symbolic link that led to the text.
    #[must_use]
    pub fn with_link_target(mut self, file: Option<PathBuf>) -> Self {
        self.link_target = file;
        self
    }

    /// Whether messages may show lines of the text. They must not if the path is a symbolic link,
    /// because the author of the lab may have no permission to read its target.
    #[must_use]
    pub fn is_showable(&self) -> bool {
        self.link_target.is_none()
    }

    /// Returns the target of a path that is a symbolic link.
    pub(crate) fn link_target(&self) -> Option<&Path> {
        self.link_target.as_deref()
    }

    /// Returns the directory of the file. The path is empty for the current directory, or if there
    /// is no file.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        let parent = self.path.as_deref().and_then(Path::parent);
        parent.map(Path::to_owned).unwrap_or_default()
    }

    /// Returns the name for messages: the path as given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path as given, including characters that messages replace.
    #[must_use]
    pub fn path(&self) -> Cow<'_, str> {
        match &self.path {
            Some(path) => path.to_string_lossy(),
            None => Cow::Borrowed(&self.name),
        }
    }

    /// Whether the text was read from a file.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        self.path.is_some()
    }

    /// Returns the text of the file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Identifier of a file among the [`Sources`] of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileId(pub(super) u32);

/// Files of a scenario. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Sources(Arc<[Source]>);

impl Sources {
    /// Creates the list of files of one scenario, such as a lab and a dump of the cluster's
    /// objects.
    #[must_use]
    pub fn new(files: Vec<Source>) -> Self {
        Self(files.into())
    }

    /// Returns the file with an identifier. `None` for an identifier of other sources.
    #[must_use]
    pub fn get(&self, file: FileId) -> Option<&Source> {
        self.0.get(usize::try_from(file.0).ok()?)
    }

    /// Returns the files with their identifiers.
    pub fn iter(&self) -> impl Iterator<Item = (FileId, &Source)> {
        (0u32..).map(FileId).zip(self.0.iter())
    }
}

impl From<Source> for Sources {
    fn from(source: Source) -> Self {
        Self::new(vec![source])
    }
}

/// Range in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    /// Identifier of the file.
    pub file: FileId,
    /// Byte offset of the start.
    pub start: u32,
    /// Byte offset of the end, exclusive.
    pub end: u32,
    /// Line of the start, from 1.
    pub line: u32,
    /// Column of the start in characters, from 1.
    pub column: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<Source, SourceError>) -> String {
        match result {
            Ok(source) => panic!("{} is valid", source.name()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn source_read_invalid_file_returns_error() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(message(Source::read(&dir.path().join("no.yaml"))).ends_with("no such file"));
        assert!(message(Source::read(dir.path())).contains("is a directory"));
        let path = dir.path().join("lab.yaml");
        std::fs::write(&path, " \n\n").expect("written");
        assert!(message(Source::read(&path)).contains("is empty"));
        std::fs::write(&path, b"a: 1\nb: \xff\n").expect("written");
        assert!(message(Source::read(&path)).contains("line 2 is not UTF-8"));
        std::fs::write(&path, "[".repeat(MAX_BYTES + 1)).expect("written");
        assert!(message(Source::read(&path)).contains("larger than 64 MiB"));
    }

    #[test]
    fn source_from_bytes_accepts_maximum_size() {
        let bytes = vec![b'a'; MAX_BYTES];
        assert!(Source::from_bytes("x", bytes).is_ok());
        assert!(Source::from_bytes("x", vec![b'a'; MAX_BYTES + 1]).is_err());
    }
}
