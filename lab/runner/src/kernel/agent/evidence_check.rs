//! Checks that evidence contains everything that was requested, and each item once.
//!
//! An agent is not trusted with a verdict. Evidence in which a connection is missing or occurs
//! twice could make an expectation hold without evidence for it.

use std::collections::{BTreeMap, BTreeSet};

use svclab_model::evidence::trace::MAX_TRACE_EVENTS;
use svclab_model::evidence::{Attempt, Evidence, MAX_PACKETS, Verdict};
use svclab_model::plan::{
    Delta, EvidenceRequest, Plan, Probe, ProbeProtocol, Step, probes_by_stage,
};

/// Evidence that the next `Probe` request must return.
#[derive(Debug)]
pub(super) struct ExpectedEvidence {
    namespaces: BTreeSet<String>,
    probes: Vec<Probe>,
    /// Steps run only once, so later requests do not include them.
    steps: Vec<Step>,
    watch: EvidenceRequest,
}

impl ExpectedEvidence {
    /// Creates the request of a plan.
    pub(super) fn new(plan: &Plan) -> Self {
        let steps = plan.steps.iter().map(|step| Step {
            name: step.name.clone(),
            open: step.open.clone(),
            probes: step.probes.clone(),
            ..Step::default()
        });
        Self {
            namespaces: plan.namespaces.iter().map(|ns| ns.name.clone()).collect(),
            probes: plan.probes.clone(),
            steps: steps.collect(),
            watch: plan.evidence.clone(),
        }
    }

    /// Applies a change of the lab.
    pub(super) fn apply(&mut self, delta: &Delta) {
        if let Some(probes) = &delta.probes {
            self.probes.clone_from(probes);
        }
        if let Some(watch) = &delta.evidence {
            self.watch.clone_from(watch);
        }
    }

    /// Compares evidence with the request, and removes the steps from the request. An item that is
    /// missing, occurs twice, or was not requested is an error.
    pub(super) fn check(&mut self, evidence: &Evidence) -> Result<(), String> {
        let steps = std::mem::take(&mut self.steps);
        let reported_steps: Vec<&str> = evidence.steps.iter().map(|step| &*step.name).collect();
        let expected_steps: Vec<&str> = steps.iter().map(|step| &*step.name).collect();
        if reported_steps != expected_steps {
            return Err(format!(
                "it has the steps {reported_steps:?}, but {expected_steps:?} were requested"
            ));
        }
        let mut stages = probes_by_stage(&self.probes, &steps);
        self.check_stage(evidence, stages.next().into_iter().flatten())?;
        for ((step, step_evidence), probes) in steps.iter().zip(&evidence.steps).zip(stages) {
            self.check_stage(&step_evidence.evidence, probes)
                .map_err(|message| format!("{message} after the step `{}`", step.name))?;
            check_count("packets", step_evidence.packets.len(), MAX_PACKETS)?;
            if !step_evidence.evidence.steps.is_empty() {
                return Err(format!("it has steps within the step `{}`", step.name));
            }
        }
        Ok(())
    }

    /// Compares the evidence of one stage.
    fn check_stage<'p>(
        &self,
        evidence: &Evidence,
        probes: impl Iterator<Item = &'p Probe>,
    ) -> Result<(), String> {
        check_count("packets", evidence.packets.len(), MAX_PACKETS)?;
        check_count("trace events", evidence.trace.len(), MAX_TRACE_EVENTS)?;
        let mut missing: BTreeMap<(&str, u32), &Probe> = BTreeMap::new();
        for probe in probes {
            let each = (0..probe.connections).map(|number| ((&*probe.name, number), probe));
            missing.extend(each);
        }
        for attempt in &evidence.attempts {
            let (name, number) = (&*attempt.probe, attempt.index);
            match missing.remove(&(name, number)) {
                Some(probe) => check_answer(attempt, probe)?,
                None => {
                    return Err(format!(
                        "connection {number} of the probe `{name}` is a duplicate or not requested"
                    ));
                }
            }
        }
        if let Some((name, number)) = missing.keys().next() {
            return Err(format!(
                "connection {number} of the probe `{name}` is missing"
            ));
        }
        let watch = &self.watch;
        let is_in_plan = |name: &&String| self.namespaces.contains(*name);
        let is_missing = |name: &&String| !evidence.counters.contains_key(*name);
        if let Some(name) = watch.counters.iter().filter(is_in_plan).find(is_missing) {
            return Err(format!("the counters of {name} are missing"));
        }
        let mut watched_namespaces = watch.sets.iter().chain(&watch.ipvs).chain(&watch.links);
        if let Some(name) = watched_namespaces
            .find(|name| is_in_plan(name) && !evidence.kernel_state.contains_key(*name))
        {
            return Err(format!("the kernel state of {name} is missing"));
        }
        let mut rules = BTreeSet::new();
        for saved in &evidence.rules {
            let backend = format!("{:?}", saved.backend);
            if !rules.insert((&saved.namespace, backend, saved.ip_version)) {
                return Err(format!("the rules of {} occur twice", saved.namespace));
            }
        }
        Ok(())
    }
}

/// Checks that there are no more items than an agent keeps.
fn check_count(items: &str, count: usize, max: usize) -> Result<(), String> {
    if count <= max {
        return Ok(());
    }
    Err(format!(
        "it has {count} {items}, but an agent keeps at most {max}"
    ))
}

/// Checks that an attempt has all data that its verdict requires.
fn check_answer(attempt: &Attempt, probe: &Probe) -> Result<(), String> {
    let answers = match probe.protocol {
        ProbeProtocol::Tcp => attempt.verdict == Verdict::Connected,
        ProbeProtocol::Udp => attempt.verdict == Verdict::Answered,
        ProbeProtocol::Ping => false,
    };
    if answers && (attempt.endpoint.is_none() || attempt.seen_source.is_none()) {
        return Err(format!(
            "connection {} of the probe `{}` has no endpoint or no source of its answer",
            attempt.index, attempt.probe
        ));
    }
    Ok(())
}
