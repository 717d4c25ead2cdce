//! Lists the objects that can be further causes: after the end of a packet, nothing is known.

use super::{Cause, Explainer, Fact, Fault, RuleReference, deviates};
use crate::deviation::{Found, contains, differences};
use svclab_journey::journey::Journey;

impl Explainer<'_> {
    /// Returns the facts about objects that differ from the lab and that no packet of the failing
    /// journeys met. Empty if all journeys succeeded.
    #[must_use]
    pub fn unmet<'j>(&self, journeys: impl IntoIterator<Item = &'j Journey>) -> Vec<Fact> {
        let journeys = journeys.into_iter();
        let failing: Vec<&Journey> = journeys
            .filter(|journey| self.is_failing(journey))
            .collect();
        if failing.iter().all(|journey| journey.verdict.is_success()) {
            return Vec::new();
        }
        let mut found = differences(&self.lab, &self.rules);
        if found.is_empty() {
            return Vec::new();
        }
        let (mut met, mut dropping) = (Found::new(), Vec::new());
        for fact in failing.iter().flat_map(|journey| self.conclude(journey)) {
            match fact {
                Fact::Deviates {
                    namespace,
                    deviation,
                } => met.push((namespace, deviation)),
                other => dropping.extend(untraced_rule(other)),
            }
        }
        found.retain(|deviation| {
            let is_dropping = dropping.iter().any(|rule| rule.is_in(&deviation.1));
            !is_dropping && !contains(&met, deviation)
        });
        found.into_iter().map(deviates).collect()
    }
}

/// Returns the rule that dropped a packet where the kernel does not trace packets.
fn untraced_rule(fact: Fact) -> Option<RuleReference> {
    match fact {
        Fact::Lost {
            cause:
                Cause::Kernel {
                    fault: Some(Fault::IngressRule { rule, .. }),
                    ..
                },
            ..
        } => Some(rule),
        _ => None,
    }
}
