//! Groups the connections of a case that went alike.

use crate::commands::explain::{ExplainedJourney, StageJourneys};

/// Connections that went alike.
pub(super) struct Connections<'a> {
    /// The first of them.
    pub explained: &'a ExplainedJourney,
    /// Number of the connections.
    pub count: usize,
    /// Connections of the same stage.
    pub stage: &'a [ExplainedJourney],
    /// Name of the step after which the connections were made.
    pub step: Option<&'a str>,
}

/// Returns the connections of a case, the failing ones first.
pub(super) fn connections(stages: &[StageJourneys]) -> Vec<Connections<'_>> {
    let of_stages = stages.iter().flat_map(|stage| {
        let groups = stage.groups().into_iter();
        groups.map(|(explained, count)| Connections {
            explained,
            count,
            stage: &stage.connections,
            step: stage.step.as_deref(),
        })
    });
    let mut all: Vec<Connections<'_>> = of_stages.collect();
    all.sort_by_key(|connections| !connections.explained.failing);
    all
}
