//! Journeys and address books of a case, for its initial state and for the state after each step.

use super::Prepared;
use svclab_journey::journey::{Journey, journeys};
use svclab_judge::AddressBook;
use svclab_model::evidence::Evidence;
use svclab_model::plan::{Plan, Probe};

impl Prepared {
    /// Returns the journeys of a watched case by stage: those before the steps first, then those
    /// after each step. Connections that stay open across a step are included.
    #[must_use]
    pub fn journeys(&self, evidence: &Evidence) -> Vec<Vec<Journey>> {
        let later = evidence.steps.iter().map(|step| &*step.evidence);
        let evidence_by_stage = std::iter::once(evidence).chain(later).enumerate();
        evidence_by_stage
            .map(|(at, seen)| journeys(&self.plan_of_stage(at), seen))
            .collect()
    }

    /// Returns the address books by stage: the initial state first, then the state after each step.
    #[must_use]
    pub fn books(&self) -> Vec<AddressBook<'_>> {
        let after = self.steps.iter();
        let after = after.map(|step| AddressBook::new(&step.cluster, &step.plan));
        let first = AddressBook::new(&self.cluster, &self.plan);
        std::iter::once(first).chain(after).collect()
    }

    /// Returns the plan of the stage after `steps` steps, with every probe of that stage. These
    /// include the connections that were opened before the step and those that the stage opens for
    /// the next step.
    fn plan_of_stage(&self, steps: usize) -> Plan {
        let previous = steps.checked_sub(1);
        let previous_step = previous.and_then(|made| self.steps.get(made));
        let mut plan = previous_step.map_or(&self.plan, |step| &step.plan).clone();
        let open = |at: Option<usize>| -> Vec<Probe> {
            let step = at.and_then(|at| self.plan.steps.get(at));
            step.map_or_else(Vec::new, |step| step.open.clone())
        };
        plan.probes.extend(open(previous));
        plan.probes.extend(open(Some(steps)));
        plan
    }
}
