//! Compares two kube-proxies, or one with the rules that svclab generates, by the packets in each
//! case.
//!
//! Output: the flows whose outcomes differ, and the rules that differ, at the start of a case and
//! after each of its steps. If the outcomes of a flow differ, the flow is tried again until chance
//! is ruled out.

mod case_comparison;
mod clients;
mod dependence;
mod document;
mod matches;
mod pairs;
mod pool;
mod rule_differences;
mod run;
mod shares;
mod side;

pub use document::{
    ChangedFlow, ComparedFlow, FailedCase, FlowId, FlowShift, NotCompared, RulesDiffer, SCHEMA,
    Share, SharesDiffer, ShiftTimes, SideInfo, SideName, SyncTimes, UndecidedFlow, Verification,
};
pub use matches::OneSidedMatches;
pub use pairs::{CasePair, PreparedPairs, prepare_pairs};
pub use run::verify;
pub use side::{Program, Side, VersionError, read_version};
