//! Computes digests of files, and detects without reading a file again whether it changed.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Metadata that changes when the contents of a file change. The kernel sets `changed` at every
/// write, and no program can set it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileIdentity {
    inode: u64,
    bytes: u64,
    /// Modification time, in nanoseconds since the epoch.
    modified: i128,
    changed: i128,
}

impl From<&Metadata> for FileIdentity {
    fn from(found: &Metadata) -> Self {
        let nanoseconds =
            |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Self {
            inode: found.ino(),
            bytes: found.size(),
            modified: nanoseconds(found.mtime(), found.mtime_nsec()),
            changed: nanoseconds(found.ctime(), found.ctime_nsec()),
        }
    }
}

impl FileIdentity {
    /// Returns the current metadata of a file.
    pub(crate) fn from_file(file: &Path) -> io::Result<Self> {
        Ok(Self::from(&fs::metadata(file)?))
    }

    /// Returns the size of the file, in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns the SHA-256 of a file, in hexadecimal.
pub(crate) fn file_digest(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; 1 << 18];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(HEXLOWER.encode(&hasher.finalize())),
            length => hasher.update(&chunk[..length]),
        }
    }
}

/// Returns the SHA-256 of bytes, in hexadecimal.
pub(crate) fn bytes_digest(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// Returns a name for an object made of these parts: the first 16 bytes of a digest. Other lists of
/// parts have other digests.
pub(crate) fn name_of_parts(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    HEXLOWER.encode(&hasher.finalize()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_depends_on_boundaries_of_parts() {
        assert_ne!(name_of_parts(&["ab", "c"]), name_of_parts(&["a", "bc"]));
        assert_eq!(name_of_parts(&["ab", "c"]), name_of_parts(&["ab", "c"]));
        assert_eq!(name_of_parts(&[]).len(), 32);
    }

    #[test]
    fn identity_written_file_with_old_time_differs() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a");
        fs::write(&file, "one").unwrap();
        let before = FileIdentity::from_file(&file).unwrap();
        let modified = fs::metadata(&file).unwrap().modified().unwrap();
        // Repeats until the kernel's clock for the times of files advances.
        let after = loop {
            fs::write(&file, "two").unwrap();
            File::options()
                .write(true)
                .open(&file)
                .unwrap()
                .set_modified(modified)
                .unwrap();
            let after = FileIdentity::from_file(&file).unwrap();
            if after != before {
                break after;
            }
        };
        assert_eq!(after.modified, before.modified);
        assert_eq!(file_digest(&file).unwrap(), bytes_digest(b"two"));
    }
}
