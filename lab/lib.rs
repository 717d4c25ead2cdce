//! svclab builds a Kubernetes cluster's network out of Linux network
//! namespaces, writes the rules a real node would hold, sends real TCP and UDP
//! through them, and says what happened to the packets.
//!
//! Data moves one way: [`scenario`] reads what a user wrote and expands it into
//! cases, [`cluster`] is what exists in one case, [`rules`] is what each
//! component would write, [`plan`] is exactly what to apply, [`agent`] applies
//! it (the only code that touches a kernel), [`evidence`] is what was seen,
//! [`explain`] judges it, and [`report`] prints it. [`dump`] is what programs
//! print of a node that stands, read and compared; [`replay`] builds such a node again.
//! [`certify`] compares the machine before a run with the machine after it. [`live`]
//! keeps a lab standing and lets users into it. [`apiserver`] answers a real
//! kube-proxy that runs in a lab. [`verify`] compares what packets do with two of them,
//! [`why`] finds by trying what to change where a connection fails, and [`bisect`] which
//! of the differences between two labs break a call.
//!
//! In a test of one's own, [`Lab`] is where to begin.

/// Prints a line to standard error, whose reader may be gone. The standard library's
/// macro of this name panics then.
macro_rules! eprintln {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($part)*);
    }};
}

pub mod agent;
pub mod apiserver;
pub mod bisect;
pub mod bug;
pub mod certify;
pub mod cli;
pub mod cluster;
pub mod dump;
pub mod evidence;
pub mod exit_code;
pub mod explain;
pub mod files;
pub mod kernel;
mod library;
pub mod live;
pub mod plan;
pub mod printable;
pub mod protocol;
pub mod replay;
pub mod report;
pub mod rules;
pub mod run;
pub mod scenario;
mod seccomp;
pub mod shortage;
pub mod verify;
pub mod why;

pub use library::{Lab, LabError, Ran, SVCLAB};
