//! Descriptors that the runtime waits on.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use tokio::io::unix::AsyncFd;

/// An owner of one descriptor, the same one for as long as it lives.
pub trait Owner: AsRawFd {}

impl Owner for OwnedFd {}
impl Owner for socket2::Socket {}

/// Has the runtime wait on a descriptor.
///
/// # Errors
///
/// When the descriptor cannot be polled.
pub fn register<T: Owner>(owner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: an `Owner` keeps its one descriptor open for as long as it lives
    // and closes it after the `AsyncFd` around it was deregistered.
    unsafe { AsyncFd::register(owner) }.map_err(io::Error::from)
}
