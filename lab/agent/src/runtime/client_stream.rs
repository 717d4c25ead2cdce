//! Sends the messages of an attached stream to its client, at most a limited number without an
//! acknowledgement.

use std::rc::Rc;

use tokio::sync::Semaphore;

use svclab_model::protocol::Failure;
use svclab_model::protocol::stream::{FromStream, MAX_UNACKNOWLEDGED};

/// Function that sends a message of a stream to the client.
pub(crate) type SendToClient = Rc<dyn Fn(FromStream)>;

/// Returns the message for a failure other than a missing program.
pub(crate) fn failed_message(failure: Failure) -> FromStream {
    FromStream::Failed {
        program_missing: false,
        failure,
    }
}

/// Number of messages that may still be sent without an acknowledgement.
#[derive(Debug)]
pub(crate) struct Window(Semaphore);

impl Default for Window {
    fn default() -> Self {
        Self(Semaphore::new(MAX_UNACKNOWLEDGED))
    }
}

impl Window {
    /// Waits until one more message may be sent.
    pub(crate) async fn acquire(&self) {
        // Acquiring fails only for a closed semaphore, and this semaphore is never closed.
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }

    /// Records an acknowledgement.
    pub(crate) fn acknowledge(&self) {
        // An acknowledgement of a message that was never sent has no effect.
        if self.0.available_permits() < MAX_UNACKNOWLEDGED {
            self.0.add_permits(1);
        }
    }
}
