//! Reads files of this machine that a lab may name. Only regular files of limited size are read, so
//! that a read always ends.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use svclab_diagnostic::files::{FileError, Location};

/// Maximum size of a file in bytes. A kube-proxy with debug information has 150 MB.
const MAX_FILE_BYTES: usize = 512 << 20;

/// Permission bits that a file keeps in a guest. Others would give the privileges of root, who owns
/// all files of a guest.
const KEPT_MODE: u32 = 0o777;

/// Contents and permission bits of a file.
#[derive(Debug)]
pub(super) struct HostFile {
    pub bytes: Vec<u8>,
    pub mode: u32,
}

/// Reads a regular file.
///
/// # Errors
///
/// When the file is not regular, is too large, or cannot be read.
pub(super) fn read(path: &Path) -> Result<HostFile, FileError> {
    let opened = Location::anywhere(path).open()?;
    let metadata = opened.metadata()?;
    if usize::try_from(metadata.size()).is_ok_and(|size| size > MAX_FILE_BYTES) {
        return Err(too_large());
    }
    let mode = metadata.mode() & KEPT_MODE;
    let (bytes, _) = opened.read(MAX_FILE_BYTES)?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(too_large());
    }
    Ok(HostFile { bytes, mode })
}

fn too_large() -> FileError {
    FileError::Io(io::Error::other(format!(
        "larger than {} MiB",
        MAX_FILE_BYTES >> 20
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_fifo_or_device_returns_error() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [&fifo, Path::new("/dev/zero"), directory.path()] {
            assert!(read(path).is_err(), "{}", path.display());
        }
    }

    #[test]
    fn read_large_file_returns_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(MAX_FILE_BYTES as u64 + 1).unwrap();
        let error = read(file.path()).unwrap_err();
        assert_eq!(error.to_string(), "larger than 512 MiB");
    }
}
