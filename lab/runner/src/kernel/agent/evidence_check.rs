//! Checks that evidence contains everything that was requested, and each item once.
//!
//! An agent is not trusted with a verdict. Evidence in which a connection is missing or occurs
//! twice could make an expectation hold without evidence for it.

use std::collections::{BTreeMap, BTreeSet};

use svclab_model::evidence::trace::MAX_TRACE_EVENTS;
use svclab_model::evidence::{Attempt, Evidence, MAX_PACKETS, StageEvidence, Verdict};
use svclab_model::plan::{Delta, EvidenceRequest, Plan, Probe, ProbeProtocol, Stage};

/// Evidence that the next `Probe` request must return.
#[derive(Debug)]
pub(super) struct ExpectedEvidence {
    namespaces: BTreeSet<String>,
    stages: Vec<ExpectedStage>,
    watch: EvidenceRequest,
}

#[derive(Debug)]
struct ExpectedStage {
    /// Name of the step to the stage; `None` for the first stage.
    step: Option<String>,
    probes: Vec<Probe>,
}

impl From<&Stage> for ExpectedStage {
    fn from(stage: &Stage) -> Self {
        Self {
            step: stage.step.as_ref().map(|step| step.name.clone()),
            probes: stage.probes.clone(),
        }
    }
}

impl ExpectedEvidence {
    /// Creates the request of a plan.
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            namespaces: plan.namespaces.iter().map(|ns| ns.name.clone()).collect(),
            stages: plan.stages.iter().map(ExpectedStage::from).collect(),
            watch: plan.evidence.clone(),
        }
    }

    /// Applies a change of the lab.
    pub(super) fn apply(&mut self, delta: &Delta) {
        if let Some(stages) = &delta.stages {
            self.stages = stages.iter().map(ExpectedStage::from).collect();
        }
        if let Some(watch) = &delta.evidence {
            self.watch.clone_from(watch);
        }
    }

    /// Returns the namespaces whose packets are traced.
    pub(super) fn traced_namespaces(&self) -> &[String] {
        &self.watch.trace
    }

    /// Whether the agent may settle timeouts, for which it needs the drops of all namespaces.
    pub(super) fn settles_timeouts(&self) -> bool {
        let mut probes = self.stages.iter().flat_map(|stage| &stage.probes);
        probes.any(|probe| probe.settle)
    }

    /// Compares evidence with the request. An item that is missing, occurs twice, or was not
    /// requested is an error.
    pub(super) fn check(&self, evidence: &Evidence) -> Result<(), String> {
        let stages = evidence.stages.iter().map(|stage| stage.step.as_ref());
        let reported_steps: Vec<_> = stages.map(|step| step.map(|step| &*step.name)).collect();
        let stages = self.stages.iter();
        let expected_steps: Vec<_> = stages.map(|stage| stage.step.as_deref()).collect();
        if reported_steps != expected_steps {
            return Err(format!(
                "it has stages after the steps {reported_steps:?}, but {expected_steps:?} were \
                 requested"
            ));
        }
        for (stage, seen) in self.stages.iter().zip(&evidence.stages) {
            self.check_stage(seen, &stage.probes)
                .map_err(|message| match &stage.step {
                    Some(step) => format!("{message} after the step `{step}`"),
                    None => message,
                })?;
        }
        Ok(())
    }

    /// Compares the evidence of one stage.
    fn check_stage(&self, evidence: &StageEvidence, probes: &[Probe]) -> Result<(), String> {
        let step_packets = evidence.step.iter().map(|step| step.packets.len());
        for packets in step_packets.chain([evidence.packets.len()]) {
            check_count("packets", packets, MAX_PACKETS)?;
        }
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
