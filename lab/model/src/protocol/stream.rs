//! Defines the messages of a stream between a running lab and an attached client. A stream carries
//! the input and output of a running program, or the packets of a live capture.
//!
//! Each direction has flow control. At most [`MAX_UNACKNOWLEDGED`] messages of each of
//! [`FromStream::Output`], [`FromStream::Packets`] and [`ToStream::Input`] are unacknowledged.
//! [`ToStream::Ack`] and [`FromStream::InputAck`] are the acknowledgements.

use serde::{Deserialize, Serialize};

use super::Failure;
use crate::evidence::{Packet, bytes};

/// Number that the front end assigns to a stream of a lab.
pub type StreamId = u32;

/// Maximum number of unacknowledged messages of one kind.
pub const MAX_UNACKNOWLEDGED: usize = 16;

/// Maximum number of bytes in one message of input or output.
pub const MAX_CHUNK: usize = 32 << 10;

/// Request to open a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "open"
)]
pub enum StreamRequest {
    /// Program, which the agent starts for the stream.
    Exec(Exec),
    /// Capture of packets, from the time of the request.
    Capture {
        /// Interfaces to capture on.
        targets: Vec<CaptureTarget>,
    },
}

/// Program to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exec {
    /// Namespace in which the program runs.
    pub namespace: String,
    /// Program name or path.
    pub program: String,
    /// Arguments of the program, without its name.
    pub arguments: Vec<String>,
    /// Terminal of the program. `None` connects the program to pipes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,
    /// Environment variables to add to those that all programs of the lab have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<(String, String)>,
}

/// Terminal of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Terminal {
    /// Terminal type, the value of `TERM`.
    pub kind: String,
    /// Initial size of the terminal.
    pub size: TerminalSize,
}

/// Size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalSize {
    /// Number of rows.
    pub rows: u16,
    /// Number of columns.
    pub columns: u16,
}

/// Interfaces of one namespace to capture on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaptureTarget {
    /// Namespace name.
    pub namespace: String,
    /// Interface name. `None` captures on all interfaces of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// Output stream of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OutputStream {
    /// Standard output. On a terminal, standard output and standard error.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Message to a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "tell"
)]
pub enum ToStream {
    /// Standard input for the program. Acknowledged by [`FromStream::InputAck`].
    Input {
        /// Input bytes, at most [`MAX_CHUNK`].
        #[serde(with = "bytes")]
        bytes: Vec<u8>,
    },
    /// End of the program's input. Ends a capture.
    EndOfInput,
    /// Acknowledges one message of output or packets.
    Ack {
        /// Acknowledged stream. Packets count as [`OutputStream::Stdout`].
        stream: OutputStream,
    },
    /// The client no longer reads this output stream.
    StopReading {
        /// Output stream of the program.
        stream: OutputStream,
    },
    /// New size of the terminal.
    Resize {
        /// Rows and columns.
        size: TerminalSize,
    },
    /// Sends a signal to the process group of the program.
    Signal {
        /// Signal number.
        number: i32,
    },
}

/// Message from a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "heard"
)]
pub enum FromStream {
    /// The stream is open: the program or the capture is running.
    Opened,
    /// Output of the program. Acknowledged by [`ToStream::Ack`].
    Output {
        /// Stream that the program wrote to.
        of: OutputStream,
        /// Output bytes, at most [`MAX_CHUNK`].
        #[serde(with = "bytes")]
        bytes: Vec<u8>,
    },
    /// Acknowledges one message of input, which the program has read or no longer reads.
    InputAck,
    /// Captured packets, approximately in chronological order. Acknowledged by [`ToStream::Ack`].
    Packets {
        /// Packets since the previous message.
        packets: Vec<Packet>,
        /// Number of packets that the kernel dropped because its capture buffer was full.
        missed: u64,
    },
    /// The stream has ended.
    Ended {
        /// Reason for the end.
        end: StreamEnd,
    },
    /// The stream could not be opened, or it broke.
    Failed {
        /// Whether the program does not exist.
        #[serde(default)]
        program_missing: bool,
        /// Cause of the failure.
        failure: Failure,
    },
}

/// Reason for the end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "by")]
pub enum StreamEnd {
    /// The program exited.
    Status {
        /// Exit status of the program.
        code: i32,
    },
    /// A signal killed the program.
    Signal {
        /// Signal number.
        number: i32,
    },
    /// The client ended the capture.
    CaptureEnded,
}
