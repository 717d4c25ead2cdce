//! What is said on a holder's socket: length-prefixed JSON. Who connects says
//! first what it wants, and then, if it is attached to something, [`ToStream`]s.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use svclab_judge::Observed;
use svclab_model::evidence::Attempt;
use svclab_model::plan::{Protocol, Target};
use svclab_model::protocol::stream::{Exec, FromStream};
use svclab_report::ps::About;
use svclab_runner::results::RunError;
use svclab_runner::results::journeys::CaseJourneys;

/// The version of this conversation.
pub const VERSION: u32 = 2;

/// The first that is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// [`VERSION`].
    pub version: u32,
    /// What is wanted. Text, so that a holder of another version can say no.
    pub ask: serde_json::Value,
}

/// What is wanted of a holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "ask")]
pub enum Ask {
    /// Say what you hold. Answered by [`Told::About`].
    About,
    /// Run a program. Answered by [`Told::Heard`] until it is over.
    Exec {
        /// The program; its namespace as users name it.
        exec: Box<Exec>,
    },
    /// Tell of packets. Answered by [`Told::Capturing`] and then by
    /// [`Told::Heard`] until it is over.
    Capture {
        /// Namespaces, and interfaces as `NAMESPACE/INTERFACE`; everything without
        /// any.
        of: Vec<String>,
    },
    /// Try something. Answered by [`Told::Probed`].
    Probe {
        /// What.
        wish: Wish,
        /// Whether its packets are to be told of, and how.
        explain: Option<Form>,
    },
    /// Try what the lab's file says is to be tried, in the lab as it stands. Answered
    /// by [`Told::Explained`].
    Explain {
        /// The probe whose connections are wanted; all of them without a name.
        probe: Option<String>,
        /// How long an answer is waited for by probes that say nothing of it.
        patience: Duration,
        /// How they are told.
        form: Form,
    },
    /// Take the lab away. Answered by [`Told::Gone`]; the connection ends with the
    /// holder.
    Down,
}

/// A probe as a user asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// Who calls.
    pub from: String,
    /// Whom.
    pub to: String,
    /// What is spoken.
    pub protocol: Protocol,
    /// How often.
    pub connections: u32,
    /// How long an answer is waited for.
    pub patience: Duration,
}

/// How packets are told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Form {
    /// As text for people.
    Text {
        /// Every packet, every namespace and every rule.
        verbose: bool,
    },
    /// As data.
    Data,
}

/// Packets, told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Explained {
    /// As text, with colours as escape sequences.
    Text(String),
    /// As data.
    Data(Box<CaseJourneys>),
}

/// What a holder says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "tell")]
pub enum Told {
    /// What it holds.
    About {
        /// That.
        about: Box<About>,
    },
    /// What was asked cannot be done.
    Refused {
        /// Why.
        error: RunError,
    },
    /// What is captured.
    Capturing {
        /// The interfaces.
        interfaces: Vec<Interface>,
    },
    /// What a stream says.
    Heard {
        /// That.
        word: FromStream,
    },
    /// What became of a probe.
    Probed {
        /// That.
        probed: Box<Probed>,
    },
    /// What became of the packets of the lab's own probes.
    Explained {
        /// That.
        explained: Explained,
    },
    /// The lab is no more.
    Gone,
}

/// An interface of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its namespace.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

/// What became of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probed {
    /// The namespace it started in.
    pub from: String,
    /// Where it went.
    pub target: Target,
    /// What was seen.
    pub observed: Observed,
    /// Each connection.
    pub attempts: Vec<Attempt>,
    /// Its packets, if they were asked for.
    pub explained: Option<Explained>,
}
