//! Compares evidence with expectations: whether a case meets its expectations, and which claims of
//! a write-up the case confirms.

mod address_book;
mod check;
mod claim;
mod conclusion;
mod doubtful;
mod judge;
mod kernel_state;
mod nft_tables;
mod paths;
mod probe;
mod retransmissions;
mod rule;
mod traffic_shift;

pub use address_book::AddressBook;
pub use check::Check;
pub use claim::{ClaimOutcome, ClaimVerdict};
pub use conclusion::{conclusion, describe_rewrite, describe_rule, find_reply, find_request};
pub use judge::{Judge, JudgedCase, JudgedStage, Judgement};
pub use paths::{called_service, possible_endpoints};
pub use probe::{Observed, ProbeOutcome, render_observed, summarize};
pub use traffic_shift::{StepOutcome, TrafficShift, render_duration};
