//! Defines the messages between a front end and an agent: [`Request`] in one direction, [`Event`]
//! in the other.
//!
//! Messages are length-prefixed JSON. They pass through a pipe to a process on the host, or through
//! a serial port into a guest.

mod failure;
#[cfg(feature = "framing")]
pub mod frame;
pub mod profile;
pub mod stream;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::evidence::{DropEvidence, Environment, Evidence, RejectedRequest};
use crate::plan::{Delta, Plan};
pub use failure::{
    Failure, FailureKind, IP_ADDR, IP_ROUTE, IP_RULE, IPVSADM, NSTAT, RejectedInput, SYSCTL,
};
#[cfg(feature = "framing")]
pub use frame::{event_framing, read_event, request_framing};
use profile::Profile;
use stream::{FromStream, StreamId, StreamRequest, ToStream};

/// Version of the protocol. Both ends must use the same version.
pub const VERSION: u32 = 12;

/// Number that the front end assigns to a lab of an agent.
pub type LabId = u32;

/// Message from a front end to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Request {
    /// Sets the clock and reseeds the random number generator of an agent that may have been
    /// suspended. Sent only to an agent that has a machine to itself. Answered by [`Event::Ready`].
    SetClock {
        /// Time since the epoch, with nanosecond precision.
        now: Duration,
        /// Random bytes, different for each agent.
        seed: [u8; 32],
    },
    /// Checks that the agent is alive. Answered by [`Event::Alive`].
    Ping,
    /// Builds a lab and keeps it running. Answered by [`Event::Built`] or [`Event::Failed`].
    Build {
        /// Lab number for later requests. The number must be unused.
        lab: LabId,
        /// Plan of the lab.
        plan: Box<Plan>,
        /// Whether [`Request::Change`] follows. If so, the programs that load rules keep running
        /// and wait for more input.
        #[serde(default)]
        accepts_changes: bool,
        /// Whether the agent measures its work for [`Request::TakeProfile`].
        #[serde(default)]
        is_profiled: bool,
    },
    /// Returns the costs that the agent measured since [`Request::Build`] or the previous profile.
    /// Answered by [`Event::Profiled`].
    TakeProfile {
        /// Lab number.
        lab: LabId,
    },
    /// Changes a running lab. Answered by [`Event::Changed`] or [`Event::Failed`]. After a failure
    /// the lab is in an undefined state and cannot be used further.
    Change {
        /// Lab number.
        lab: LabId,
        /// Difference between the current and the new plan.
        delta: Box<Delta>,
    },
    /// Resets the connection state of a running lab: conntrack entries, affinity and rule counters.
    /// Answered by [`Event::ConnectionsReset`] or [`Event::Failed`].
    ResetConnections {
        /// Lab number.
        lab: LabId,
    },
    /// Runs the probes of a running lab. Answered by [`Event::Probed`] or [`Event::Failed`].
    Probe {
        /// Lab number.
        lab: LabId,
    },
    /// Reports packets that the kernel dropped while the probes of a running lab run, for an agent
    /// that may not trace them. Not answered.
    ReportDrops {
        /// Lab number.
        lab: LabId,
        /// Drops since the previous report, and the total number of missed drops.
        drops: DropEvidence,
    },
    /// Stops all servers with one name in a running lab, together with their open connections. The
    /// kernel refuses later connections. Also stops a program started with [`Request::Start`].
    /// Answered by [`Event::Stopped`] or [`Event::Failed`].
    Stop {
        /// Lab number.
        lab: LabId,
        /// Name of the server in the plan (`pod/default/web`) or of the program.
        server: String,
    },
    /// Serves the Kubernetes API in a namespace of a running lab. If an API server is already
    /// there, it gets the new objects and sends the changes to its watchers. Answered by
    /// [`Event::Served`] or [`Event::Failed`].
    Serve {
        /// Lab number.
        lab: LabId,
        /// Namespace of the lab.
        namespace: String,
        /// Address of the API server in that namespace.
        address: SocketAddr,
        /// All objects of the API server, in the order in which watchers receive the changes.
        objects: Vec<serde_json::Value>,
    },
    /// Adds objects to a running API server. An object replaces the object of the same name. Other
    /// objects remain unchanged. Answered by [`Event::Served`] or [`Event::Failed`].
    UpdateObjects {
        /// Lab number.
        lab: LabId,
        /// Namespace of the lab.
        namespace: String,
        /// Address of the API server in that namespace.
        address: SocketAddr,
        /// Objects to add or replace, in the order in which watchers receive the changes.
        objects: Vec<serde_json::Value>,
    },
    /// Starts a program in a namespace of a running lab and lets it run. The program ends with the
    /// lab or by [`Request::Stop`]. Answered by [`Event::Started`] or [`Event::Failed`].
    Start {
        /// Lab number.
        lab: LabId,
        /// Namespace of the lab.
        namespace: String,
        /// Name of the program for later requests. The name must be unused.
        name: String,
        /// Program name or path.
        program: String,
        /// Arguments of the program, without its name.
        arguments: Vec<String>,
    },
    /// Queries the status of a started program. Answered by [`Event::ProgramStatus`] or
    /// [`Event::Failed`].
    ProgramStatus {
        /// Lab number.
        lab: LabId,
        /// Name of the program from [`Request::Start`].
        name: String,
    },
    /// Runs a program in a namespace of a running lab and waits until it ends. Answered by
    /// [`Event::ProgramFinished`] or [`Event::Failed`].
    Run {
        /// Lab number.
        lab: LabId,
        /// Namespace of the lab.
        namespace: String,
        /// Program name or path.
        program: String,
        /// Arguments of the program, without its name.
        arguments: Vec<String>,
        /// Standard input of the program.
        input: String,
    },
    /// Opens a stream of a running lab. Answered by [`Event::StreamMessage`] messages, up
    /// to [`FromStream::Ended`] or [`FromStream::Failed`].
    OpenStream {
        /// Lab number.
        lab: LabId,
        /// Stream number for later messages. The number must be unused.
        stream: StreamId,
        /// Program or capture to attach to.
        request: Box<StreamRequest>,
    },
    /// Sends a message to a stream. An ended stream ignores the message.
    StreamMessage {
        /// Lab number.
        lab: LabId,
        /// Stream number.
        stream: StreamId,
        /// Message to the stream.
        message: ToStream,
    },
    /// Closes a stream. The agent kills the program that runs for the stream.
    CloseStream {
        /// Lab number.
        lab: LabId,
        /// Stream number.
        stream: StreamId,
    },
    /// Removes a lab. Answered by [`Event::Removed`].
    Remove {
        /// Lab number.
        lab: LabId,
    },
}

impl Request {
    /// Whether a lab answers this request with an event.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        !matches!(
            self,
            Self::SetClock { .. }
                | Self::Ping
                | Self::ReportDrops { .. }
                | Self::OpenStream { .. }
                | Self::StreamMessage { .. }
                | Self::CloseStream { .. }
        )
    }

    /// Returns the lab of the request. `None` for a request to the agent itself.
    #[must_use]
    pub const fn lab(&self) -> Option<LabId> {
        match self {
            Self::SetClock { .. } | Self::Ping => None,
            Self::Build { lab, .. }
            | Self::TakeProfile { lab }
            | Self::Change { lab, .. }
            | Self::ResetConnections { lab }
            | Self::Probe { lab }
            | Self::ReportDrops { lab, .. }
            | Self::Stop { lab, .. }
            | Self::Serve { lab, .. }
            | Self::UpdateObjects { lab, .. }
            | Self::Start { lab, .. }
            | Self::ProgramStatus { lab, .. }
            | Self::Run { lab, .. }
            | Self::OpenStream { lab, .. }
            | Self::StreamMessage { lab, .. }
            | Self::CloseStream { lab, .. }
            | Self::Remove { lab } => Some(*lab),
        }
    }
}

/// Message from an agent to a front end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "say")]
pub enum Event {
    /// First message of an agent that is ready, and its answer to [`Request::SetClock`].
    Ready {
        /// Protocol version of the agent, see [`VERSION`].
        protocol: u32,
        /// Environment of the agent.
        environment: Environment,
    },
    /// Answer to [`Request::Ping`].
    Alive,
    /// The agent could not set up its environment. The agent exits after this event.
    StartFailed {
        /// Cause of the failure.
        failure: Failure,
    },
    /// Next action of the agent. If the agent dies, this event names the action that was running.
    Step {
        /// Lab number.
        lab: LabId,
        /// Description of the action, starting with a verb: "load iptables rules in node-1".
        step: String,
    },
    /// The lab is running.
    Built {
        /// Lab number.
        lab: LabId,
        /// File descriptor that the agent holds for each namespace, by namespace name. Other
        /// processes can enter a namespace through its descriptor.
        descriptors: BTreeMap<String, i32>,
        /// Requests of kube-proxies that the API servers rejected before the kube-proxies had
        /// written their rules.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        refused: Vec<RejectedRequest>,
    },
    /// Answer to [`Request::TakeProfile`].
    Profiled {
        /// Lab number.
        lab: LabId,
        /// Measured costs.
        profile: Profile,
    },
    /// The lab has been changed.
    Changed {
        /// Lab number.
        lab: LabId,
    },
    /// The lab's connection state was reset: conntrack, affinity, rule counters.
    ConnectionsReset {
        /// Lab number.
        lab: LabId,
    },
    /// All probes have finished.
    Probed {
        /// Lab number.
        lab: LabId,
        /// Evidence recorded while the probes ran.
        evidence: Box<Evidence>,
    },
    /// The server or program has stopped.
    Stopped {
        /// Lab number.
        lab: LabId,
    },
    /// The API server has the new objects.
    Served {
        /// Lab number.
        lab: LabId,
        /// Resource version of the API server after the change.
        version: u64,
    },
    /// The program is running.
    Started {
        /// Lab number.
        lab: LabId,
    },
    /// Status of a started program, see [`Request::ProgramStatus`].
    ProgramStatus {
        /// Lab number.
        lab: LabId,
        /// Current status and recent output.
        status: ProgramStatus,
    },
    /// The program run by [`Request::Run`] has ended.
    ProgramFinished {
        /// Lab number.
        lab: LabId,
        /// Exit status and output.
        output: ProgramOutput,
    },
    /// A health check found a backend in another state than before, and the balancer has applied
    /// the change. The agent sends this event without a request.
    BackendHealthChanged {
        /// Lab number.
        lab: LabId,
        /// Backend and its new state.
        change: BackendHealthChange,
    },
    /// Message from a stream.
    StreamMessage {
        /// Lab number.
        lab: LabId,
        /// Stream number.
        stream: StreamId,
        /// Message from the stream.
        message: FromStream,
    },
    /// The lab has been removed completely.
    Removed {
        /// Lab number.
        lab: LabId,
    },
    /// A request failed. A lab that failed to build has been removed.
    Failed {
        /// Lab number.
        lab: LabId,
        /// Cause of the failure.
        failure: Failure,
    },
}

impl Event {
    /// Whether this event answers a request. The agent sends exactly one such event for each
    /// request for which [`Request::is_answered`] is true.
    #[must_use]
    pub const fn is_answer(&self) -> bool {
        self.lab().is_some()
            && !matches!(
                self,
                Self::Step { .. } | Self::BackendHealthChanged { .. } | Self::StreamMessage { .. }
            )
    }

    /// Returns the lab of the event. `None` for an event of the agent itself.
    #[must_use]
    pub const fn lab(&self) -> Option<LabId> {
        match self {
            Self::Ready { .. } | Self::Alive | Self::StartFailed { .. } => None,
            Self::Step { lab, .. }
            | Self::Built { lab, .. }
            | Self::Profiled { lab, .. }
            | Self::Changed { lab }
            | Self::ConnectionsReset { lab }
            | Self::Probed { lab, .. }
            | Self::Stopped { lab }
            | Self::Served { lab, .. }
            | Self::Started { lab }
            | Self::ProgramStatus { lab, .. }
            | Self::ProgramFinished { lab, .. }
            | Self::BackendHealthChanged { lab, .. }
            | Self::StreamMessage { lab, .. }
            | Self::Removed { lab }
            | Self::Failed { lab, .. } => Some(*lab),
        }
    }
}

/// Result of a program that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgramOutput {
    /// Whether the program exited with status 0.
    pub success: bool,
    /// Standard output of the program.
    pub stdout: String,
    /// Standard error of the program.
    pub stderr: String,
}

/// Status of a program started with [`Request::Start`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgramStatus {
    /// Description of the program's end, to follow its name: `exited with status 1`. `None` while
    /// the program runs.
    pub ended: Option<String>,
    /// Most recent standard output and standard error of the program.
    pub output: String,
}

/// Change in the health of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendHealthChange {
    /// Namespace of the balancer that runs the health check.
    pub namespace: String,
    /// Address of the backend.
    pub backend: SocketAddr,
    /// Whether the latest health check succeeded.
    pub healthy: bool,
}
