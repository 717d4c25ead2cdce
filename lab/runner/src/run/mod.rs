//! Turns a user's request into results: selects cases, prepares them and runs them in parallel.

pub mod execute;
mod explain;
#[cfg(test)]
mod fields_tests;
mod kernel_error;
pub mod prepare;
pub mod select;
mod summary;
pub mod tasks;

pub use binary::BinaryError;
pub use execute::{
    CaseEvidence, Event, KeptCase, RunControl, RunInput, RunOptions, ShardSelection, execute,
    run_on_agent,
};
pub use explain::{ExplainedCase, explain, unknown_probe_error};
pub use kernel_error::to_run_error;
pub use prepare::{
    InvalidCase, PrepareOptions, Prepared, PreparedStage, prepare, prepare_case,
    problems_to_diagnostics,
};
pub use prepare::{binary, dumps, refit};
pub use select::{
    EmbeddedLab, InvalidLab, LabDirectory, LabResult, LabSearch, SelectError, SelectedLab,
    select_labs, select_labs_each,
};
pub use tasks::catch_panic;
