//! Checks that evidence contains everything that was requested, and each item once.
//!
//! An agent is not trusted with a verdict. Evidence in which a connection is missing or occurs
//! twice could make an expectation hold without evidence for it.

use std::collections::{BTreeMap, BTreeSet};

use svclab_model::evidence::met::MAX_MET;
use svclab_model::evidence::{Attempt, Evidence, MAX_PACKETS, Verdict};
use svclab_model::plan::{Delta, Plan, Probe, Protocol, Step, Watch, probes_by_stage};

/// Evidence that the next `Probe` request must return.
#[derive(Debug)]
pub struct Asked {
    namespaces: BTreeSet<String>,
    probes: Vec<Probe>,
    /// Steps run only once, so later requests do not include them.
    steps: Vec<Step>,
    watch: Watch,
}

impl Asked {
    /// Creates the request of a plan.
    pub fn of(plan: &Plan) -> Self {
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
            watch: plan.watch.clone(),
        }
    }

    /// Applies a change of the lab.
    pub fn change(&mut self, delta: &Delta) {
        if let Some(probes) = &delta.probes {
            self.probes.clone_from(probes);
        }
        if let Some(watch) = &delta.watch {
            self.watch.clone_from(watch);
        }
    }

    /// Compares evidence with the request, and removes the steps from the request.
    ///
    /// # Errors
    ///
    /// When an item is missing, occurs twice, or was not requested.
    pub fn check(&mut self, evidence: &Evidence) -> Result<(), String> {
        let steps = std::mem::take(&mut self.steps);
        let told: Vec<&str> = evidence.steps.iter().map(|step| &*step.name).collect();
        let asked: Vec<&str> = steps.iter().map(|step| &*step.name).collect();
        if told != asked {
            return Err(format!(
                "it tells of the steps {told:?}, and {asked:?} were asked for"
            ));
        }
        let mut stages = probes_by_stage(&self.probes, &steps);
        self.stage(evidence, stages.next().into_iter().flatten())?;
        for ((step, seen), probes) in steps.iter().zip(&evidence.steps).zip(stages) {
            self.stage(&seen.evidence, probes)
                .map_err(|why| format!("{why} after the step {}", step.name))?;
            is_small("packets", seen.packets.len(), MAX_PACKETS)?;
            if !seen.evidence.steps.is_empty() {
                return Err(format!("it tells of steps within the step {}", step.name));
            }
        }
        Ok(())
    }

    /// Compares the evidence of one stage.
    fn stage<'p>(
        &self,
        seen: &Evidence,
        probes: impl Iterator<Item = &'p Probe>,
    ) -> Result<(), String> {
        is_small("packets", seen.packets.len(), MAX_PACKETS)?;
        is_small("trace events", seen.met.len(), MAX_MET)?;
        let mut missing: BTreeMap<(&str, u32), &Probe> = BTreeMap::new();
        for probe in probes {
            let each = (0..probe.connections).map(|number| ((&*probe.name, number), probe));
            missing.extend(each);
        }
        for attempt in &seen.attempts {
            let (name, number) = (&*attempt.probe, attempt.number);
            match missing.remove(&(name, number)) {
                Some(probe) => whole(attempt, probe)?,
                None => {
                    return Err(format!(
                        "connection {number} of the probe {name} is told twice or was not asked for"
                    ));
                }
            }
        }
        if let Some((name, number)) = missing.keys().next() {
            return Err(format!(
                "connection {number} of the probe {name} is missing"
            ));
        }
        let watch = &self.watch;
        let known = |name: &&String| self.namespaces.contains(*name);
        let uncounted = |name: &&String| !seen.counters.contains_key(*name);
        if let Some(name) = watch.counters.iter().filter(known).find(uncounted) {
            return Err(format!("the counters of {name} are missing"));
        }
        let mut held = watch.sets.iter().chain(&watch.ipvs).chain(&watch.links);
        if let Some(name) = held.find(|name| known(name) && !seen.held.contains_key(*name)) {
            return Err(format!("what {name} holds is missing"));
        }
        let mut rules = BTreeSet::new();
        for saved in &seen.rules {
            let backend = format!("{:?}", saved.backend);
            if !rules.insert((&saved.namespace, backend, saved.ip)) {
                return Err(format!("the rules of {} are told twice", saved.namespace));
            }
        }
        Ok(())
    }
}

/// Checks that there are no more items than an agent keeps.
fn is_small(what: &str, count: usize, most: usize) -> Result<(), String> {
    if count <= most {
        return Ok(());
    }
    Err(format!("it has {count} {what}, and an agent keeps {most}"))
}

/// Checks that an attempt has all data that its verdict requires.
fn whole(attempt: &Attempt, probe: &Probe) -> Result<(), String> {
    let answers = match probe.protocol {
        Protocol::Tcp => attempt.verdict == Verdict::Connected,
        Protocol::Udp => attempt.verdict == Verdict::Answered,
        Protocol::Ping => false,
    };
    if answers && (attempt.endpoint.is_none() || attempt.seen_source.is_none()) {
        return Err(format!(
            "connection {} of the probe {} does not say who answered",
            attempt.number, attempt.probe
        ));
    }
    Ok(())
}
