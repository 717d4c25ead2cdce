//! What front end and agent say to each other: length-prefixed JSON, a
//! [`Request`] one way and an [`Event`] the other. It runs over a pipe to a
//! process on this host and over a serial port into a guest alike.

#[cfg(feature = "framing")]
pub mod frame;
pub mod stream;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::evidence::{Evidence, Refused, Surroundings};
use crate::plan::{Delta, Plan};
#[cfg(feature = "framing")]
pub use frame::{event_framing, framing, read_event};
use stream::{FromStream, Opening, StreamId, ToStream};

/// The version of this conversation; both ends must speak the same.
pub const VERSION: u32 = 5;

/// The number by which a front end speaks of one of an agent's labs.
pub type LabId = u32;

/// What a front end asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "ask")]
pub enum Request {
    /// Take up the conversation with an agent that may have slept: set the clock
    /// and stir the random numbers. Only for an agent that has a machine to
    /// itself. Answered by [`Event::Ready`].
    Greet {
        /// The time since the epoch, to the nanosecond.
        now: Duration,
        /// Random bytes that no other agent is given.
        seed: [u8; 32],
    },
    /// Say that you live. Answered by [`Event::Alive`].
    Ping,
    /// Build this lab and let it stand. Answered by [`Event::Built`] or
    /// [`Event::Failed`].
    Build {
        /// The number to speak of it by; must be free.
        lab: LabId,
        /// What to build.
        plan: Box<Plan>,
        /// It is going to be changed: what loads its rules waits for more.
        #[serde(default)]
        standing: bool,
    },
    /// Change a standing lab. Answered by [`Event::Changed`] or
    /// [`Event::Failed`], after which the lab is as it is and of no more use.
    Change {
        /// Which lab.
        lab: LabId,
        /// What changes.
        delta: Box<Delta>,
    },
    /// Forget the connections of a standing lab: conntrack's, and with them the
    /// counters of rules. Answered by [`Event::Forgotten`] or [`Event::Failed`].
    Forget {
        /// Which lab.
        lab: LabId,
    },
    /// Run the probes of a standing lab. Answered by [`Event::Probed`] or
    /// [`Event::Failed`].
    Probe {
        /// Which lab.
        lab: LabId,
    },
    /// End whatever a standing lab serves under a name, connections that it
    /// answers included; the kernel refuses who comes afterwards. Programs that
    /// were started end by it, too. Answered by
    /// [`Event::Stopped`] or [`Event::Failed`].
    Stop {
        /// Which lab.
        lab: LabId,
        /// The server's name in the plan: `pod/default/web`.
        server: String,
    },
    /// Serve the Kubernetes API in a namespace of a standing lab; where it is
    /// served already, whoever watches is told what changes. Answered by
    /// [`Event::Served`] or [`Event::Failed`].
    Serve {
        /// Which lab.
        lab: LabId,
        /// The namespace.
        namespace: String,
        /// The address there.
        at: SocketAddr,
        /// All objects there are, in the order in which changes are told.
        objects: Vec<serde_json::Value>,
    },
    /// Have an API server that serves already hold these objects in place of those of
    /// their names, and all others as they are. Answered by [`Event::Served`] or
    /// [`Event::Failed`].
    Put {
        /// Which lab.
        lab: LabId,
        /// The namespace.
        namespace: String,
        /// The address there.
        at: SocketAddr,
        /// The objects, in the order in which changes are told.
        objects: Vec<serde_json::Value>,
    },
    /// Start a program in a namespace of a standing lab and let it run; it ends
    /// with the lab, or by [`Request::Stop`]. Answered by [`Event::Started`] or
    /// [`Event::Failed`].
    Start {
        /// Which lab.
        lab: LabId,
        /// The namespace.
        namespace: String,
        /// By which it is spoken of; must be free.
        name: String,
        /// The program, by its name or its path.
        program: String,
        /// What it is told.
        arguments: Vec<String>,
    },
    /// Say how a program is that was started. Answered by [`Event::Looked`] or
    /// [`Event::Failed`].
    Look {
        /// Which lab.
        lab: LabId,
        /// The program's name there.
        name: String,
    },
    /// Run a program in a namespace of a standing lab and wait for its end.
    /// Answered by [`Event::Ran`] or [`Event::Failed`].
    Run {
        /// Which lab.
        lab: LabId,
        /// The namespace.
        namespace: String,
        /// The program, by its name or its path.
        program: String,
        /// What it is told.
        arguments: Vec<String>,
        /// What it reads.
        input: String,
    },
    /// Attach to a standing lab. Answered by [`Event::Heard`], until
    /// [`FromStream::Ended`] or [`FromStream::Failed`].
    Open {
        /// Which lab.
        lab: LabId,
        /// The number to speak of the stream by; must be free.
        stream: StreamId,
        /// What to attach to.
        opening: Box<Opening>,
    },
    /// Say something to a stream; one that is over does not hear it.
    Tell {
        /// Of which lab.
        lab: LabId,
        /// Which stream.
        stream: StreamId,
        /// What.
        word: ToStream,
    },
    /// Nobody listens to a stream any more: a program that runs for it is killed.
    Close {
        /// Of which lab.
        lab: LabId,
        /// Which stream.
        stream: StreamId,
    },
    /// Take a lab away. Answered by [`Event::Gone`].
    Remove {
        /// Which lab.
        lab: LabId,
    },
}

impl Request {
    /// Whether a lab answers it by an event of its own.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        !matches!(
            self,
            Self::Greet { .. }
                | Self::Ping
                | Self::Open { .. }
                | Self::Tell { .. }
                | Self::Close { .. }
        )
    }

    /// The lab it speaks of; none when it is for the agent itself.
    #[must_use]
    pub const fn lab(&self) -> Option<LabId> {
        match self {
            Self::Greet { .. } | Self::Ping => None,
            Self::Build { lab, .. }
            | Self::Change { lab, .. }
            | Self::Forget { lab }
            | Self::Probe { lab }
            | Self::Stop { lab, .. }
            | Self::Serve { lab, .. }
            | Self::Put { lab, .. }
            | Self::Start { lab, .. }
            | Self::Look { lab, .. }
            | Self::Run { lab, .. }
            | Self::Open { lab, .. }
            | Self::Tell { lab, .. }
            | Self::Close { lab, .. }
            | Self::Remove { lab } => Some(*lab),
        }
    }
}

/// What an agent answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "say")]
pub enum Event {
    /// The first message of an agent that is ready for work, and its answer to a
    /// greeting.
    Ready {
        /// [`VERSION`].
        protocol: u32,
        /// Where it finds itself.
        surroundings: Surroundings,
    },
    /// The agent lives.
    Alive,
    /// The agent could not make itself a place to work in; it ends after this.
    Unable {
        /// Why.
        failure: Failure,
    },
    /// What the agent is about to do, so that a death can be placed.
    Step {
        /// For which lab.
        lab: LabId,
        /// In words, beginning with a verb: "load iptables rules in node-1".
        step: String,
    },
    /// The lab stands.
    Built {
        /// Which lab.
        lab: LabId,
        /// By which of the agent's descriptors each namespace is held, for those
        /// who want to enter one from outside.
        descriptors: BTreeMap<String, i32>,
        /// What the API servers of its nodes refused its kube-proxies until they had
        /// written their rules.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        refused: Vec<Refused>,
    },
    /// The lab is another now.
    Changed {
        /// Which lab.
        lab: LabId,
    },
    /// The lab knows no connections.
    Forgotten {
        /// Which lab.
        lab: LabId,
    },
    /// The probes are over.
    Probed {
        /// Which lab.
        lab: LabId,
        /// What was seen.
        evidence: Box<Evidence>,
    },
    /// The server is no more.
    Stopped {
        /// Of which lab.
        lab: LabId,
    },
    /// The API server has these objects.
    Served {
        /// In which lab.
        lab: LabId,
        /// The resource version at which it has them.
        version: u64,
    },
    /// The program runs.
    Started {
        /// In which lab.
        lab: LabId,
    },
    /// How a program is that was started.
    Looked {
        /// In which lab.
        lab: LabId,
        /// How it is.
        running: Running,
    },
    /// The program has ended.
    Ran {
        /// In which lab.
        lab: LabId,
        /// What it left behind.
        finished: Finished,
    },
    /// A balancer has found a backend in another state than before, and has
    /// acted on it. Nobody asked for it: it is told whenever it happens.
    Turned {
        /// Of which lab.
        lab: LabId,
        /// What was found.
        turn: Turn,
    },
    /// A stream says something.
    Heard {
        /// Of which lab.
        lab: LabId,
        /// Which stream.
        stream: StreamId,
        /// What.
        word: FromStream,
    },
    /// The lab is no more: nothing of it is left.
    Gone {
        /// Which lab.
        lab: LabId,
    },
    /// What was asked could not be done; a lab that failed to build is gone.
    Failed {
        /// Which lab.
        lab: LabId,
        /// Why.
        failure: Failure,
    },
}

impl Event {
    /// Whether it answers a request: an agent sends as many of them as it is asked.
    #[must_use]
    pub const fn is_answer(&self) -> bool {
        self.lab().is_some()
            && !matches!(
                self,
                Self::Step { .. } | Self::Turned { .. } | Self::Heard { .. }
            )
    }

    /// The lab it speaks of; none when it is about the agent itself.
    #[must_use]
    pub const fn lab(&self) -> Option<LabId> {
        match self {
            Self::Ready { .. } | Self::Alive | Self::Unable { .. } => None,
            Self::Step { lab, .. }
            | Self::Built { lab, .. }
            | Self::Changed { lab }
            | Self::Forgotten { lab }
            | Self::Probed { lab, .. }
            | Self::Stopped { lab }
            | Self::Served { lab, .. }
            | Self::Started { lab }
            | Self::Looked { lab, .. }
            | Self::Ran { lab, .. }
            | Self::Turned { lab, .. }
            | Self::Heard { lab, .. }
            | Self::Gone { lab }
            | Self::Failed { lab, .. } => Some(*lab),
        }
    }
}

/// What a program left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Whether it ended with status 0.
    pub success: bool,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// How a program is that was started and let run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// How it ended: `it ended with status 1`; none while it runs.
    pub ended: Option<String>,
    /// The last that it said on standard output and standard error.
    pub said: String,
}

/// A backend that became well, or ceased to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// The namespace of the balancer that asks.
    pub namespace: String,
    /// Whom it asks.
    pub backend: SocketAddr,
    /// Whether the answer was right this time.
    pub well: bool,
}

/// Whose fault a failure is, which decides what a user is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fault {
    /// The lab asks for something that no kernel would take.
    Input,
    /// This machine lacks a program, a feature, a right or room.
    Machine,
    /// This machine was too busy for a verdict that can be relied on.
    Slow,
    /// Neither: a bug.
    Bug,
}

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Whose fault it is.
    pub fault: Fault,
    /// What was tried and what the kernel or a program said.
    pub message: String,
    /// What to do about it, a command where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The namespace and the line of rule text that was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Box<Rejected>>,
}

impl Failure {
    /// The machine was too busy for a verdict on something.
    #[must_use]
    pub fn slow(about: &str, why: impl std::fmt::Display) -> Self {
        Self {
            fault: Fault::Slow,
            message: format!("this machine is too busy for a verdict on {about}: {why}"),
            remedy: Some(
                "run fewer cases at once (`--jobs 1`), or end other programs that keep the \
                 processors busy"
                    .to_owned(),
            ),
            rejected: None,
        }
    }
}

/// Something that a program or the kernel refused to load.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rejected {
    /// The namespace it was meant for.
    pub namespace: String,
    /// The program; of what the agent tells the kernel itself, the one that would be
    /// called for it: `sysctl`, `ip route`, `ip rule`, `ip addr`, `ipvsadm`.
    pub program: String,
    /// The line; of no program, as that one would take it. Empty if none is named.
    pub line: String,
    /// Its number in what was loaded, from 1; 0 if none is named.
    #[serde(default)]
    pub number: usize,
    /// Other lines that are named with it, of which some may be well: the kernel finds
    /// fault with all of a chain in which one rule is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// What the program said of it.
    pub said: String,
}

/// Who would be called for what the agent tells the kernel itself; see
/// [`Rejected::program`].
pub const SYSCTL: &str = "sysctl";
/// As [`SYSCTL`], of routes.
pub const IP_ROUTE: &str = "ip route";
/// As [`SYSCTL`], of routing rules.
pub const IP_RULE: &str = "ip rule";
/// As [`SYSCTL`], of addresses.
pub const IP_ADDR: &str = "ip addr";
/// As [`SYSCTL`], of virtual servers.
pub const IPVSADM: &str = "ipvsadm";
