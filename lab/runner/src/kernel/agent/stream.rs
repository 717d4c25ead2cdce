//! Streams of a running lab, on the side of the front end.

use tokio::sync::mpsc;

use super::Agent;
use crate::kernel::error::{KernelError, LostAgent};
use svclab_model::protocol::stream::{FromStream, StreamId, StreamRequest, ToStream};
use svclab_model::protocol::{LabId, Request};

/// Opens streams of a lab. Keeps the agent running, but not the lab.
#[derive(Debug, Clone)]
pub struct StreamOpener {
    agent: Agent,
    lab: LabId,
}

impl StreamOpener {
    pub(super) const fn new(agent: Agent, lab: LabId) -> Self {
        Self { agent, lab }
    }

    /// Opens a stream. [`StreamHandle::recv`] receives its messages.
    #[must_use]
    pub fn open(&self, opening: StreamRequest) -> StreamHandle {
        let (id, receiver) = self.agent.link.add_stream();
        self.agent.link.send(Request::OpenStream {
            lab: self.lab,
            stream: id,
            request: Box::new(opening),
        });
        StreamHandle {
            opener: self.clone(),
            id,
            receiver,
        }
    }
}

/// Open stream. Dropping the handle closes the stream and kills the program that runs for it.
#[derive(Debug)]
pub struct StreamHandle {
    opener: StreamOpener,
    id: StreamId,
    receiver: mpsc::Receiver<FromStream>,
}

impl StreamHandle {
    /// Sends a message. A stream that has ended ignores the message.
    pub fn send(&self, message: ToStream) {
        self.opener.agent.link.send(Request::StreamMessage {
            lab: self.opener.lab,
            stream: self.id,
            message,
        });
    }

    /// Receives the next message.
    ///
    /// # Errors
    ///
    /// When the agent was lost.
    pub async fn recv(&mut self) -> Result<FromStream, KernelError> {
        match self.receiver.recv().await {
            Some(message) => Ok(message),
            None => Err(KernelError::Lost(self.lost())),
        }
    }

    fn lost(&self) -> LostAgent {
        self.opener.agent.link.loss("connection closed")
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        self.opener.agent.link.send(Request::CloseStream {
            lab: self.opener.lab,
            stream: self.id,
        });
        self.opener.agent.link.remove_stream(self.id);
    }
}
