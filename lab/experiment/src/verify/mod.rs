//! Compares two kube-proxies, or one with the rules that svclab generates, by the packets in each
//! case.
//!
//! Output: the flows whose outcomes differ, and the rules that differ, at the start of a case and
//! after each of its steps.

mod chance;
mod document;
mod draws;
mod matches;
mod rule_differences;
mod shares;
#[cfg(test)]
mod simulated;
mod tally;

pub use chance::{FALSE_ALARM, LOOKS, Threshold};
pub use document::{
    ChangedFlow, FailedCase, FlowId, FlowShift, NotCompared, OutcomeCount, RulesDiffer, SCHEMA,
    Share, SharesDiffer, ShiftTimes, SideInfo, SideName, SyncTimes, Verification,
};
pub use draws::{DrawUnit, Draws, Likeness};
pub use matches::{OneSidedMatches, compare_matches};
pub use rule_differences::{differing_rules, new_differences};
pub use shares::{ShareGroup, SharePool};
pub use tally::{ConnectionOutcome, Tally, tallies};
