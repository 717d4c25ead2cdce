//! Lists the objects that can be further causes: after the end of a packet, nothing is known.

use std::collections::BTreeSet;

use super::{Cause, Explainer, Fact, Fault, RuleReference, deviates};
use crate::deviation::{Found, contains, differences};
use svclab_journey::journey::Journey;
use svclab_model::plan::Plan;
use svclab_planner::visibility;

impl Explainer<'_> {
    /// Returns the facts about objects that differ from the lab and that no packet of the failing
    /// journeys met, about properties of services that exclude expected endpoints, and about manual
    /// commands whose changes are unknown. Empty if all journeys succeeded.
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
        let excluding = self.excluded_endpoints(&failing);
        let unread = unread_commands(self.book.plan());
        if found.is_empty() && excluding.is_empty() {
            return unread.collect();
        }
        let (mut met, mut dropping) = (Found::new(), Vec::new());
        let mut known = Vec::new();
        for fact in failing.iter().flat_map(|journey| self.conclude(journey)) {
            match fact {
                Fact::Deviates {
                    namespace,
                    deviation,
                } => met.push((namespace, deviation)),
                other => {
                    dropping.extend(untraced_rule(&other));
                    known.push(other);
                }
            }
        }
        found.retain(|deviation| {
            let is_dropping = dropping.iter().any(|rule| rule.is_in(&deviation.1));
            !is_dropping && !contains(&met, deviation)
        });
        let excluding = excluding.into_iter().filter(|fact| !known.contains(fact));
        let found = found.into_iter().map(deviates);
        found.chain(excluding).chain(unread).collect()
    }

    /// Returns the properties of objects that exclude the expected endpoints of lost requests.
    fn excluded_endpoints(&self, failing: &[&Journey]) -> Vec<Fact> {
        let mut facts: Vec<Fact> = Vec::new();
        // The connections of a probe to one address have the same service.
        let mut asked = BTreeSet::new();
        let lost = failing
            .iter()
            .filter(|journey| !journey.verdict.is_success());
        for journey in lost {
            let Some(result) = self.unexpected.get(&journey.probe) else {
                continue;
            };
            let called = journey.addresses.map(|addresses| addresses.destination);
            if !asked.insert((&journey.probe, called)) {
                continue;
            }
            let conclusion = self.conclusion(journey);
            let missing = &result.missing_endpoints;
            let of_journey = conclusion
                .missing_endpoints(missing)
                .into_iter()
                .chain(conclusion.excluding_policies(missing));
            for fact in of_journey {
                if !facts.contains(&fact) {
                    facts.push(fact);
                }
            }
        }
        facts
    }
}

fn unread_commands(plan: &Plan) -> impl Iterator<Item = Fact> {
    let commands = plan.commands.iter();
    let unread = commands.filter(|command| visibility::lacks_evidence(command));
    unread.map(|command| Fact::UnreadCommand {
        namespace: command.namespace.clone(),
        command: command.to_string(),
    })
}

/// Returns the rule that dropped a packet where the kernel does not trace packets.
fn untraced_rule(fact: &Fact) -> Option<RuleReference> {
    match fact {
        Fact::Lost {
            cause:
                Cause::Kernel {
                    fault: Some(Fault::IngressRule { rule, .. }),
                    ..
                },
            ..
        } => Some(rule.clone()),
        _ => None,
    }
}
