//! Streams of a running lab, on the side of the front end.

use tokio::sync::mpsc;

use super::agent::Agent;
use super::error::{KernelError, LostAgent};
use svclab_model::protocol::stream::{FromStream, Opening, StreamId, ToStream};
use svclab_model::protocol::{LabId, Request};

/// Opens streams of a lab. Keeps the agent running, but not the lab.
#[derive(Debug, Clone)]
pub struct Opener {
    agent: Agent,
    lab: LabId,
}

impl Opener {
    pub(super) const fn new(agent: Agent, lab: LabId) -> Self {
        Self { agent, lab }
    }

    /// Opens a stream. [`Flow::hear`] receives its messages.
    #[must_use]
    pub fn open(&self, opening: Opening) -> Flow {
        let (id, heard) = self.agent.link.listen();
        self.agent.link.ask(Request::Open {
            lab: self.lab,
            stream: id,
            opening: Box::new(opening),
        });
        Flow {
            opener: self.clone(),
            id,
            heard,
        }
    }
}

/// Open stream. Dropping the handle closes the stream and kills the program that runs for it.
#[derive(Debug)]
pub struct Flow {
    opener: Opener,
    id: StreamId,
    heard: mpsc::Receiver<FromStream>,
}

impl Flow {
    /// Sends a message. A stream that has ended ignores the message.
    pub fn tell(&self, word: ToStream) {
        self.opener.agent.link.ask(Request::Tell {
            lab: self.opener.lab,
            stream: self.id,
            word,
        });
    }

    /// Receives the next message.
    ///
    /// # Errors
    ///
    /// When the agent was lost.
    pub async fn hear(&mut self) -> Result<FromStream, KernelError> {
        match self.heard.recv().await {
            Some(word) => Ok(word),
            None => Err(KernelError::Lost(self.lost())),
        }
    }

    fn lost(&self) -> LostAgent {
        self.opener.agent.link.lost("it ended")
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.opener.agent.link.ask(Request::Close {
            lab: self.opener.lab,
            stream: self.id,
        });
        self.opener.agent.link.cease(self.id);
    }
}
