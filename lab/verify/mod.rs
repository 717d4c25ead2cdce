//! Two kube-proxies, or one and the rules that svclab generates, compared by what
//! packets did: which flows go elsewhere now, and by which rules, as a case begins and
//! after each of its steps.

mod chance;
mod document;
mod met;
mod runs;
mod tally;
mod texts;

pub use chance::{DOUBTFUL, Likeness, likeness};
pub use document::{
    Changed, Failed, Flow, Moved, Moving, NotCompared, Ran, RulesDiffer, SCHEMA, SideOf, Sync,
    Times, Verification,
};
pub use met::{OnlyMet, only_met};
pub use runs::Runs;
pub use tally::{Outcome, Tally, tallies};
pub use texts::{differing_rules, since};
