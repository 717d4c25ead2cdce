//! Ctrl-C and its kin.

use std::future::Future;
use std::os::unix::net::UnixStream;

use tokio::signal::unix::{SignalKind, signal};

/// Ends when the user wants everything to end.
pub async fn interrupted() {
    let arrives = |kind| async move {
        match signal(kind) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            // Without a handler the signal ends the process, which ends all
            // agents with it.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = arrives(SignalKind::interrupt()) => {}
        () = arrives(SignalKind::terminate()) => {}
        () = arrives(SignalKind::hangup()) => {}
    }
}

/// How many pairs of descriptors an event queue and its signals take, and some.
const PAIRS: usize = 5;

/// Whether there are enough descriptors to begin at all. Without those that
/// signals take, tokio panics (1.54, `signal/unix.rs`).
fn room() -> std::io::Result<()> {
    let pairs: std::io::Result<Vec<_>> = (0..PAIRS).map(|_| UnixStream::pair()).collect();
    pairs.map(drop)
}

/// Drives a future to its end on this thread, unless the user ends it first;
/// then what it holds is dropped, and there is no value.
///
/// # Errors
///
/// When the system gives no event queue.
pub fn unless_interrupted<T>(work: impl Future<Output = T>) -> std::io::Result<Option<T>> {
    room()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(async {
        tokio::select! {
            // Work that itself waits for the user to end it has a value then.
            biased;
            value = work => Some(value),
            () = interrupted() => None,
        }
    }))
}
