//! Where the packets of a case went: before its steps, and after each of them.

use super::prepare::Prepared;
use svclab_journey::journey::{Journey, journeys};
use svclab_judge::Book;
use svclab_model::evidence::Evidence;
use svclab_model::plan::{Plan, Probe};

impl Prepared {
    /// The connections of a case that was watched, those before its steps first, then
    /// those after each, with what was open across it.
    #[must_use]
    pub fn journeys(&self, evidence: &Evidence) -> Vec<Vec<Journey>> {
        let later = evidence.steps.iter().map(|step| &*step.evidence);
        let all = std::iter::once(evidence).chain(later).enumerate();
        all.map(|(at, seen)| journeys(&self.stage(at), seen))
            .collect()
    }

    /// The names that there are before the steps, and after each of them.
    #[must_use]
    pub fn books(&self) -> Vec<Book<'_>> {
        let after = self.steps.iter();
        let after = after.map(|step| Book::new(&step.cluster, &step.plan));
        let first = Book::new(&self.cluster, &self.plan);
        std::iter::once(first).chain(after).collect()
    }

    /// How it stands before the steps, or after so many of them, with everything that is
    /// tried then: what is spoken on and what is opened, too.
    fn stage(&self, steps: usize) -> Plan {
        let made = steps.checked_sub(1);
        let stands = made.and_then(|made| self.steps.get(made));
        let mut plan = stands.map_or(&self.plan, |step| &step.plan).clone();
        let open = |at: Option<usize>| -> Vec<Probe> {
            let step = at.and_then(|at| self.plan.steps.get(at));
            step.map_or_else(Vec::new, |step| step.open.clone())
        };
        plan.probes.extend(open(made));
        plan.probes.extend(open(Some(steps)));
        plan
    }
}
