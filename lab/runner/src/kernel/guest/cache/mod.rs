//! Cache of kernels and snapshots between runs. Each entry is a directory that appears complete or
//! not at all, with the digest of each of its files.

pub(super) mod digest;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::{CacheProblem, GuestError};
use digest::FileIdentity;

/// File of an entry with its metadata and the digests of its files.
const MANIFEST: &str = "manifest.json";

/// File of an entry with the identities of the files whose digests were verified.
const VERIFIED: &str = "seen.json";

/// Interval between attempts to get a lock that another process holds. Locks are held during a
/// download or a boot. There is no event to wait for that a signal could interrupt.
const LOCK_INTERVAL: Duration = Duration::from_millis(25);

/// Cache in a directory.
#[derive(Debug, Clone)]
pub struct Cache {
    directory: PathBuf,
}

/// Entry of the cache whose files are unchanged since the entry was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<T> {
    /// Directory of the entry.
    pub directory: PathBuf,
    /// Metadata of the entry.
    pub metadata: T,
    /// Digest of the digests of its files.
    pub digest: String,
    /// Total size of its files, in bytes.
    pub bytes: u64,
}

impl<T> Entry<T> {
    /// Returns the name of the entry within its kind.
    #[must_use]
    pub fn key(&self) -> &str {
        self.directory
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
    }
}

/// Lock of an entry. Released when dropped, or by the kernel when this process ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "the open file holds the lock")] File);

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

/// Returns the directory of the cache: `$SVCLAB_CACHE`; `svclab` in `$XDG_CACHE_HOME`, or in
/// `.cache` of `$HOME`; for root without a home, `/var/cache/svclab`. `variable` returns the value
/// of an environment variable.
///
/// # Errors
///
/// When no such variable is set.
pub fn find_directory(
    variable: impl Fn(&str) -> Option<std::ffi::OsString>,
    is_root: bool,
) -> Result<PathBuf, GuestError> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(svclab_cache) = set("SVCLAB_CACHE") {
        return Ok(PathBuf::from(svclab_cache));
    }
    if let Some(xdg_cache) = set("XDG_CACHE_HOME") {
        return Ok(Path::new(&xdg_cache).join("svclab"));
    }
    match set("HOME") {
        Some(home) => Ok(Path::new(&home).join(".cache/svclab")),
        None if is_root => Ok(PathBuf::from("/var/cache/svclab")),
        None => Err(GuestError::NoCache),
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

    /// Rejects a directory that another user could change, because guests boot kernels from it. The
    /// cache itself may be behind a symbolic link, because the user chose the link.
    fn check_owner(&self, part: &str) -> Result<(), GuestError> {
        let (directory, metadata) = if part.is_empty() {
            (self.directory.clone(), fs::metadata(&self.directory))
        } else {
            let directory = self.directory.join(part);
            let metadata = fs::symlink_metadata(&directory);
            (directory, metadata)
        };
        let metadata = metadata.map_err(self.error_of("read the metadata of a directory"))?;
        let user = nix::unistd::geteuid().as_raw();
        let problem = if !metadata.is_dir() {
            CacheProblem::NoDirectory
        } else if metadata.uid() != user {
            CacheProblem::OtherOwner {
                owner: metadata.uid(),
                user,
            }
        } else if metadata.mode() & 0o022 != 0 {
            CacheProblem::Writable(metadata.mode() & 0o777)
        } else {
            return Ok(());
        };
        Err(GuestError::CacheUnsafe { directory, problem })
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
    pub fn peek<T: DeserializeOwned>(&self, kind: &str, key: &str) -> Option<Entry<T>> {
        let directory = self.entry_directory(kind, key);
        let manifest: Manifest<T> = read_json(&directory.join(MANIFEST))?;
        let bytes = manifest
            .files
            .keys()
            .filter_map(|name| Some(fs::metadata(directory.join(name)).ok()?.len()))
            .sum();
        Some(Entry {
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
    pub fn entry<T: DeserializeOwned>(&self, kind: &str, key: &str) -> Option<Entry<T>> {
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
        Some(Entry {
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
    ) -> Result<Entry<T>, GuestError> {
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
        Ok(Entry {
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

    /// Waits for the lock of an entry. Only its holder may create or remove the entry.
    ///
    /// # Errors
    ///
    /// When the lock file cannot be created.
    pub async fn lock(&self, kind: &str, key: &str) -> Result<Lock, GuestError> {
        let mut is_reported = false;
        loop {
            if let Some(lock) = self.try_lock(kind, key)? {
                return Ok(lock);
            }
            if !std::mem::replace(&mut is_reported, true) {
                tracing::info!("another svclab creates {kind}/{key}; waiting for it");
            }
            tokio::time::sleep(LOCK_INTERVAL).await;
        }
    }

    /// Returns the lock of an entry. `None` if another process holds it.
    ///
    /// # Errors
    ///
    /// When the lock file cannot be created.
    pub fn try_lock(&self, kind: &str, key: &str) -> Result<Option<Lock>, GuestError> {
        let path = self.directory.join("locks").join(format!("{kind}-{key}"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(path)
            .map_err(self.error_of("create a lock file"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(self.error_of("lock a file")(error)),
        }
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
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        (directory, cache)
    }

    fn store_entry(cache: &Cache, key: &str, text: &str) -> Entry<u32> {
        let new_directory = cache.new_entry_directory("things", key).unwrap();
        fs::write(new_directory.path().join("thing"), text).unwrap();
        cache.store("things", key, new_directory, 7).unwrap()
    }

    /// Only root can change the owner of a directory.
    #[test]
    fn open_cache_of_other_writers_returns_error() {
        use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
        let (directory, cache) = cache();
        let render = |result: Result<Cache, GuestError>| {
            let error = result.unwrap_err();
            let text = format!("{error}\n{}", error.remedy().unwrap_or_default());
            text.replace(&directory.path().display().to_string(), "DIR")
        };
        let open = || Cache::open(cache.directory.clone());
        let locks = cache.directory.join("locks");
        for mode in [0o775, 0o757, 0o1777] {
            fs::set_permissions(&locks, fs::Permissions::from_mode(mode)).unwrap();
            assert!(render(open()).contains("is writable by other users"));
        }
        insta::assert_snapshot!(render(open()), @r"
        the cache DIR/cache/locks is writable by other users: its mode is 777
        run `chmod -R go-w DIR/cache/locks`, or set SVCLAB_CACHE to a directory that you own
        ");
        fs::remove_dir(&locks).unwrap();
        symlink("making", &locks).unwrap();
        insta::assert_snapshot!(render(open()), @r"
        the cache DIR/cache/locks is not a directory
        remove DIR/cache/locks, or set SVCLAB_CACHE to a directory that you own
        ");
        fs::remove_file(&locks).unwrap();
        let linked = directory.path().join("linked");
        symlink(&cache.directory, &linked).unwrap();
        Cache::open(linked).unwrap();
        if nix::unistd::geteuid().is_root() {
            chown(&cache.directory, Some(1000), Some(1000)).unwrap();
            insta::assert_snapshot!(render(open()), @r"
            the cache DIR/cache belongs to the user 1000, not to the user 0 who runs svclab
            run svclab as that user, set SVCLAB_CACHE to a directory that you own, or, if you trust its contents, run `chown -R 0 DIR/cache`
            ");
        }
    }

    #[test]
    fn find_directory_follows_environment() {
        let directory_of = |set: &[(&str, &str)], root| {
            let variable = |name: &str| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).into())
            };
            find_directory(variable, root)
                .ok()
                .map(|path| path.to_string_lossy().into_owned())
        };
        let variables = [
            ("SVCLAB_CACHE", "/c"),
            ("XDG_CACHE_HOME", "/x"),
            ("HOME", "/h"),
        ];
        assert_eq!(directory_of(&variables, false).as_deref(), Some("/c"));
        assert_eq!(
            directory_of(&variables[1..], false).as_deref(),
            Some("/x/svclab")
        );
        assert_eq!(
            directory_of(&variables[2..], true).as_deref(),
            Some("/h/.cache/svclab")
        );
        assert_eq!(
            directory_of(&[("HOME", "")], true).as_deref(),
            Some("/var/cache/svclab")
        );
        assert_eq!(directory_of(&[], false), None);
    }

    #[test]
    fn entry_is_stored_found_and_replaced() {
        let (_directory, cache) = cache();
        assert_eq!(cache.entry::<u32>("things", "a"), None);
        let kept = store_entry(&cache, "a", "one");
        assert_eq!(cache.entry("things", "a"), Some(kept));
        // The second call uses the identities that the first one stored.
        assert_eq!(cache.entry::<u32>("things", "a").unwrap().bytes, 3);
        store_entry(&cache, "a", "three");
        assert_eq!(cache.entry::<u32>("things", "a").unwrap().bytes, 5);
        assert_eq!(cache.keys("things"), ["a"]);
        cache.remove("things", "a").unwrap();
        assert_eq!(cache.entry::<u32>("things", "a"), None);
        assert!(
            fs::read_dir(cache.directory.join("making"))
                .unwrap()
                .next()
                .is_none()
        );
    }

    #[test]
    fn entry_damaged_returns_none() {
        let (_directory, cache) = cache();
        for damage in ["eno", "", "one and more"] {
            let kept = store_entry(&cache, "a", "one");
            assert!(cache.entry::<u32>("things", "a").is_some());
            let file = kept.directory.join("thing");
            let before = FileIdentity::from_file(&file).unwrap();
            while FileIdentity::from_file(&file).unwrap() == before {
                fs::write(&file, damage).unwrap();
            }
            assert_eq!(cache.entry::<u32>("things", "a"), None, "{damage}");
        }
        let kept = store_entry(&cache, "a", "one");
        fs::remove_file(kept.directory.join("thing")).unwrap();
        assert_eq!(cache.entry::<u32>("things", "a"), None);
        let kept = store_entry(&cache, "a", "one");
        fs::write(kept.directory.join(MANIFEST), "{").unwrap();
        assert_eq!(cache.entry::<u32>("things", "a"), None);
    }

    #[test]
    fn new_entry_directory_removes_stale_directories() {
        let (_directory, cache) = cache();
        let stale = cache.new_entry_directory("things", "a").unwrap().keep();
        let other_entry = cache.new_entry_directory("things", "b").unwrap();
        let _made = cache.new_entry_directory("things", "a").unwrap();
        assert!(!stale.exists() && other_entry.path().exists());
    }

    #[tokio::test]
    async fn lock_has_one_holder() {
        let (_directory, cache) = cache();
        let lock = cache.lock("things", "a").await.unwrap();
        assert!(cache.try_lock("things", "a").unwrap().is_none());
        assert!(cache.try_lock("things", "b").unwrap().is_some());
        drop(lock);
        assert!(cache.try_lock("things", "a").unwrap().is_some());
    }
}
