//! Registers descriptors with the runtime's event loop.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use tokio::io::unix::AsyncFd;

/// Owner of one descriptor, which stays the same for the lifetime of the owner.
pub trait Owner: AsRawFd {}

impl Owner for OwnedFd {}
impl Owner for socket2::Socket {}

/// Registers a descriptor with the runtime's event loop.
///
/// # Errors
///
/// When the descriptor cannot be polled.
pub fn register<T: Owner>(owner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: an `Owner` keeps the same descriptor open for its lifetime, and closes the descriptor
    // after the `AsyncFd` around it was deregistered.
    unsafe { AsyncFd::register(owner) }.map_err(io::Error::from)
}
