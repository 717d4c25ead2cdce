//! Ctrl-C and its kin.

use std::future::Future;
use std::os::unix::net::UnixStream;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What the user asks to end, from when it is listened to.
pub struct Interrupts([Option<Signal>; 3]);

impl Interrupts {
    /// Begins to listen, on a runtime.
    pub fn listen() -> Self {
        // Without a handler the signal ends the process, which ends all agents
        // with it.
        let listen = |kind| signal(kind).ok();
        Self([
            listen(SignalKind::interrupt()),
            listen(SignalKind::terminate()),
            listen(SignalKind::hangup()),
        ])
    }

    /// Ends when the user wants everything to end; at once if that was said since
    /// this was asked last.
    pub async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            () = arrives(interrupt) => {}
            () = arrives(terminate) => {}
            () = arrives(hangup) => {}
        }
    }
}

async fn arrives(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
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

/// Drives work to its end on this thread. It is for the work itself to listen to
/// interrupts.
///
/// # Errors
///
/// When the system gives no event queue.
pub fn drive<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    room()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(work))
}

/// Drives work to its end on this thread, unless the user ends it first; then
/// what it holds is dropped, and there is no value.
///
/// # Errors
///
/// When the system gives no event queue.
pub fn unless_interrupted<T>(work: impl Future<Output = T>) -> std::io::Result<Option<T>> {
    drive(async {
        let mut interrupts = Interrupts::listen();
        tokio::select! {
            biased;
            value = work => Some(value),
            () = interrupts.next() => None,
        }
    })
}
