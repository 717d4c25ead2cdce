//! What the evidence says: whether a case came out as expected, and what of a
//! write-up's claims it confirms.

mod book;
mod check;
mod claim;
mod conclusion;
mod doubtful;
mod held;
pub mod journey;
mod judge;
mod moved;
mod packet;
mod paths;
mod probe;
mod resent;
mod rule;
pub mod settled;
mod tables;

pub use book::Book;
pub use check::Check;
pub use claim::{ClaimOutcome, ClaimVerdict};
pub use conclusion::{answer, conclusion, place, request, rewriting};
pub use judge::{Judge, Judgement, Moment, Subject};
pub use moved::{Moved, StepOutcome, words as duration_words};
pub use packet::{Frame, Payload};
pub use paths::{answerers, called_service};
pub use probe::{Observed, ProbeOutcome, observe, observed_words};
