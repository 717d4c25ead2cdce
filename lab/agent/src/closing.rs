//! Closing sockets that the kernel takes its time for.
//!
//! For one it waits until no processor is busy with it any more, some twenty
//! milliseconds, and for several at once no longer.

use std::thread;

use tokio::sync::oneshot;

/// Sockets that are being closed, beside everything else that this process does.
#[must_use = "they are closed when it is over"]
pub struct Closing(Vec<oneshot::Receiver<()>>);

impl Closing {
    /// Begins to close each of them on a thread of its own.
    pub fn begin<T: Send + 'static>(sockets: impl IntoIterator<Item = T>) -> Self {
        let begin = |socket| {
            let (closed, over) = oneshot::channel();
            let close = move || {
                drop(socket);
                // Who waits for it may have been given up.
                let _ = closed.send(());
            };
            // Where no thread is to be had, it is closed at once.
            let _ = thread::Builder::new().name("close".to_owned()).spawn(close);
            over
        };
        Self(sockets.into_iter().map(begin).collect())
    }

    /// Waits until all are closed.
    pub async fn over(self) {
        for over in self.0 {
            let _ = over.await;
        }
    }
}
