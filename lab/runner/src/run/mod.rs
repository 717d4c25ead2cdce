//! Turns a user's request into results: selects cases, prepares them and runs them in parallel.

pub mod at_hand;
pub mod binary;
pub mod dumped;
pub mod execute;
mod explain;
#[cfg(test)]
mod fields_tests;
mod flows;
pub mod pool;
pub mod prepare;
pub mod refit;
pub mod select;
pub mod tasks;
mod told;
mod wrong;

pub use at_hand::with_plan_programs;
pub use binary::BinaryError;
pub use execute::{KeptCase, RunInput, RunOptions, execute, run_on_agent, to_run_error};
pub use explain::{ExplainedCase, explain, unknown_probe_error};
pub use prepare::{PrepareOptions, Prepared, PreparedStep, prepare, problems_to_diagnostics};
pub use select::{LabResult, SelectError, SelectedLab, select_labs, select_labs_each};
pub use tasks::caught;
pub use wrong::{InvalidCase, InvalidLab, prepare_case};
