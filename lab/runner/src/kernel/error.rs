//! Why a plan came to no evidence.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::guest::GuestError;
use super::memory;
use svclab_diagnostic::shortage;
use svclab_model::protocol::Failure;

/// Why a plan came to no evidence.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KernelError {
    /// The agent's program could not be started.
    #[error("cannot start the agent {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// What the system says.
        source: Arc<io::Error>,
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
    /// This host was asked for by name and lacks what the plan needs; nothing
    /// was tried.
    #[error("{0}")]
    HostLacks(super::Missing),
    /// The kernel has not the memory that the plan takes; nothing was tried.
    #[error(transparent)]
    NoRoom(#[from] super::NoRoom),
    /// There is no guest to run in.
    #[error("{0}")]
    Guest(Arc<GuestError>),
    /// A guest's kernel lacks what the plan needs; nothing was tried.
    #[error("the guest kernel {release} is not enough: {missing}")]
    GuestLacks {
        /// Which kernel.
        release: String,
        /// What is missing.
        missing: super::Missing,
    },
    /// This host cannot run the plan, and there is no guest.
    #[error("{host}\nand there is no guest to run it in: {guest}")]
    Nowhere {
        /// Why not on this host.
        host: Box<KernelError>,
        /// Why not in a guest.
        guest: Arc<GuestError>,
    },
    /// The agent speaks another version of the protocol.
    #[error(
        "svclab-agent speaks version {theirs} of the protocol, not {ours}: it belongs to another svclab"
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

impl KernelError {
    /// Whether processes, open files or memory ran out. Guests need these, too.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        match self {
            Self::Start { source, .. } => shortage::is_of_this_process(source),
            Self::Unable(failure) => failure.remedy.as_deref().is_some_and(shortage::is_remedy),
            Self::Lost(lost) => lost.starved,
            _ => false,
        }
    }

    /// Whether what was lost was ended from outside: by `kill -9`, or by a kernel
    /// that had no memory left.
    #[must_use]
    pub fn tells_of_a_kill(&self) -> bool {
        match self {
            Self::Lost(lost) => lost.how.ends_with(memory::KILLED),
            Self::Guest(error) => {
                matches!(error.as_ref(), GuestError::Died { how, .. } if how.ends_with(memory::KILLED))
            }
            _ => false,
        }
    }
}

impl From<GuestError> for KernelError {
    fn from(error: GuestError) -> Self {
        Self::Guest(Arc::new(error))
    }
}

impl From<Arc<GuestError>> for KernelError {
    fn from(error: Arc<GuestError>) -> Self {
        Self::Guest(error)
    }
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
    /// Whether there was no memory for it.
    pub starved: bool,
}

/// What an agent is said to have done that was given up.
pub(super) const SILENT: [&str; 2] = ["it has not said anything for", "it did not answer within"];

impl LostAgent {
    /// Whether it was given up because nothing was heard of it, as of one that gets no
    /// processor.
    #[must_use]
    pub fn was_silent(&self) -> bool {
        SILENT.iter().any(|silent| self.how.starts_with(silent))
    }
}

impl fmt::Display for LostAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the agent was lost: {}", self.how)?;
        match &self.step {
            Some(step) => write!(f, "; its last step was to {step}")?,
            None => f.write_str("; it had begun nothing")?,
        }
        if self.starved {
            f.write_str("; there was not enough memory")?;
        }
        if !self.said.is_empty() {
            write!(f, "\n  it said: {}", self.said.replace('\n', "\n  "))?;
        }
        Ok(())
    }
}
