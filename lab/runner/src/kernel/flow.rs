//! A stream of a standing lab's, as the front end holds it.

use tokio::sync::mpsc;

use super::agent::Agent;
use super::error::{KernelError, LostAgent};
use svclab_model::protocol::stream::{FromStream, Opening, StreamId, ToStream};
use svclab_model::protocol::{LabId, Request};

/// Opens streams of a lab; it does not keep the lab standing, only its agent.
#[derive(Debug, Clone)]
pub struct Opener {
    agent: Agent,
    lab: LabId,
}

impl Opener {
    pub(super) const fn new(agent: Agent, lab: LabId) -> Self {
        Self { agent, lab }
    }

    /// Attaches to the lab. What comes of it is heard.
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

/// A stream. Dropping it closes it: a program that runs for it is killed.
#[derive(Debug)]
pub struct Flow {
    opener: Opener,
    id: StreamId,
    heard: mpsc::Receiver<FromStream>,
}

impl Flow {
    /// Says something to it; once it is over nobody hears that.
    pub fn tell(&self, word: ToStream) {
        self.opener.agent.link.ask(Request::Tell {
            lab: self.opener.lab,
            stream: self.id,
            word,
        });
    }

    /// What it says next.
    ///
    /// # Errors
    ///
    /// How the agent was lost.
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
