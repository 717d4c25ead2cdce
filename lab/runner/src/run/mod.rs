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

pub use at_hand::at_hand;
pub use binary::BinaryError;
pub use execute::{Given, Kept, Options, execute, run_on, trouble};
pub use explain::{Explained, explain, no_such_probe};
pub use prepare::{Prepared, PreparedStep, Wishes, prepare, problems_to_diagnostics};
pub use select::{Chosen, Found, SelectError, choose, choose_each};
pub use tasks::caught;
pub use wrong::{WrongCase, WrongLab, prepare_or_tell};
