//! Protocol of a daemon's socket: length-prefixed JSON. A client first sends a [`Greeting`] with
//! its request. After it attaches to a stream, the client sends messages of type
//! [`svclab_model::protocol::stream::ToStream`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use svclab_judge::Observed;
use svclab_model::evidence::Attempt;
use svclab_model::plan::{ProbeProtocol, Target};
use svclab_model::protocol::stream::{Exec, FromStream};
use svclab_report::ps::LabInfo;
use svclab_runner::results::RunError;
use svclab_runner::results::journeys::CaseJourneys;

/// Version of the protocol.
pub(crate) const VERSION: u32 = 2;

/// First message of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Greeting {
    /// Version of the client, [`VERSION`].
    pub(crate) version: u32,
    /// Request as untyped JSON, so that a daemon of another version can parse the greeting and
    /// refuse.
    pub(crate) request: serde_json::Value,
}

/// Request to a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "ask")]
pub(crate) enum ClientRequest {
    /// Describes the lab. The reply is [`DaemonReply::About`].
    About,
    /// Runs a program. The replies are [`DaemonReply::StreamMessage`] until the program ends.
    Exec {
        /// Program to run, with the user's name of its namespace.
        exec: Box<Exec>,
    },
    /// Captures packets. The replies are [`DaemonReply::CaptureStarted`], then
    /// [`DaemonReply::StreamMessage`] until the capture ends.
    Capture {
        /// Namespaces, and interfaces in the form `NAMESPACE/INTERFACE`; empty for everything.
        targets: Vec<String>,
    },
    /// Runs one probe. The reply is [`DaemonReply::Probed`].
    Probe {
        /// Probe to run.
        request: ProbeRequest,
        /// Form of the explanation; `None` for no explanation.
        explain: Option<OutputForm>,
    },
    /// Runs the probes of the lab's file in the lab's current state. The reply is
    /// [`DaemonReply::Explained`].
    Explain {
        /// Name of the probe to explain; `None` for all.
        probe: Option<String>,
        /// Maximum wait for an answer, for probes without their own.
        max_wait: Duration,
        /// Form of the explanation.
        form: OutputForm,
    },
    /// Stops the lab. The reply is [`DaemonReply::Removed`]. The connection stays open until the
    /// daemon ends.
    Down,
}

/// Probe that a user requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProbeRequest {
    /// Name of the source.
    pub(crate) from: String,
    /// Name or address of the target, with its port.
    pub(crate) to: String,
    /// Protocol of the probe.
    pub(crate) protocol: ProbeProtocol,
    /// Number of connections.
    pub(crate) connections: u32,
    /// Maximum wait for an answer.
    pub(crate) max_wait: Duration,
}

/// Form of an explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum OutputForm {
    /// Text for people.
    Text {
        /// Whether every packet, namespace and rule is included.
        verbose: bool,
    },
    /// Data for JSON output.
    Data,
}

/// Explanation of packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RenderedJourneys {
    /// Text with colours as escape sequences.
    Text(String),
    /// Journeys of the case.
    Data(Box<CaseJourneys>),
}

/// Reply of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "tell"
)]
pub(crate) enum DaemonReply {
    /// Description of the lab.
    About {
        /// Name, state and kernel of the lab.
        info: Box<LabInfo>,
    },
    /// The request cannot be executed.
    Refused {
        /// Error for the user.
        error: RunError,
    },
    /// The capture starts.
    CaptureStarted {
        /// Interfaces whose packets the capture contains.
        interfaces: Vec<Interface>,
    },
    /// Message of an attached stream.
    StreamMessage {
        /// Content of the message.
        message: FromStream,
    },
    /// Result of a probe.
    Probed {
        /// Verdicts, and the explanation if requested.
        probed: Box<ProbeReport>,
    },
    /// Explanation of the lab's own probes.
    Explained {
        /// Explanation in the requested form.
        explained: RenderedJourneys,
    },
    /// The lab was removed.
    Removed,
}

/// Interface of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Interface {
    /// Name of its namespace.
    pub(crate) namespace: String,
    /// Name of the interface.
    pub(crate) name: String,
}

/// Result of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProbeReport {
    /// Namespace of the source.
    pub(crate) from: String,
    /// Address and port of the target.
    pub(crate) target: Target,
    /// Summary of the verdicts, endpoints and sources.
    pub(crate) observed: Observed,
    /// Result of each connection.
    pub(crate) attempts: Vec<Attempt>,
    /// Explanation of the packets; `None` if not requested.
    pub(crate) explained: Option<RenderedJourneys>,
}
