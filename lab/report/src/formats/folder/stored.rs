//! Reads the results of finished runs.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::RESULTS;
use crate::formats::gzip::decompressed;
use crate::results::{Document, SCHEMA};
use svclab_diagnostic::files::{FileError, Location};

/// Maximum size of a file that is read, in bytes, also after decompression.
const MAX_BYTES: usize = 512 << 20;

/// Finished run, read from its files.
#[derive(Debug)]
pub struct StoredRun {
    /// Directory or file of the run, as the user gave it.
    pub path: PathBuf,
    /// Results of the run.
    pub document: Document,
}

/// Reason why a run cannot be read.
#[derive(Debug, Error)]
pub enum StoredRunError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system, or the kind of the file.
        source: FileError,
    },
    /// A file is too large.
    #[error("{} has more than {} MiB", path.display(), MAX_BYTES >> 20)]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
    },
    /// A file does not contain what its name says.
    #[error("{} is not a file of a run: {reason}", path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Problem of the file.
        reason: String,
    },
    /// A file has another schema, such as that of another version of svclab.
    #[error("{} is not a file of a run: its schema is {found} instead of {expected}", path.display())]
    Schema {
        /// Path of the file.
        path: PathBuf,
        /// Schema of the file.
        found: String,
        /// Schema that this version reads.
        expected: &'static str,
    },
}

impl StoredRun {
    /// Reads the directory of `svclab run --report`, or a file of `svclab run --format json`.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read, or is not one of a run.
    pub fn read(path: &Path) -> Result<Self, StoredRunError> {
        let results = if path.is_dir() {
            // A link in the files of a stranger must not add a file of this machine to the page.
            Location::below(path, RESULTS)
        } else {
            Location::anywhere(path)
        };
        let bytes = read_file(&results)?;
        Ok(Self {
            path: path.to_owned(),
            document: JsonFile::new(results, bytes, SCHEMA)?.parse()?,
        })
    }
}

fn read_file(location: &Location) -> Result<Vec<u8>, StoredRunError> {
    match location.read(MAX_BYTES) {
        Ok((bytes, _)) => within_limit(location, bytes),
        Err(source) => Err(StoredRunError::File {
            path: location.display_path(),
            source,
        }),
    }
}

fn within_limit(location: &Location, bytes: Vec<u8>) -> Result<Vec<u8>, StoredRunError> {
    if bytes.len() > MAX_BYTES {
        let path = location.display_path();
        return Err(StoredRunError::TooLarge { path });
    }
    Ok(bytes)
}

/// File of JSON with a known schema.
pub(super) struct JsonFile {
    location: Location,
    bytes: Vec<u8>,
}

impl JsonFile {
    fn new(
        location: Location,
        bytes: Vec<u8>,
        expected: &'static str,
    ) -> Result<Self, StoredRunError> {
        #[derive(Deserialize)]
        struct Header {
            schema: String,
        }
        let file = Self { location, bytes };
        // The fields of another schema are unknown.
        let header: Header = file.parse()?;
        if header.schema != expected {
            return Err(StoredRunError::Schema {
                path: file.location.display_path(),
                found: header.schema,
                expected,
            });
        }
        Ok(file)
    }

    /// Reads a compressed file.
    pub(super) fn open_compressed(
        location: Location,
        expected: &'static str,
    ) -> Result<Self, StoredRunError> {
        let bytes = decompressed(&read_file(&location)?, MAX_BYTES + 1);
        let bytes = bytes.map_err(|error| content_error(&location, &error))?;
        let bytes = within_limit(&location, bytes)?;
        Self::new(location, bytes, expected)
    }

    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, StoredRunError> {
        serde_json::from_slice(&self.bytes).map_err(|error| content_error(&self.location, &error))
    }
}

fn content_error(location: &Location, reason: &dyn fmt::Display) -> StoredRunError {
    StoredRunError::Content {
        path: location.display_path(),
        reason: reason.to_string(),
    }
}
