//! svclab builds a Kubernetes cluster's network out of Linux network
//! namespaces, writes the rules a real node would hold, sends real TCP and UDP
//! through them, and says what happened to the packets.
//!
//! This crate is the command, running labs, and [`Lab`] for tests of one's own.

pub mod cli;
mod library;
pub mod live;

pub use svclab_model::{evidence, plan};
pub use svclab_runner::results;

pub use library::{Lab, LabError, Ran};
