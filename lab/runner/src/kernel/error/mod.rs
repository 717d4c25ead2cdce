//! Errors of running a plan.

pub(super) mod guest;
pub(super) mod guest_files;

use std::fmt;
use std::io;
use std::sync::Arc;

use super::out_of_memory;
use guest::GuestError;
use svclab_diagnostic::shortage;
use svclab_model::protocol::Failure;

/// Reason why a plan has no evidence.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KernelError {
    /// The agent program could not be started.
    #[error("cannot start the agent {program}: {source}")]
    AgentSpawn {
        /// Path of the agent program.
        program: String,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// The agent could not set up its environment.
    #[error("{0}")]
    AgentSetup(Failure),
    /// The agent could not execute a request.
    #[error("{0}")]
    RequestFailed(Failure),
    /// This machine lacks something that the plan needs. Nothing was run.
    #[error("{0}")]
    Missing(#[from] super::MissingRequirements),
    /// The user selected this host, but it lacks something that the plan needs. Nothing was run.
    #[error("{0}")]
    HostMissing(super::MissingRequirements),
    /// The kernel has less memory than the plan needs. Nothing was run.
    #[error(transparent)]
    NotEnoughMemory(#[from] super::NotEnoughMemory),
    /// No guest is available.
    #[error("{0}")]
    NoGuest(Arc<GuestError>),
    /// The kernel of a guest lacks something that the plan needs. Nothing was run.
    #[error("the guest kernel {release} cannot run the lab: {missing}")]
    GuestMissing {
        /// Release of the guest's kernel.
        release: String,
        /// Missing requirements.
        missing: super::MissingRequirements,
    },
    /// This host cannot run the plan, and no guest is available.
    #[error("{host}\nand no guest is available: {guest}")]
    NoKernel {
        /// Reason why this host cannot run the plan.
        host: Box<KernelError>,
        /// Reason why no guest is available.
        guest: Arc<GuestError>,
    },
    /// The agent uses another version of the protocol.
    #[error(
        "svclab-agent uses protocol version {agent_version}, not {own_version}: it is from another \
         release of svclab"
    )]
    ProtocolVersion {
        /// Protocol version of this program.
        own_version: u32,
        /// Protocol version of the agent.
        agent_version: u32,
    },
    /// The agent ended, sent nothing for too long, or sent invalid data.
    #[error("{0}")]
    Lost(LostAgent),
}

impl KernelError {
    /// Whether processes, open files or memory ran out. Guests need these resources, too.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        match self {
            Self::AgentSpawn { source, .. } => shortage::is_shortage(source),
            Self::AgentSetup(failure) => failure.remedy.as_deref().is_some_and(shortage::is_remedy),
            Self::Lost(lost) => lost.is_out_of_memory,
            _ => false,
        }
    }

    /// Whether the lost agent or guest was killed from outside: by `kill -9`, or by a kernel
    /// without free memory.
    #[must_use]
    pub fn is_kill(&self) -> bool {
        match self {
            Self::Lost(lost) => lost.cause.ends_with(out_of_memory::SIGKILL),
            Self::NoGuest(error) => {
                matches!(error.as_ref(), GuestError::Ended { cause, .. } if cause.ends_with(out_of_memory::SIGKILL))
            }
            _ => false,
        }
    }
}

impl From<GuestError> for KernelError {
    fn from(error: GuestError) -> Self {
        Self::NoGuest(Arc::new(error))
    }
}

impl From<Arc<GuestError>> for KernelError {
    fn from(error: Arc<GuestError>) -> Self {
        Self::NoGuest(error)
    }
}

/// Circumstances of the loss of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostAgent {
    /// Description of the loss: "killed by signal 9".
    pub cause: String,
    /// Last step that the agent reported before it started the step. `None` if it reported no step.
    pub last_step: Option<String>,
    /// End of the agent's standard error.
    pub stderr: String,
    /// Whether the agent ended because memory ran out.
    pub is_out_of_memory: bool,
}

/// Beginnings of [`LostAgent::cause`] for an agent that was given up.
pub(super) const SILENCE_PREFIXES: [&str; 2] = ["no message for", "no answer within"];

impl LostAgent {
    /// Whether the agent was given up because it sent nothing, as an agent that gets no processor
    /// does.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        SILENCE_PREFIXES
            .iter()
            .any(|silent| self.cause.starts_with(silent))
    }
}

impl fmt::Display for LostAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the agent was lost: {}", self.cause)?;
        match &self.last_step {
            Some(step) => write!(f, "; last step: {step}")?,
            None => f.write_str("; no step started")?,
        }
        if self.is_out_of_memory {
            f.write_str("; memory ran out")?;
        }
        if !self.stderr.is_empty() {
            write!(f, "\n  output: {}", self.stderr.replace('\n', "\n  "))?;
        }
        Ok(())
    }
}
