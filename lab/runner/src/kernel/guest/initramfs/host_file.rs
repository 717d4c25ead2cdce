//! Reads files of this machine that a lab may name. Only regular files of limited size are read, so
//! that a read always ends.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;

/// Maximum size of a file in bytes. A kube-proxy with debug information has 150 MB.
const MAX_FILE_BYTES: u64 = 512 << 20;

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
pub(super) fn read(path: &Path) -> io::Result<HostFile> {
    // Opening a device may have effects, so that the type is checked before and after.
    check(&fs::metadata(path)?)?;
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)?;
    let metadata = file.metadata()?;
    check(&metadata)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(too_large());
    }
    Ok(HostFile {
        bytes,
        mode: metadata.mode() & KEPT_MODE,
    })
}

fn check(metadata: &fs::Metadata) -> io::Result<()> {
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(too_large());
    }
    Ok(())
}

fn too_large() -> io::Error {
    io::Error::other(format!("larger than {} MiB", MAX_FILE_BYTES >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    #[test]
    fn read_fifo_or_device_returns_error() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        for path in [&fifo, Path::new("/dev/zero"), directory.path()] {
            let error = read(path).unwrap_err();
            assert_eq!(error.to_string(), "not a regular file", "{path:?}");
        }
    }

    #[test]
    fn read_large_file_returns_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(MAX_FILE_BYTES + 1).unwrap();
        let error = read(file.path()).unwrap_err();
        assert_eq!(error.to_string(), "larger than 512 MiB");
    }
}
