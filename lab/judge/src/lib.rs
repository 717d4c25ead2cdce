//! Compares evidence with expectations: whether a case meets its expectations, and which claims of
//! a write-up the case confirms.

mod book;
mod check;
mod claim;
mod conclusion;
mod doubtful;
mod held;
mod judge;
mod moved;
mod paths;
mod probe;
mod resent;
mod rule;
mod tables;

pub use book::AddressBook;
pub use check::Check;
pub use claim::{ClaimOutcome, ClaimVerdict};
pub use conclusion::{answer, conclusion, describe_rewrite, describe_rule, find_request};
pub use judge::{Judge, JudgedCase, JudgedStage, Judgement};
pub use moved::{Moved, StepOutcome, render_duration};
pub use paths::{called_service, possible_endpoints};
pub use probe::{Observed, ProbeOutcome, render_observed, summarize};
