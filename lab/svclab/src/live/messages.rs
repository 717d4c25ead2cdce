//! Protocol of a daemon's socket: length-prefixed JSON. A client first sends a [`Greeting`] with
//! its request. After it attaches to a stream, the client sends messages of type
//! [`svclab_model::protocol::stream::ToStream`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use svclab_judge::Observed;
use svclab_model::evidence::Attempt;
use svclab_model::plan::{ProbeProtocol, Target};
use svclab_model::protocol::stream::{Exec, FromStream};
use svclab_report::explain::CaseJourneys;
use svclab_report::ps::LabInfo;
use svclab_runner::results::RunError;

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
        request: ProbeRequest,
        /// Form of the explanation; `None` for no explanation.
        explain: Option<OutputForm>,
    },
    /// Runs the probes of the lab's file in the lab's current state. The reply is
    /// [`DaemonReply::Explained`].
    Explain {
        probe: Option<String>,
        /// Maximum wait for an answer, for probes without their own.
        max_wait: Duration,
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
    pub(crate) from: String,
    /// Name or address of the target, with its port.
    pub(crate) to: String,
    pub(crate) protocol: ProbeProtocol,
    pub(crate) connections: u32,
    pub(crate) max_wait: Duration,
}

/// Form of an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum OutputForm {
    /// Text for people.
    Text {
        /// Whether every packet, namespace and rule is included.
        verbose: bool,
    },
    /// Data for JSON output.
    Data,
    /// Both, and a page.
    Page {
        /// Whether every packet, namespace and rule is in the text.
        verbose: bool,
        /// Title of the page.
        title: String,
        /// Command that asks again.
        command: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RenderedJourneys {
    /// Text with colours as escape sequences.
    Text(String),
    Data(Box<CaseJourneys>),
    Page {
        text: String,
        data: Box<CaseJourneys>,
        /// HTML document with everything in it.
        page: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "tell"
)]
pub(crate) enum DaemonReply {
    About {
        /// Name, state and kernel of the lab.
        info: Box<LabInfo>,
    },
    /// The request cannot be executed.
    Refused {
        error: RunError,
    },
    /// The capture starts.
    CaptureStarted {
        /// Interfaces whose packets the capture contains.
        interfaces: Vec<Interface>,
    },
    StreamMessage {
        message: FromStream,
    },
    Probed {
        /// Verdicts, and the explanation if requested.
        probed: Box<ProbeReport>,
    },
    /// Explanation of the lab's own probes.
    Explained {
        explained: RenderedJourneys,
    },
    Removed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Interface {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProbeReport {
    pub(crate) from: String,
    pub(crate) target: Target,
    /// Summary of the verdicts, endpoints and sources.
    pub(crate) observed: Observed,
    pub(crate) attempts: Vec<Attempt>,
    /// Explanation of the packets; `None` if not requested.
    pub(crate) explained: Option<RenderedJourneys>,
}
