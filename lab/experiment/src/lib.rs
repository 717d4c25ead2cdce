//! Runs experiments: labs that are built and probed repeatedly, with one change per run.
//!
//! [`verify`] compares two kube-proxies. [`why`] finds a change that makes a failing connection
//! succeed. [`bisect`] finds the differences between two labs that break a connection. [`run`]
//! executes these experiments on a kernel.

pub mod bisect;
pub mod run;
pub mod verify;
pub mod why;
