//! Cache of kernels and snapshots between runs. Each entry is a directory that appears complete or
//! not at all, with the digest of each of its files.

pub(super) mod digest;
mod location;
mod lock;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::kernel::error::guest::GuestError;
use digest::FileIdentity;

pub use location::find_directory;
pub use lock::Lock;

/// File of an entry with its metadata and the digests of its files.
const MANIFEST: &str = "manifest.json";

/// File of an entry with the identities of the files whose digests were verified.
const VERIFIED: &str = "seen.json";

/// Cache in a directory.
#[derive(Debug, Clone)]
pub struct Cache {
    directory: PathBuf,
}

/// Entry of the cache whose files are unchanged since the entry was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry<T> {
    /// Directory of the entry.
    pub directory: PathBuf,
    /// Metadata of the entry.
    pub metadata: T,
    /// Digest of the digests of its files.
    pub digest: String,
    /// Total size of its files, in bytes.
    pub bytes: u64,
}

impl<T> CacheEntry<T> {
    /// Returns the name of the entry within its kind.
    #[must_use]
    pub fn key(&self) -> &str {
        self.directory
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest<T> {
    about: T,
    files: BTreeMap<String, String>,
}

impl<T> Manifest<T> {
    fn digest(&self) -> String {
        let parts: Vec<&str> = self
            .files
            .iter()
            .flat_map(|(name, digest)| [name.as_str(), digest.as_str()])
            .collect();
        digest::name_of_parts(&parts)
    }
}

impl Cache {
    /// Opens the cache in a directory. Creates the directory if it does not exist.
    ///
    /// # Errors
    ///
    /// When the directory cannot be created or written, or another user could change it.
    pub fn open(directory: PathBuf) -> Result<Self, GuestError> {
        let cache = Self { directory };
        for part in ["", "locks", "making"] {
            // The contents are run as a kernel, so no other user may write them.
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(cache.directory.join(part))
                .map_err(cache.error_of("create a directory"))?;
            cache.check_owner(part)?;
        }
        Ok(cache)
    }

    /// Opens the cache that the environment of this process selects.
    ///
    /// # Errors
    ///
    /// When the environment selects none, or the directory cannot be used.
    pub fn from_environment() -> Result<Self, GuestError> {
        Self::open(find_directory(
            |name| std::env::var_os(name),
            nix::unistd::geteuid().is_root(),
        )?)
    }

    /// Returns the directory of the cache.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Converts an error of the operating system to an error of this cache. `operation` is
    /// the operation, as text that follows "cannot".
    pub fn error_of(&self, operation: &str) -> impl FnOnce(io::Error) -> GuestError + use<> {
        let (operation, directory) = (operation.to_owned(), self.directory.clone());
        move |source| GuestError::Cache {
            operation,
            directory,
            source,
        }
    }

    /// Returns the directory of an entry, which may not exist.
    #[must_use]
    pub fn entry_directory(&self, kind: &str, key: &str) -> PathBuf {
        self.directory.join(kind).join(key)
    }

    /// Returns the names of all entries of a kind, sorted.
    #[must_use]
    pub fn keys(&self, kind: &str) -> Vec<String> {
        let mut keys: Vec<String> = fs::read_dir(self.directory.join(kind))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        keys.sort();
        keys
    }

    /// Reads an entry without checking its files. `None` if there is no such entry.
    #[must_use]
    pub fn peek<T: DeserializeOwned>(&self, kind: &str, key: &str) -> Option<CacheEntry<T>> {
        let directory = self.entry_directory(kind, key);
        let manifest: Manifest<T> = read_json(&directory.join(MANIFEST))?;
        let bytes = manifest
            .files
            .keys()
            .filter_map(|name| Some(fs::metadata(directory.join(name)).ok()?.len()))
            .sum();
        Some(CacheEntry {
            directory,
            digest: manifest.digest(),
            metadata: manifest.about,
            bytes,
        })
    }

    /// Returns an entry whose files are unchanged since the entry was made. `None` if there is no
    /// such entry, or if it is damaged.
    ///
    /// The digest of each file is verified once. After that, the metadata from the kernel shows
    /// whether the file was written since.
    #[must_use]
    pub fn entry<T: DeserializeOwned>(&self, kind: &str, key: &str) -> Option<CacheEntry<T>> {
        let directory = self.entry_directory(kind, key);
        let manifest: Manifest<T> = read_json(&directory.join(MANIFEST))?;
        let verified: BTreeMap<String, FileIdentity> =
            read_json(&directory.join(VERIFIED)).unwrap_or_default();
        let mut current = BTreeMap::new();
        for (name, digest) in &manifest.files {
            let file = directory.join(name);
            let identity = FileIdentity::from_file(&file).ok()?;
            if verified.get(name) != Some(&identity)
                && digest::file_digest(&file).ok().as_ref() != Some(digest)
            {
                tracing::warn!("{} is damaged and will be replaced", file.display());
                return None;
            }
            current.insert(name.clone(), identity);
        }
        if current != verified {
            // If the identities cannot be stored, the digests are verified each time.
            let _ = self.write_atomically(&directory.join(VERIFIED), &current);
        }
        Some(CacheEntry {
            directory,
            digest: manifest.digest(),
            metadata: manifest.about,
            bytes: current.values().map(FileIdentity::bytes).sum(),
        })
    }

    /// Creates a directory for a new entry. Dropping the guard removes the directory. If this
    /// process is killed, the next call with this kind and key removes it. The caller holds the
    /// lock of the entry.
    ///
    /// # Errors
    ///
    /// When the cache cannot be written.
    pub fn new_entry_directory(
        &self,
        kind: &str,
        key: &str,
    ) -> Result<tempfile::TempDir, GuestError> {
        self.temporary_directory(&format!("{kind}-{key}-"))
    }

    fn temporary_directory(&self, prefix: &str) -> Result<tempfile::TempDir, GuestError> {
        let parent = self.directory.join("making");
        for stale in fs::read_dir(&parent).into_iter().flatten().flatten() {
            if stale.file_name().to_string_lossy().starts_with(prefix) {
                let _ = fs::remove_dir_all(stale.path());
            }
        }
        tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(parent)
            .map_err(self.error_of("create a directory"))
    }

    /// Makes an entry of all files directly in a directory, and replaces an existing entry. The
    /// caller holds the lock of the entry.
    ///
    /// # Errors
    ///
    /// When the cache cannot be written.
    pub fn store<T: Serialize>(
        &self,
        kind: &str,
        key: &str,
        new_directory: tempfile::TempDir,
        about: T,
    ) -> Result<CacheEntry<T>, GuestError> {
        let operation = format!("store {kind}/{key}");
        let mut files = BTreeMap::new();
        let mut bytes = 0;
        let mut list = || -> io::Result<()> {
            for entry in fs::read_dir(new_directory.path())? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                bytes += entry.metadata()?.len();
                files.insert(name, digest::file_digest(&entry.path())?);
            }
            Ok(())
        };
        list().map_err(self.error_of(&operation))?;
        let manifest = Manifest { about, files };
        self.write_atomically(&new_directory.path().join(MANIFEST), &manifest)
            .map_err(self.error_of(&operation))?;
        self.remove(kind, key)?;
        let directory = self.entry_directory(kind, key);
        let result = fs::create_dir_all(self.directory.join(kind))
            .and_then(|()| fs::rename(new_directory.path(), &directory));
        result.map_err(self.error_of(&operation))?;
        // The directory is no longer temporary.
        let _ = new_directory.keep();
        Ok(CacheEntry {
            directory,
            digest: manifest.digest(),
            metadata: manifest.about,
            bytes,
        })
    }

    /// Removes an entry if it exists. The caller holds the lock of the entry.
    ///
    /// # Errors
    ///
    /// When the cache cannot be written.
    pub fn remove(&self, kind: &str, key: &str) -> Result<(), GuestError> {
        let directory = self.entry_directory(kind, key);
        if !directory.exists() {
            return Ok(());
        }
        // The entry is moved first, so that a partly removed entry is never found.
        let aside = self.temporary_directory(&format!("old-{kind}-{key}-"))?;
        fs::rename(&directory, aside.path().join("old"))
            .map_err(self.error_of(&format!("remove {kind}/{key}")))
    }

    /// Reads a note of the cache. `None` if the note is missing or cannot be read.
    #[must_use]
    pub fn read_note<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        read_json(&self.directory.join("notes").join(name))
    }

    /// Stores a note, completely or not at all.
    ///
    /// # Errors
    ///
    /// When the cache cannot be written.
    pub fn store_note(&self, name: &str, note: &impl Serialize) -> Result<(), GuestError> {
        let path = self.directory.join("notes").join(name);
        fs::create_dir_all(self.directory.join("notes"))
            .and_then(|()| self.write_atomically(&path, note))
            .map_err(self.error_of("store a note"))
    }

    /// Writes a file by writing a temporary file and renaming it.
    fn write_atomically(&self, path: &Path, value: &impl Serialize) -> io::Result<()> {
        let file = tempfile::NamedTempFile::new_in(self.directory.join("making"))?;
        serde_json::to_writer(&file, value)?;
        file.persist(path)?;
        Ok(())
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests;
