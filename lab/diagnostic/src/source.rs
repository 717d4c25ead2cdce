//! The text a user wrote, and places in it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Diagnostic;
use crate::files::{FileError, Location};
use crate::printable::one_line;

/// The largest file that is read, in bytes: 64 MiB, as dumps have. A cluster of ten
/// thousand services has about half of that, as `kubectl` prints it.
pub const MAX_BYTES: usize = 64 << 20;

/// One file's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    name: String,
    text: String,
    /// The path as given, if it was read from a file.
    path: Option<PathBuf>,
    /// The file itself, if a symbolic link led to it: its text is not printed.
    linked_to: Option<PathBuf>,
}

/// Why a file's text cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is no such file.
    #[error("{name}: there is no such file")]
    Missing {
        /// The path as given.
        name: String,
    },
    /// It is a directory.
    #[error("{name}: this is a directory; name a lab file in it")]
    Directory {
        /// The path as given.
        name: String,
    },
    /// Nothing but blanks.
    #[error("{name}: the file is empty; write at least one YAML document")]
    Empty {
        /// The file.
        name: String,
    },
    /// Not text.
    #[error("{name}: line {line} is not UTF-8; save the file as UTF-8")]
    NotUtf8 {
        /// The file.
        name: String,
        /// The first line that is not UTF-8, from 1.
        line: usize,
    },
    /// Larger than [`MAX_BYTES`].
    #[error("{name}: larger than {} MiB, the most that svclab reads; leave out objects that play no part", MAX_BYTES >> 20)]
    TooLarge {
        /// The file.
        name: String,
    },
    /// It is no regular file, or the operating system refused.
    #[error("{name}: cannot be read: {source}")]
    Io {
        /// The path as given.
        name: String,
        /// What the operating system said.
        source: FileError,
    },
}

impl SourceError {
    /// The line it is about, from 1; `None` where it is about the file as a whole.
    #[must_use]
    pub fn line(&self) -> Option<u32> {
        match self {
            Self::NotUtf8 { line, .. } => u32::try_from(*line).ok(),
            _ => None,
        }
    }
}

impl Source {
    /// Reads a file. Its name in messages is the path as given.
    ///
    /// # Errors
    ///
    /// One [`SourceError`] for each way a path fails to be a text of reasonable
    /// size. At most [`MAX_BYTES`] and one byte are read, of regular files only.
    pub fn read(path: &Path) -> Result<Self, SourceError> {
        let name = one_line(&path.to_string_lossy()).into_owned();
        let read = Location::anywhere(path).read(MAX_BYTES);
        let (bytes, linked_to) = read.map_err(|source| match source {
            FileError::Directory => SourceError::Directory { name: name.clone() },
            source if source.is_missing() => SourceError::Missing { name: name.clone() },
            source => SourceError::Io {
                name: name.clone(),
                source,
            },
        })?;
        Ok(Self {
            path: Some(path.to_owned()),
            linked_to,
            ..Self::from_bytes(name, bytes)?
        })
    }

    /// A text that is no file of its own: standard input, a lab that came with
    /// the program. A name in angle brackets (`<stdin>`) says that there is no
    /// file, so a lab of any name may be in it.
    ///
    /// # Errors
    ///
    /// [`SourceError::Empty`], [`SourceError::NotUtf8`] and
    /// [`SourceError::TooLarge`].
    pub fn from_bytes(name: impl Into<String>, bytes: Vec<u8>) -> Result<Self, SourceError> {
        let name = name.into();
        if bytes.len() > MAX_BYTES {
            return Err(SourceError::TooLarge { name });
        }
        match String::from_utf8(bytes) {
            Ok(text) if text.trim().is_empty() => Err(SourceError::Empty { name }),
            Ok(text) => Ok(Self::of_text(name, text)),
            Err(error) => {
                let good = error.utf8_error().valid_up_to();
                let newlines = error.as_bytes()[..good].iter().filter(|b| **b == b'\n');
                let line = newlines.count() + 1;
                Err(SourceError::NotUtf8 { name, line })
            }
        }
    }

    /// A text that was read elsewhere, whatever its size.
    #[must_use]
    pub fn of_text(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
            path: None,
            linked_to: None,
        }
    }

    /// The same text, which came from this file by a symbolic link.
    #[must_use]
    pub fn linked_to(mut self, file: Option<PathBuf>) -> Self {
        self.linked_to = file;
        self
    }

    /// Whether messages may show lines of the text: not of a file that a symbolic link
    /// led to, which may be one that its author must not read.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.linked_to.is_none()
    }

    /// The directory that the file is in; empty for the current one, or if there is no
    /// file.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        let parent = self.path.as_deref().and_then(Path::parent);
        parent.map(Path::to_owned).unwrap_or_default()
    }

    /// The name in messages: the path as given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path as given, also where messages replace characters of it.
    #[must_use]
    pub fn path(&self) -> Cow<'_, str> {
        match &self.path {
            Some(path) => path.to_string_lossy(),
            None => Cow::Borrowed(&self.name),
        }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file's name without its extension; `None` for a text that is no file.
    #[must_use]
    pub fn stem(&self) -> Option<String> {
        if self.name.starts_with('<') {
            return None;
        }
        let path = PathBuf::from(&self.name);
        Some(path.file_stem()?.to_string_lossy().into_owned())
    }
}

/// One of the files a scenario was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileId(pub(super) u32);

/// The files a scenario was read from. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Sources(Arc<[Source]>);

impl Sources {
    /// Files that make up one scenario together, such as a lab and a dump of the
    /// cluster's objects.
    #[must_use]
    pub fn new(files: Vec<Source>) -> Self {
        Self(files.into())
    }

    /// The file with this id.
    #[must_use]
    pub fn get(&self, file: FileId) -> Option<&Source> {
        self.0.get(usize::try_from(file.0).ok()?)
    }

    /// Diagnostics without what they repeat of files whose text is not shown.
    #[must_use]
    pub fn redact(&self, diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
        if self.0.iter().all(Source::is_shown) {
            return diagnostics;
        }
        let redacted = diagnostics.iter().map(|diagnostic| {
            let file = diagnostic
                .labels()
                .find_map(|label| self.get(label.span.file)?.linked_to.as_deref());
            match file {
                Some(file) => diagnostic.redacted(file),
                None => diagnostic.clone(),
            }
        });
        redacted.collect()
    }

    /// The files with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (FileId, &Source)> {
        (0u32..).map(FileId).zip(self.0.iter())
    }
}

impl From<Source> for Sources {
    fn from(source: Source) -> Self {
        Self::new(vec![source])
    }
}

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// The first byte.
    pub start: u32,
    /// The byte behind the last.
    pub end: u32,
    /// The line of the first byte, from 1.
    pub line: u32,
    /// The column of the first byte in characters, from 1.
    pub column: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<Source, SourceError>) -> String {
        match result {
            Ok(source) => panic!("{} was read", source.name()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_no_text_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(message(Source::read(&dir.path().join("no.yaml"))).ends_with("no such file"));
        assert!(message(Source::read(dir.path())).contains("this is a directory"));
        let path = dir.path().join("lab.yaml");
        std::fs::write(&path, " \n\n").expect("written");
        assert!(message(Source::read(&path)).contains("the file is empty"));
        std::fs::write(&path, b"a: 1\nb: \xff\n").expect("written");
        assert!(message(Source::read(&path)).contains("line 2 is not UTF-8"));
        std::fs::write(&path, "[".repeat(MAX_BYTES + 1)).expect("written");
        assert!(message(Source::read(&path)).contains("larger than 64 MiB"));
    }

    #[test]
    fn the_largest_file_is_read() {
        let bytes = vec![b'a'; MAX_BYTES];
        assert!(Source::from_bytes("x", bytes).is_ok());
        assert!(Source::from_bytes("x", vec![b'a'; MAX_BYTES + 1]).is_err());
    }

    #[test]
    fn a_stem_is_the_name_without_directory_and_extension() {
        let stem = |name: &str| {
            Source::from_bytes(name, b"a".to_vec())
                .ok()
                .and_then(|source| source.stem())
        };
        assert_eq!(
            stem("topologies/clb-hairpin.yaml").as_deref(),
            Some("clb-hairpin")
        );
        assert_eq!(stem("<stdin>"), None);
    }
}
