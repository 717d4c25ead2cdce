//! svclab builds the network of a Kubernetes cluster from Linux network namespaces, with the rules
//! of a real node. It sends TCP and UDP packets through them and reports where the packets went.
//!
//! This crate contains the command, running labs, and [`Lab`] for use in other tests.

#![warn(unreachable_pub)]
#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod cli;
mod embedded;
mod library;
mod live;

pub use svclab_model::{evidence, plan};
pub use svclab_report::results::Document;
pub use svclab_runner::results;

pub use library::{Lab, LabError, LabRun};
