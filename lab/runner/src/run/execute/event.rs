//! Events of a run.

use std::sync::Arc;
use std::time::Duration;

use super::case_evidence::CaseEvidence;
use crate::results::{CaseResult, Results};

/// Event of a run. Events are sent in the order in which they occur.
#[derive(Debug, Clone)]
pub enum Event {
    /// The run starts.
    RunStarted {
        /// Number of cases to run. A case counts once for each kernel that it runs in.
        cases: usize,
    },
    /// A case starts.
    CaseStarted {
        /// ID of the case.
        case: String,
    },
    /// A case ended.
    CaseEnded {
        /// Result of the case.
        result: Box<CaseResult>,
        /// Full evidence of the case. `None` unless requested, or if there is none.
        evidence: Option<Arc<CaseEvidence>>,
    },
    /// The run ended.
    RunEnded {
        /// Results of all cases, in the order of the labs and their cases.
        results: Box<Results>,
        /// Time from the start of the first case to the end of the last. Cases run in parallel, so
        /// this is not the sum of their times.
        duration: Duration,
    },
}
