//! Runs blocking work in a thread of its own.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, SendError};
use std::thread;

use tokio::sync::oneshot;

/// Runs work in another thread, so that other tasks are not delayed. Runs it in this thread if no
/// thread can be started. A panic of the work continues in the caller.
///
/// The runtime does not wait for the thread at its end, unlike for a thread of
/// [`tokio::task::spawn_blocking`].
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (work_sender, work_receiver) = mpsc::channel();
    let (sender, receiver) = oneshot::channel();
    let spawned = thread::Builder::new().spawn(move || {
        if let Ok(work) = work_receiver.recv() {
            let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
        }
    });
    drop(spawned);
    // Without a thread, the work has no receiver.
    if let Err(SendError(work)) = work_sender.send(work) {
        return work();
    }
    receive(receiver).await
}

/// Runs work in another thread, like [`run_blocking`]. The work may wait for a task of this thread.
///
/// # Errors
///
/// Returns an error if no thread can be started.
pub(crate) async fn run_in_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = oneshot::channel();
    thread::Builder::new().spawn(move || {
        let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
    })?;
    Ok(receive(receiver).await)
}

async fn receive<T>(receiver: oneshot::Receiver<thread::Result<T>>) -> T {
    match receiver.await {
        Ok(Ok(done)) => done,
        // The panic hook has reported the panic in the thread.
        Ok(Err(payload)) => resume_unwind(payload),
        Err(_) => unreachable!("the thread sends the result of the work"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::catch_panic;

    #[tokio::test]
    async fn run_blocking_returns_result_of_thread() {
        let caller = thread::current().id();
        let id = run_blocking(|| thread::current().id()).await;
        assert_ne!(id, caller);
    }

    #[tokio::test]
    async fn run_blocking_panic_continues_in_caller() {
        let error = catch_panic(run_blocking(|| panic!("midway"))).await;
        let error: Result<(), _> = error;
        let error = error.expect_err("the work panics");
        assert_eq!(error.message, "svclab panicked: midway");
    }
}
