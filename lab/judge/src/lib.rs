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

pub use book::Book;
pub use check::Check;
pub use claim::{ClaimOutcome, ClaimVerdict};
pub use conclusion::{answer, conclusion, place, request, rewriting};
pub use judge::{Judge, Judgement, Moment, Subject};
pub use moved::{Moved, StepOutcome, words as duration_words};
pub use paths::{answerers, called_service};
pub use probe::{Observed, ProbeOutcome, observe, observed_words};
