//! Snapshot of a guest that was booted once: its memory, and the rest of its state. Any number of
//! guests resume from a snapshot. Each has a private copy of the memory that it writes.

mod kept;

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::sendfile::sendfile;
use nix::unistd::{Whence, lseek};
use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::qemu::confine::{Listener, OpenResult};
use crate::kernel::error::guest::GuestError;

pub use kept::SNAPSHOTS;
pub(super) use kept::{prune, snapshots_of_kernel};

/// File name of the guest's memory in an entry.
pub(super) const MEMORY_FILE: &str = "memory";

/// File name of the rest of the guest's state in an entry.
pub(super) const STATE_FILE: &str = "state";

/// Unit in which memory is searched for data, in bytes: a page.
const PAGE: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SnapshotInfo {
    /// Release of the kernel that was booted.
    pub release: String,
    /// Key of the kernel in the cache.
    pub kernel: String,
}

/// Creates a file without a name, in the memory of this machine.
pub(super) fn create_unnamed() -> Result<OwnedFd, GuestError> {
    memfd_create(c"svclab", MFdFlags::MFD_CLOEXEC).map_err(|errno| memory_error(errno.into()))
}

/// Returns the path by which another program that inherits a descriptor opens its file again. Every
/// user may open a file of [`create_unnamed`] in this way.
pub(super) fn path_of(file: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Creates a file with these contents that no process can change.
pub(super) fn create_sealed(contents: &[u8]) -> Result<OwnedFd, GuestError> {
    let create = || {
        let file = create_sealable()?;
        File::from(file.try_clone()?).write_all(contents)?;
        seal(&file)?;
        Ok(file)
    };
    create().map_err(memory_error)
}

fn memory_error(source: io::Error) -> GuestError {
    GuestError::Memory {
        operation: "create a file in memory",
        source,
    }
}

/// Returns the error of [`SnapshotMemory::provide`]: memory ran out, or the snapshot in the cache
/// cannot be read.
pub(super) fn copy_error(cache: &Cache, error: io::Error) -> GuestError {
    match error.kind() {
        io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull => GuestError::Memory {
            operation: "copy a snapshot to memory",
            source: error,
        },
        _ => cache.error_of("read a snapshot")(error),
    }
}

fn create_sealable() -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    Ok(memfd_create(c"svclab", flags)?)
}

fn seal(file: &OwnedFd) -> io::Result<()> {
    let seals = SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_SEAL;
    fcntl(file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(())
}

/// Memory of a snapshot, for any number of guests that resume from it.
///
/// QEMU opens the file of its memory for reading and writing, even if it maps a private copy (QEMU
/// v7.2.0, `softmmu/physmem.c`, `file_ram_open`). QEMU must not write to the cache. A [`Listener`]
/// therefore makes QEMU open the cached file for reading only. Without a listener QEMU opens a copy
/// in memory, which is sealed against writing.
#[derive(Debug)]
pub(super) struct SnapshotMemory {
    kept: Arc<File>,
    file: OwnedFd,
    copied: future::Shared<BoxFuture<'static, Result<(), Arc<io::Error>>>>,
}

impl SnapshotMemory {
    /// Opens the memory of the snapshot in a directory of the cache.
    pub(super) fn new(cache: &Cache, snapshot: &Path) -> Result<Self, GuestError> {
        let open = || {
            let kept = File::open(snapshot.join(MEMORY_FILE))?;
            let length = kept.metadata()?.len();
            Ok((Arc::new(kept), length))
        };
        let (kept, length) = open().map_err(cache.error_of("read a snapshot"))?;
        let create = || {
            let file = create_sealable()?;
            let to = File::from(file.try_clone()?);
            to.set_len(length)?;
            Ok((file, to))
        };
        let (file, to) = create().map_err(memory_error)?;
        let source = Arc::clone(&kept);
        let copied = async move {
            let copied = tokio::task::spawn_blocking(move || {
                copy_data(&source, &to)?;
                seal(&to.into())
            });
            copied.await.map_err(io::Error::other)?.map_err(Arc::new)
        };
        Ok(Self {
            kept,
            file,
            copied: copied.boxed().shared(),
        })
    }

    /// Returns the file that QEMU opens as its memory. Its contents are complete after
    /// [`Self::provide`] has returned.
    pub(super) const fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Provides a starting QEMU that opens [`Self::file`] with the contents of the snapshot, by its
    /// listener or by a copy. Waits for `started` too. At the end of `started`, QEMU has opened the
    /// file and has not yet read it.
    pub(super) async fn provide<T>(
        &self,
        listener: Option<Listener>,
        started: impl Future<Output = T>,
    ) -> io::Result<T> {
        let mut started = pin!(started);
        if let Some(listener) = listener {
            let path = path_of(&self.file);
            tokio::select! {
                replaced = listener.replace(&path, &self.kept) => match replaced {
                    Ok(OpenResult::ByKernel) => {}
                    // With an error QEMU has ended, which `started` reports.
                    Ok(OpenResult::Replaced) | Err(_) => return Ok(started.await),
                },
                // A QEMU that opens the file in another way.
                started = &mut started => {
                    self.copied().await?;
                    return Ok(started);
                }
            }
        }
        let (copied, started) = tokio::join!(self.copied(), started);
        copied.map(|()| started)
    }

    /// Waits until the copy is complete and cannot be changed.
    async fn copied(&self) -> io::Result<()> {
        let copied = self.copied.clone().await;
        copied.map_err(|error| io::Error::new(error.kind(), error.to_string()))
    }
}

/// Copies all data of a file, without its holes.
fn copy_data(from: &File, mut to: &File) -> io::Result<()> {
    let length = from.metadata()?.len();
    let mut offset = 0;
    while offset < length {
        let Some((start, end)) = next_data(from, offset, length)? else {
            break;
        };
        to.seek(SeekFrom::Start(start))?;
        let mut copied = i64::try_from(start).map_err(io::Error::other)?;
        while copied.unsigned_abs() < end {
            let rest = usize::try_from(end - copied.unsigned_abs()).unwrap_or(usize::MAX);
            if sendfile(to, from, Some(&mut copied), rest)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        offset = end;
    }
    Ok(())
}

/// Returns the start and the end of the next data of a file. `None` if there is none.
fn next_data(file: &File, offset: u64, length: u64) -> io::Result<Option<(u64, u64)>> {
    let seek = |at: u64, whence| lseek(file, i64::try_from(at).unwrap_or(i64::MAX), whence);
    let start = match seek(offset, Whence::SeekData) {
        Ok(start) => start.unsigned_abs(),
        Err(Errno::ENXIO) => return Ok(None),
        // The file system does not support holes.
        Err(Errno::EINVAL) => return Ok(Some((offset, length))),
        Err(errno) => return Err(errno.into()),
    };
    let end = seek(start, Whence::SeekHole)?.unsigned_abs();
    Ok(Some((start, end)))
}

/// Writes the memory and the state of a guest to a directory. Pages of zero bytes become holes.
pub(super) fn write_snapshot(memory: OwnedFd, state: OwnedFd, directory: &Path) -> io::Result<()> {
    let mut memory = File::from(memory);
    let length = memory.metadata()?.len();
    let mut kept = File::create(directory.join(MEMORY_FILE))?;
    kept.set_len(length)?;
    memory.seek(SeekFrom::Start(0))?;
    let mut chunk = vec![0; 64 * PAGE];
    let mut offset = 0;
    while offset < length {
        let read = fill(&mut memory, &mut chunk)?;
        if read == 0 {
            break;
        }
        for page in chunk[..read].chunks(PAGE) {
            if page.iter().any(|byte| *byte != 0) {
                kept.seek(SeekFrom::Start(offset))?;
                kept.write_all(page)?;
            }
            offset += page.len() as u64;
        }
    }
    let mut state = File::from(state);
    state.seek(SeekFrom::Start(0))?;
    let mut text = Vec::new();
    state.read_to_end(&mut text)?;
    fs::write(directory.join(STATE_FILE), text)
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
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    #[tokio::test]
    async fn shared_memory_filled_cannot_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        let length = 300 * PAGE;
        let mut bytes = vec![0; length];
        bytes[200 * PAGE] = 7;
        let source = File::create(directory.path().join(MEMORY_FILE)).unwrap();
        source.set_len(length as u64).unwrap();
        source.write_all_at(&[7], 200 * PAGE as u64).unwrap();
        let shared = SnapshotMemory::new(&cache, directory.path()).unwrap();
        shared.provide(None, async {}).await.unwrap();
        shared.provide(None, async {}).await.unwrap();
        let path = path_of(shared.file());
        let opened = File::options().read(true).write(true).open(path).unwrap();
        let mut read = vec![0; length];
        opened.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read, bytes);
        assert!(opened.write_all_at(&[1], 0).is_err());
        assert!(opened.set_len(0).is_err());
        // Holes use no memory.
        let disk_usage = opened.metadata().unwrap().blocks() * 512;
        assert!(disk_usage <= 64 * PAGE as u64, "{disk_usage}");
    }

    #[test]
    fn write_snapshot_keeps_holes_of_memory() {
        let length = 1000 * PAGE + 7;
        let mut bytes = vec![0; length];
        bytes[500 * PAGE + 3] = 9;
        bytes[length - 1] = 8;
        let file_with = |bytes: &[u8]| {
            let fd = create_unnamed().unwrap();
            File::from(fd.try_clone().unwrap())
                .write_all(bytes)
                .unwrap();
            fd
        };
        let directory = tempfile::tempdir().unwrap();
        write_snapshot(file_with(&bytes), file_with(b"state"), directory.path()).unwrap();
        let memory = directory.path().join(MEMORY_FILE);
        assert_eq!(fs::read(&memory).unwrap(), bytes);
        let disk_usage = fs::metadata(&memory).unwrap().blocks() * 512;
        assert!(disk_usage < 64 * PAGE as u64, "{disk_usage}");
        assert_eq!(
            fs::read(directory.path().join(STATE_FILE)).unwrap(),
            b"state"
        );
    }

    #[test]
    fn copy_error_full_memory_is_no_error_of_the_cache() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        for full in [nix::libc::ENOMEM, nix::libc::ENOSPC] {
            let error = copy_error(&cache, io::Error::from_raw_os_error(full));
            assert!(matches!(error, GuestError::Memory { .. }), "{error}");
        }
        let damaged = copy_error(&cache, io::Error::from_raw_os_error(nix::libc::EIO));
        assert!(matches!(damaged, GuestError::Cache { .. }), "{damaged}");
    }
}
