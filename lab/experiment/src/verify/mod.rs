//! Compares two kube-proxies, or one with the rules that svclab generates, by the packets in each
//! case.
//!
//! Output: the flows whose outcomes differ, and the rules that differ, at the start of a case and
//! after each of its steps.

mod chance;
mod document;
mod draws;
mod met;
mod shares;
#[cfg(test)]
mod simulated;
mod tally;
mod texts;

pub use chance::{FALSE_ALARM, LOOKS, Threshold};
pub use document::{
    Changed, Failed, Flow, Moved, Moving, NotCompared, Ran, RulesDiffer, SCHEMA, Share,
    SharesDiffer, SideOf, Sync, Times, Verification,
};
pub use draws::{Draws, Likeness, Unit};
pub use met::{OnlyMet, only_met};
pub use shares::{Pool, Spread};
pub use tally::{Outcome, Tally, tallies};
pub use texts::{differing_rules, since};
