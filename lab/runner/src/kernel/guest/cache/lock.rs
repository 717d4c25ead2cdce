//! Locks of the entries of the cache.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;

use nix::fcntl::OFlag;

use super::Cache;
use crate::kernel::agent::blocking::run_in_thread;
use crate::kernel::error::guest::GuestError;

/// Lock of an entry. Released when dropped, or by the kernel when this process ends.
#[derive(Debug)]
pub struct Lock(pub(super) File);

/// Closing the file is not enough: a child that another thread has just created has the open file
/// until it executes its program.
impl Drop for Lock {
    fn drop(&mut self) {
        // The kernel releases the lock at the latest when the last copy is closed.
        let _ = self.0.unlock();
    }
}

impl Cache {
    /// Waits for the lock of an entry. Only its holder may create or remove the entry. Locks are
    /// held during a download or a boot.
    ///
    /// # Errors
    ///
    /// When the lock file cannot be created.
    pub async fn lock(&self, kind: &str, key: &str) -> Result<Lock, GuestError> {
        if let Some(lock) = self.try_lock(kind, key)? {
            return Ok(lock);
        }
        tracing::info!("another svclab creates {kind}/{key}; waiting for it");
        let file = self.lock_file(kind, key)?;
        // Another task of this thread may hold the lock. If the caller stops to wait, the new thread
        // releases the lock as soon as it gets the lock.
        let locked = run_in_thread(move || {
            loop {
                match file.lock() {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    result => return result.map(|()| file),
                }
            }
        });
        let locked = locked.await.and_then(|locked| locked);
        locked.map(Lock).map_err(self.error_of("lock a file"))
    }

    /// Returns the lock of an entry. `None` if another process holds it.
    ///
    /// # Errors
    ///
    /// When the lock file cannot be created.
    pub fn try_lock(&self, kind: &str, key: &str) -> Result<Option<Lock>, GuestError> {
        let file = self.lock_file(kind, key)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(self.error_of("lock a file")(error)),
        }
    }

    fn lock_file(&self, kind: &str, key: &str) -> Result<File, GuestError> {
        let path = self.directory.join("locks").join(format!("{kind}-{key}"));
        File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(path)
            .map_err(self.error_of("create a lock file"))
    }
}
