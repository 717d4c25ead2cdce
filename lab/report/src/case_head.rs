//! Head of a case in explanations: its name, its kernel and the completeness of its evidence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_model::evidence::{DropEvidence, Evidence, StageEvidence};

/// Case that ran with full evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaseHead {
    /// Full name of the case.
    pub case: String,
    /// Release of the kernel that the case ran in.
    pub kernel: String,
    /// Whether all expectations hold. Absent for a running lab, which may have been changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<bool>,
    /// Number of packets that were not kept. If it is not 0, journeys may lack packets.
    pub packets_missed: u64,
    /// Number of trace events that were not kept.
    pub trace_events_missed: u64,
    /// Number of dropped packets that were not kept.
    pub drops_missed: u64,
    /// Reason why the kernel's drops could not be traced, and how to change that. The kernel's
    /// counters then replace the records of drops. Absent if drops were traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops_unknown: Option<String>,
}

impl CaseHead {
    /// Creates the head of a case. `expected` is `None` if the expectations were not checked.
    #[must_use]
    pub fn new(case: String, kernel: String, expected: Option<bool>, evidence: &Evidence) -> Self {
        let stages = evidence.stages.iter();
        let mut drops = stages.clone().map(|stage| &stage.drops);
        let sum = |missed: fn(&StageEvidence) -> u64| {
            let missed = stages.clone().map(missed);
            missed.fold(0, u64::saturating_add)
        };
        Self {
            case,
            kernel,
            expected,
            packets_missed: sum(|stage| stage.packets_missed),
            trace_events_missed: sum(|stage| stage.trace_missed),
            // The number of one stage includes those of the others.
            drops_missed: drops.clone().map(DropEvidence::missed).max().unwrap_or(0),
            drops_unknown: drops
                .find_map(DropEvidence::unavailable_reason)
                .map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_head_counts_missed_data_of_all_stages() {
        let stage = |packets_missed, trace_missed, dropped_missed| StageEvidence {
            packets_missed,
            trace_missed,
            drops: DropEvidence::Watched {
                missed: dropped_missed,
                dropped: Vec::new(),
            },
            ..StageEvidence::default()
        };
        let evidence = Evidence {
            stages: vec![stage(1, 10, 7), stage(2, 20, 7)],
            ..Evidence::default()
        };
        let head = CaseHead::new("lab/case".to_owned(), String::new(), None, &evidence);
        assert_eq!((head.packets_missed, head.trace_events_missed), (3, 30));
        assert_eq!(head.drops_missed, 7);
    }
}
