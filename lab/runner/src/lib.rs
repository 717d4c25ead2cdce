//! Where plans run, and what came of them.
//!
//! [`kernel`] starts agents on this host and in guests; [`run`] selects cases, prepares
//! them and runs them side by side; [`results`] is what a run returns; [`certify`]
//! compares the machine before a run with the machine after it.

pub mod certify;
pub mod kernel;
pub mod results;
pub mod run;
