//! What happens during a run.

use std::sync::Arc;
use std::time::Duration;

use super::seen::Seen;
use super::{CaseResult, Results};

/// What happens during a run, in the order it does.
#[derive(Debug, Clone)]
pub enum Event {
    /// The run begins, with so many cases.
    Begun {
        /// How many cases were chosen.
        cases: usize,
    },
    /// A case has begun.
    Started {
        /// The case.
        case: String,
    },
    /// A case is over.
    Finished {
        /// What became of it.
        result: Box<CaseResult>,
        /// All that was seen of it, where somebody asked for that and there is
        /// something.
        seen: Option<Arc<Seen>>,
    },
    /// The run is over.
    Over {
        /// All results, in the order of the labs and their cases, whatever the
        /// order in which they ended.
        results: Box<Results>,
        /// From the first case's beginning to the last one's end. Cases run side
        /// by side, so this is not the sum of theirs.
        took: Duration,
    },
}
