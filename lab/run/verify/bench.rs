//! Where both sides of a case are run, and what is read of both.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::{IndexMap, IndexSet};

use super::pairs::Pair;
use crate::evidence::Evidence;
use crate::explain::StepOutcome;
use crate::explain::journey::Journey;
use crate::kernel::{Agent, Tries};
use crate::plan::{Plan, Probe, Watch};
use crate::run::Prepared;
use crate::run::execute::{trouble, waiting};
use crate::verify::{
    Failed, Flow, Moved, OnlyMet, RulesDiffer, SideOf, Tally, differing_rules, only_met, since,
    tallies,
};

/// Of how many connections a flow is made where a few tell nothing.
const MANY: u32 = 16;

/// Where both sides of a case are run.
pub struct Bench<'p> {
    pair: &'p Pair,
    agent: Agent,
}

impl<'p> Bench<'p> {
    /// In an agent.
    pub fn new(pair: &'p Pair, agent: Agent) -> Self {
        Self { pair, agent }
    }

    /// Runs both as they are.
    ///
    /// # Errors
    ///
    /// When one of them comes to no evidence.
    pub async fn once(&self) -> Result<[Evidence; 2], Failed> {
        self.run(|prepared| prepared).await
    }

    /// Runs both with more connections of some probes, and with as many steps as those
    /// ask for.
    ///
    /// # Errors
    ///
    /// When one of them comes to no evidence.
    pub async fn again(&self, suspects: &BTreeSet<String>) -> Result<[Evidence; 2], Failed> {
        self.run(|prepared| more(prepared, suspects)).await
    }

    /// Runs both, one after the other, changed in the same way.
    async fn run(&self, change: impl Fn(Prepared) -> Prepared) -> Result<[Evidence; 2], Failed> {
        let mut both = Vec::new();
        for (side, prepared) in [
            (SideOf::Against, &self.pair.against),
            (SideOf::New, &self.pair.new),
        ] {
            let plan = change(prepared.clone()).plan;
            let mut tries = Tries::default();
            let evidence = loop {
                let evidence = async {
                    let mut session = self.agent.build(plan.clone()).await?;
                    session.probe().await
                };
                match evidence.await {
                    Err(error) if tries.again(&error) => {}
                    evidence => break evidence,
                }
            };
            let evidence = evidence.map_err(|error| Failed {
                case: prepared.case.id.clone(),
                side,
                error: trouble(&error),
            })?;
            both.push(evidence);
        }
        let new = both.pop().unwrap_or_default();
        Ok([both.pop().unwrap_or_default(), new])
    }

    /// What became of each probe on both sides.
    pub fn tallies(
        &self,
        [against, new]: &[Evidence; 2],
    ) -> impl Iterator<Item = (String, [Tally; 2])> {
        let mut new = self.pair.new.tallies(new);
        let against = self.pair.against.tallies(against).into_iter();
        against.filter_map(move |(probe, tally)| {
            let other = new.swap_remove(&probe)?;
            Some((probe, [tally, other]))
        })
    }

    /// What the packets of flows met on one side only: of those that were open across a
    /// step, the packets after it.
    ///
    /// # Errors
    ///
    /// When one of them comes to no evidence.
    pub async fn met(
        &self,
        suspects: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, OnlyMet>, Failed> {
        if suspects.is_empty() {
            return Ok(BTreeMap::new());
        }
        let watched = |prepared: Prepared| {
            let mut prepared = waiting(&more(prepared, suspects));
            prepared.plan.watch = Watch::everything(&prepared.plan);
            for probes in probes_of(&mut prepared.plan) {
                // What nobody asks of needs no watching.
                probes.retain(|probe| suspects.contains(&probe.name));
                for probe in probes {
                    probe.after = None;
                }
            }
            for (step, made) in prepared.steps.iter_mut().zip(&prepared.plan.steps) {
                step.plan.probes.clone_from(&made.probes);
            }
            prepared
        };
        let [against, new] = self.run(watched).await?;
        let against = watched(self.pair.against.clone()).journeys(&against);
        let new = watched(self.pair.new.clone()).journeys(&new);
        let met = suspects.iter().map(|probe| {
            let at = self.pair.new.plan.step_of(probe).map_or(0, |step| step + 1);
            let of = |all: &[Vec<Journey>]| all.get(at).cloned().unwrap_or_default();
            (probe.clone(), only_met(probe, &of(&against), &of(&new)))
        });
        Ok(met.collect())
    }

    /// A flow by its probe.
    pub fn flow(&self, name: &str) -> Flow {
        let prepared = &self.pair.new;
        let probe = prepared.case.spec.probe(name);
        let step = prepared.plan.step_of(name);
        Flow {
            case: prepared.case.id.clone(),
            kernel: self.agent.surroundings().kernel.clone(),
            step: step.map(|step| prepared.plan.steps[step].name.clone()),
            probe: name.to_owned(),
            from: probe.map(|probe| probe.from.clone()).unwrap_or_default(),
            to: probe.map(|probe| probe.to.clone()).unwrap_or_default(),
        }
    }

    /// In what rules differ: before the steps, and in what they did not before each.
    pub fn rules(&self, [against, new]: &[Evidence; 2]) -> Vec<RulesDiffer> {
        let of_node = |node: &String| {
            let mut all = Vec::new();
            let mut known = differing_rules(node, against, new);
            all.push((None, known.clone()));
            for (against, new) in against.steps.iter().zip(&new.steps) {
                let now = differing_rules(node, &against.evidence, &new.evidence);
                all.push((Some(against.name.clone()), since(&known, now.clone())));
                known = now;
            }
            all.into_iter()
                .map(|(step, differences)| RulesDiffer {
                    case: self.pair.new.case.id.clone(),
                    step,
                    node: node.clone(),
                    differences,
                })
                .collect::<Vec<_>>()
        };
        let nodes = self.pair.new.plan.watch.rules.iter();
        nodes
            .flat_map(of_node)
            .filter(|differ| !differ.differences.is_empty())
            .collect()
    }

    /// When traffic moved after each step.
    pub fn moved(&self, [against, new]: &[Evidence; 2]) -> Vec<Moved> {
        let (against, new) = (self.pair.against.moved(against), self.pair.new.moved(new));
        let mut all = Vec::new();
        for (against, new) in against.iter().zip(&new) {
            let us = |of: &StepOutcome, probe: &str| {
                let mut moved = of.moved.iter();
                moved
                    .find(|moved| moved.probe == probe)
                    .map(|moved| moved.us)
            };
            let probes: IndexSet<&str> = against
                .moved
                .iter()
                .chain(&new.moved)
                .map(|moved| moved.probe.as_str())
                .collect();
            all.extend(probes.into_iter().map(|probe| Moved {
                case: self.pair.new.case.id.clone(),
                step: new.name.clone(),
                probe: probe.to_owned(),
                against_us: us(against, probe),
                new_us: us(new, probe),
            }));
        }
        all
    }
}

/// The same with more connections of some probes, as far as the last of them.
fn more(mut prepared: Prepared, of: &BTreeSet<String>) -> Prepared {
    let last = of.iter().filter_map(|probe| prepared.plan.step_of(probe));
    let steps = last.max().map_or(0, |last| last + 1);
    prepared.plan.steps.truncate(steps);
    for probes in probes_of(&mut prepared.plan) {
        for probe in probes.iter_mut().filter(|probe| of.contains(&probe.name)) {
            probe.connections = probe.connections.max(MANY);
        }
    }
    prepared
}

/// All that is tried in a plan, and all that is opened.
fn probes_of(plan: &mut Plan) -> impl Iterator<Item = &mut Vec<Probe>> {
    let of_steps = plan.steps.iter_mut();
    let of_steps = of_steps.flat_map(|step| [&mut step.open, &mut step.probes]);
    std::iter::once(&mut plan.probes).chain(of_steps)
}

impl Prepared {
    fn tallies(&self, evidence: &Evidence) -> IndexMap<String, Tally> {
        tallies(&self.plan, evidence, &self.books())
    }

    /// When traffic moved after its steps.
    fn moved(&self, evidence: &Evidence) -> Vec<StepOutcome> {
        // Every name was found when it was prepared.
        self.judge()
            .map_or_else(|_| Vec::new(), |judge| judge.moved(evidence))
    }
}
