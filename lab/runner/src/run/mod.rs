//! Turns a user's request into results: selects cases, prepares them and runs them in parallel.

pub mod binary;
pub mod dumps;
pub mod execute;
mod explain;
#[cfg(test)]
mod fields_tests;
mod flows;
mod invalid;
pub mod pool;
pub mod prepare;
pub mod programs;
pub mod refit;
pub mod select;
mod stages;
pub mod tasks;

pub use binary::BinaryError;
pub use execute::{KeptCase, RunInput, RunOptions, execute, run_on_agent, to_run_error};
pub use explain::{ExplainedCase, explain, unknown_probe_error};
pub use invalid::{InvalidCase, InvalidLab, prepare_case};
pub use prepare::{PrepareOptions, Prepared, PreparedStep, prepare, problems_to_diagnostics};
pub use programs::with_plan_programs;
pub use select::{LabResult, SelectError, SelectedLab, select_labs, select_labs_each};
pub use tasks::catch_panic;
