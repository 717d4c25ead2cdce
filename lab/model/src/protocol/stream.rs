//! What passes between a standing lab and somebody who is attached to it: a
//! program whose input and output are passed through while it runs, or a capture
//! whose packets are told as they come.
//!
//! Nobody keeps what another has not asked for: of [`FromStream::Output`],
//! [`FromStream::Packets`] and [`ToStream::Input`] each, at most [`WINDOW`]
//! messages are under way that have not been answered by [`ToStream::Took`] or
//! [`FromStream::Fed`].

use serde::{Deserialize, Serialize};

use super::Failure;
use crate::evidence::{Packet, bytes};

/// The number by which a front end speaks of one of a lab's streams.
pub type StreamId = u32;

/// How many messages of one direction may be unanswered.
pub const WINDOW: usize = 16;

/// The most bytes in one message of input or output.
pub const CHUNK: usize = 32 << 10;

/// What is to be attached to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "open")]
pub enum Opening {
    /// A program, which is started for it.
    Exec(Exec),
    /// Packets, from now on.
    Capture {
        /// Of which interfaces.
        of: Vec<Captured>,
    },
}

/// A program that is to be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exec {
    /// The namespace.
    pub namespace: String,
    /// The program, by its name or its path.
    pub program: String,
    /// What it is told.
    pub arguments: Vec<String>,
    /// The terminal it is to have. Without one, its streams are pipes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,
    /// Variables of its environment, besides those that every program has here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<(String, String)>,
}

/// A terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Terminal {
    /// What `TERM` calls it.
    pub kind: String,
    /// How large it is.
    pub size: Size,
}

/// How large a terminal is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// From above to below.
    pub rows: u16,
    /// From left to right.
    pub columns: u16,
}

/// What of a namespace is to be captured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Captured {
    /// The namespace.
    pub namespace: String,
    /// One of its interfaces; all of them without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// One of the streams that a program writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Written {
    /// Standard output; on a terminal, both.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What is said to a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "tell")]
pub enum ToStream {
    /// What a program is to read. Answered by [`FromStream::Fed`].
    Input {
        /// The bytes, at most [`CHUNK`].
        #[serde(with = "bytes")]
        bytes: Vec<u8>,
    },
    /// There is no more to read; a capture is to come to its end.
    EndOfInput,
    /// One message of output, or of packets, has been dealt with.
    Took {
        /// Of which stream; packets are told on [`Written::Stdout`].
        of: Written,
    },
    /// Nobody reads that any more.
    Unread {
        /// Which stream.
        of: Written,
    },
    /// The terminal is of another size now.
    Resize {
        /// How large it is.
        size: Size,
    },
    /// Send a signal to the program and to all that it started in its group.
    Signal {
        /// The signal's number.
        number: i32,
    },
}

/// What a stream says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "heard")]
pub enum FromStream {
    /// It is open: the program runs, or packets are watched from now on.
    Opened,
    /// What a program wrote. Answered by [`ToStream::Took`].
    Output {
        /// Where to.
        of: Written,
        /// The bytes, at most [`CHUNK`].
        #[serde(with = "bytes")]
        bytes: Vec<u8>,
    },
    /// One message of input has been read, or was for nobody.
    Fed,
    /// Packets, in the order of time as far as that is known. Answered by
    /// [`ToStream::Took`].
    Packets {
        /// The packets.
        packets: Vec<Packet>,
        /// How many more there were that the kernel had no room for.
        missed: u64,
    },
    /// It is over.
    Ended {
        /// How.
        end: End,
    },
    /// It could not be opened, or broke.
    Failed {
        /// Whether there is no such program.
        #[serde(default)]
        absent: bool,
        /// Why.
        failure: Failure,
    },
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "by")]
pub enum End {
    /// The program ended with this status.
    Status {
        /// The status.
        code: i32,
    },
    /// The program was ended by this signal.
    Signal {
        /// The signal's number.
        number: i32,
    },
    /// The capture was to end.
    Wish,
}
