//! Stages of a case: its clusters, plans, journeys and address books.

use super::Prepared;
use svclab_journey::journey::{Journey, journeys};
use svclab_judge::{AddressBook, Explainer, JudgedStage, ProbeOutcome};
use svclab_model::evidence::Evidence;

impl Prepared {
    /// Returns the cluster and the plan of each stage.
    pub fn stages(&self) -> impl Iterator<Item = JudgedStage<'_>> + Clone {
        let first = JudgedStage {
            cluster: &self.cluster,
            plan: &self.plan,
        };
        let later = self.later_stages.iter().map(|stage| JudgedStage {
            cluster: &stage.cluster,
            plan: &stage.plan,
        });
        std::iter::once(first).chain(later)
    }

    /// Returns the address book of each stage, with the probes of the stage.
    pub fn books(&self) -> impl Iterator<Item = AddressBook<'_>> + Clone {
        let stages = self.stages().enumerate();
        stages.map(|(index, stage)| {
            let planned = self.plan.stages.get(index);
            let probes = planned.map_or(&[][..], |planned| &planned.probes);
            AddressBook::new(stage.cluster, stage.plan).with_probes(probes)
        })
    }

    /// Returns the explainer of each stage with evidence. `outcomes` are the results of the probes of
    /// all stages, if the evidence was judged.
    pub fn explainers<'a>(
        &'a self,
        evidence: &'a Evidence,
        outcomes: impl IntoIterator<Item = &'a ProbeOutcome> + Clone,
    ) -> impl Iterator<Item = Explainer<'a>> {
        let stages = self.books().zip(&evidence.stages);
        stages.map(move |(book, seen)| Explainer::new(book, seen).with_outcomes(outcomes.clone()))
    }

    /// Returns the name of the step that leads to a stage. `None` for the first stage.
    #[must_use]
    pub fn step_name(&self, stage: usize) -> Option<&str> {
        let step = self.plan.stages.get(stage)?.step.as_ref()?;
        Some(&step.name)
    }

    /// Returns the journeys of each stage of a watched case. Connections that stay open across a
    /// step are in the stages before and after it.
    #[must_use]
    pub fn journeys(&self, evidence: &Evidence) -> Vec<Vec<Journey>> {
        let planned = self.stages().zip(&self.plan.stages);
        planned
            .zip(&evidence.stages)
            .map(|((stage, planned), seen)| journeys(stage.plan, &planned.probes, seen))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use crate::run::{prepare, select_labs};
    use svclab_model::plan::Lifetime;

    #[test]
    fn prepared_stages_contain_open_probe_before_and_after_step() {
        let topologies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../topologies");
        let case = "service-changes/version=v1.30,mode=iptables".to_owned();
        let lab = select_labs(&[case], &topologies).unwrap().remove(0);
        let case = &lab.scenario.cases()[lab.cases[0]];
        let prepared = prepare(&lab, case, Duration::from_secs(1)).unwrap();
        let plan = &prepared.plan;
        assert_eq!(plan.stages.len(), case.steps.len() + 1);
        assert_eq!(prepared.stages().count(), plan.stages.len());
        assert_eq!(prepared.step_name(0), None);
        let open = case.spec.all_probes();
        let open: Vec<_> = open.filter(|(_, probe)| probe.across.is_some()).collect();
        assert!(!open.is_empty());
        for (name, probe) in open {
            let stages = plan.stages.iter().enumerate();
            let lifetimes: Vec<_> = stages
                .flat_map(|(index, stage)| {
                    let probes = stage.probes.iter().filter(|own| own.name == *name);
                    probes.map(move |own| (index, own.lifetime))
                })
                .collect();
            let after = plan.stage_of(name).unwrap();
            assert_eq!(prepared.step_name(after), probe.across.as_deref());
            let wanted = [(after - 1, Lifetime::Opened), (after, Lifetime::Reused)];
            assert_eq!(lifetimes, wanted, "{name}");
        }
    }
}
