//! Groups the connections of a case that went alike.

use crate::text::conclusion::render_facts;
use crate::text::journey_groups::group_journeys;
use svclab_journey::journey::Journey;
use svclab_judge::Fact;
use svclab_runner::results::CaseResult;
use svclab_runner::run::CaseEvidence;

/// Connections that went alike.
pub(super) struct Connections<'a> {
    pub journey: &'a Journey,
    /// Number of the connections.
    pub count: usize,
    pub is_failing: bool,
    pub facts: Vec<Fact>,
    /// Connections of the same stage.
    pub stage: &'a [Journey],
    /// Name of the step after which the connections were made.
    pub step: Option<&'a str>,
}

/// Returns the connections of a case, the failing ones first.
pub(super) fn connections<'a>(result: &CaseResult, seen: &'a CaseEvidence) -> Vec<Connections<'a>> {
    let explainers = seen.prepared.explainers(&seen.evidence, &result.probes);
    let stages = seen.journeys.iter().zip(explainers).enumerate();
    let mut all: Vec<Connections<'a>> = stages
        .flat_map(|(stage, (journeys, explainer))| {
            let is_failing = |journey: &Journey| explainer.is_failing(journey);
            let groups = group_journeys(
                journeys.iter(),
                |journey| render_facts(&explainer.conclude(journey)).join("\n"),
                is_failing,
            );
            let step = seen.prepared.step_name(stage);
            let groups = groups.into_iter().map(|(journey, count)| Connections {
                journey,
                count,
                is_failing: is_failing(journey),
                facts: explainer.conclude(journey),
                stage: journeys,
                step,
            });
            groups.collect::<Vec<_>>()
        })
        .collect();
    all.sort_by_key(|connections| !connections.is_failing);
    all
}

impl Connections<'_> {
    /// Returns the explanation, one sentence for each fact.
    pub(super) fn sentences(&self) -> Vec<String> {
        render_facts(&self.facts)
    }
}
