//! Turns a user's request into results: selects cases, prepares them and runs them in parallel.

pub mod execute;
mod explain;
#[cfg(test)]
mod fields_tests;
pub mod pool;
pub mod prepare;
mod programs;
pub mod select;
pub mod tasks;

pub use binary::BinaryError;
pub use execute::{KeptCase, RunInput, RunOptions, execute, run_on_agent, to_run_error};
pub use explain::{ExplainedCase, explain, unknown_probe_error};
pub use prepare::{
    InvalidCase, InvalidLab, PrepareOptions, Prepared, PreparedStep, prepare, prepare_case,
    problems_to_diagnostics,
};
pub use prepare::{binary, dumps, refit};
pub use programs::with_plan_programs;
pub use select::{LabResult, SelectError, SelectedLab, select_labs, select_labs_each};
pub use tasks::catch_panic;
