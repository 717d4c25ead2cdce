//! A guest that was booted once, kept as it stood: its memory, and the state of
//! all else. Any number of guests go on from there, each with memory of its own
//! where it writes to it.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};

/// The file of an entry that is the guest's memory.
pub const MEMORY: &str = "memory";

/// The file of an entry that is the state of all else.
pub const STATE: &str = "state";

/// How much memory is looked at at once, in bytes: a page.
const PAGE: usize = 4096;

/// What a snapshot says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The kernel that was booted, as it calls itself.
    pub release: String,
    /// The kernel's entry in the cache.
    pub kernel: String,
}

/// A file that has no name and lies in this machine's memory.
///
/// # Errors
///
/// When the system gives none.
pub fn nameless() -> io::Result<OwnedFd> {
    Ok(memfd_create(c"svclab", MFdFlags::MFD_CLOEXEC)?)
}

/// The path by which another program that inherits a descriptor opens its file
/// anew.
#[must_use]
pub fn path_of(file: &OwnedFd) -> std::path::PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Writes a guest's memory and state into a directory. Pages of noughts become
/// holes.
///
/// # Errors
///
/// When a file cannot be read or written.
pub fn write(memory: OwnedFd, state: OwnedFd, into: &Path) -> io::Result<()> {
    let mut memory = File::from(memory);
    let length = memory.metadata()?.len();
    let mut kept = File::create(into.join(MEMORY))?;
    kept.set_len(length)?;
    memory.seek(SeekFrom::Start(0))?;
    let mut chunk = vec![0; 64 * PAGE];
    let mut at = 0;
    while at < length {
        let read = fill(&mut memory, &mut chunk)?;
        if read == 0 {
            break;
        }
        for page in chunk[..read].chunks(PAGE) {
            if page.iter().any(|byte| *byte != 0) {
                kept.seek(SeekFrom::Start(at))?;
                kept.write_all(page)?;
            }
            at += page.len() as u64;
        }
    }
    let mut state = File::from(state);
    state.seek(SeekFrom::Start(0))?;
    let mut text = Vec::new();
    state.read_to_end(&mut text)?;
    fs::write(into.join(STATE), text)
}

fn fill(from: &mut File, chunk: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < chunk.len() {
        match from.read(&mut chunk[filled..])? {
            0 => break,
            length => filled += length,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn memory_is_kept_with_its_holes() {
        let length = 1000 * PAGE + 7;
        let mut bytes = vec![0; length];
        bytes[500 * PAGE + 3] = 9;
        bytes[length - 1] = 8;
        let of = |bytes: &[u8]| {
            let fd = nameless().unwrap();
            File::from(fd.try_clone().unwrap())
                .write_all(bytes)
                .unwrap();
            fd
        };
        let directory = tempfile::tempdir().unwrap();
        write(of(&bytes), of(b"state"), directory.path()).unwrap();
        let memory = directory.path().join(MEMORY);
        assert_eq!(fs::read(&memory).unwrap(), bytes);
        let room = fs::metadata(&memory).unwrap().blocks() * 512;
        assert!(room < 64 * PAGE as u64, "{room}");
        assert_eq!(fs::read(directory.path().join(STATE)).unwrap(), b"state");
    }
}
