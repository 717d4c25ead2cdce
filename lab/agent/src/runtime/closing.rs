//! Closes sockets in the background.
//!
//! For each socket, the kernel waits about 20 ms until no processor uses the socket any more.
//! Closing several sockets in parallel takes no longer.

use std::thread;

use tokio::sync::oneshot;

/// Sockets that are being closed in the background.
#[must_use = "`wait` returns when the sockets are closed"]
pub(crate) struct ClosingSockets(Vec<oneshot::Receiver<()>>);

impl ClosingSockets {
    /// Starts to close each socket on its own thread.
    pub(crate) fn start<T: Send + 'static>(sockets: impl IntoIterator<Item = T>) -> Self {
        let begin = |socket| {
            let (closed, done) = oneshot::channel();
            let close = move || {
                drop(socket);
                // The receiver may have been dropped.
                let _ = closed.send(());
            };
            // Without a thread, the closure is dropped and the socket closes at once.
            let _ = thread::Builder::new().name("close".to_owned()).spawn(close);
            done
        };
        Self(sockets.into_iter().map(begin).collect())
    }

    /// Waits until all sockets are closed.
    pub(crate) async fn wait(self) {
        for done in self.0 {
            let _ = done.await;
        }
    }
}
