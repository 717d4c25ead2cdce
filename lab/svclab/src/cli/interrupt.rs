//! Handles Ctrl-C, SIGTERM and SIGHUP.

use std::io;
use std::os::unix::net::UnixStream;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::CliError;

/// Signals that request the end of the command.
pub(crate) struct Interrupts([Option<Signal>; 3]);

impl Interrupts {
    /// Registers the signal handlers. Requires a tokio runtime.
    pub(crate) fn listen() -> Self {
        // If a handler cannot be registered, the signal ends the process and with it all agents.
        let listen = |kind| signal(kind).ok();
        Self([
            listen(SignalKind::interrupt()),
            listen(SignalKind::terminate()),
            listen(SignalKind::hangup()),
        ])
    }

    /// Waits for a signal. Returns immediately if one arrived since the last call.
    pub(crate) async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            () = recv_signal(interrupt) => {}
            () = recv_signal(terminate) => {}
            () = recv_signal(hangup) => {}
        }
    }
}

async fn recv_signal(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Number of socket pairs whose descriptors an event queue and its signal handlers need, with
/// reserve.
const DESCRIPTOR_PAIRS: usize = 5;

/// Checks that enough descriptors are available to start. Without the descriptors for signals,
/// tokio panics (1.54, `signal/unix.rs`).
fn check_descriptors() -> io::Result<()> {
    let pairs: io::Result<Vec<_>> = (0..DESCRIPTOR_PAIRS).map(|_| UnixStream::pair()).collect();
    pairs.map(drop)
}

/// Runs a future to completion on this thread. The future itself must handle interrupts.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, CliError> {
    check_descriptors().map_err(CliError::Start)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CliError::Start)?;
    Ok(runtime.block_on(work))
}

/// Runs a future to completion on this thread. If the user interrupts, drops the future and returns
/// [`CliError::Interrupted`].
pub(crate) fn run_interruptible<T>(work: impl Future<Output = T>) -> Result<T, CliError> {
    block_on(async {
        let mut interrupts = Interrupts::listen();
        tokio::select! {
            biased;
            value = work => Ok(value),
            () = interrupts.next() => Err(CliError::Interrupted),
        }
    })?
}
