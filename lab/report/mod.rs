//! What a person or a program is told of a run. One stream of [`Event`]s feeds
//! every format.

mod results;

pub use results::{CaseResult, Outcome, Results, RunError, SCHEMA, Summary, Surroundings, Trouble};

/// What happens during a run, in the order it does.
#[derive(Debug, Clone, PartialEq)]
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
    },
    /// The run is over.
    Over {
        /// All results, in the order of the labs and their cases, whatever the
        /// order in which they ended.
        results: Box<Results>,
    },
}
