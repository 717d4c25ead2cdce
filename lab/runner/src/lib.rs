//! Runs plans on kernels and returns their results.
//!
//! [`kernel`] starts agents on this host and in guests. [`run`] selects cases, prepares them and
//! runs them in parallel. [`results`] holds the results of a run. [`certify`] compares the state of
//! the machine before and after a run.

#![warn(unreachable_pub)]

pub mod certify;
pub mod kernel;
pub mod results;
pub mod run;
