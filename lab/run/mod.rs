//! From what a user asks for to results: choosing cases, preparing them, running
//! them side by side.

mod at_hand;
mod binary;
pub mod bisect;
pub mod dumped;
mod execute;
mod explain;
#[cfg(test)]
mod fields_tests;
mod flows;
mod pool;
mod prepare;
mod refit;
mod select;
mod tasks;
mod told;
pub mod verify;
pub mod why;
mod wrong;

pub(crate) use at_hand::at_hand;
pub use binary::BinaryError;
pub use execute::{Given, Kept, Options, execute, run_on, trouble};
pub use explain::{Explained, explain, no_such_probe};
pub use prepare::{Prepared, PreparedStep, Wishes, prepare, problems_to_diagnostics};
pub use select::{Chosen, Found, SelectError, choose, choose_each};
pub(crate) use tasks::caught;
pub use wrong::{WrongCase, WrongLab, prepare_or_tell};
