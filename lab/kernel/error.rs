//! Why a plan came to no evidence.

use std::fmt;
use std::io;

use crate::protocol::Failure;

/// Why a plan came to no evidence.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The agent's program could not be started.
    #[error("cannot start the agent {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// The agent found no place to work in.
    #[error("{0}")]
    Unable(Failure),
    /// The agent could not do what it was asked.
    #[error("{0}")]
    Failed(Failure),
    /// This machine lacks what the plan needs; nothing was tried.
    #[error("{0}")]
    Missing(#[from] super::Missing),
    /// The agent speaks another version of the protocol.
    #[error(
        "the agent speaks version {theirs} of the protocol, not {ours}: it is another svclab's"
    )]
    Protocol {
        /// This program's version.
        ours: u32,
        /// The agent's.
        theirs: u32,
    },
    /// The agent died, fell silent or spoke nonsense.
    #[error("{0}")]
    Lost(LostAgent),
}

/// How an agent was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostAgent {
    /// What happened: "it ended with signal 9".
    pub how: String,
    /// The last thing it said it was about to do.
    pub step: Option<String>,
    /// The end of what it wrote to standard error.
    pub said: String,
}

impl fmt::Display for LostAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the agent was lost: {}", self.how)?;
        match &self.step {
            Some(step) => write!(f, "; its last step was to {step}")?,
            None => f.write_str("; it had begun nothing")?,
        }
        if !self.said.is_empty() {
            write!(f, "\n  it said: {}", self.said.replace('\n', "\n  "))?;
        }
        Ok(())
    }
}
