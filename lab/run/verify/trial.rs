//! Running both sides of every case.

use std::collections::BTreeSet;
use std::future::Future;

use futures_util::stream::{self, StreamExt as _};
use indexmap::IndexMap;
use tokio::sync::mpsc;

use super::pairs::{Pair, Pairs};
use super::side::Side;
use crate::evidence::{Evidence, Refused, refused};
use crate::explain::Book;
use crate::explain::journey::journeys;
use crate::kernel::Agent;
use crate::plan::Watch;
use crate::report::RunError;
use crate::run::Prepared;
use crate::run::execute::{Options, trouble, waiting};
use crate::run::pool::Pools;
use crate::verify::{
    Changed, DOUBTFUL, Failed, Flow, Likeness, OnlyMet, RulesDiffer, SCHEMA, SideOf, Sync, Tally,
    Times, Verification, differing_rules, likeness, only_met, tallies,
};

/// Of how many connections a flow is made where a few tell nothing.
const MANY: u32 = 16;

/// How often it is tried again at most.
const ROUNDS: usize = 6;

/// What is told while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A case begins.
    Begun(String),
    /// It has ended.
    Ended(String),
}

/// Compares all pairs, several at once, and tells `steps` how far it is. When `enough`
/// ends first, it is of those that had ended.
pub async fn verify(
    found: Pairs,
    against: &Side,
    new: &Side,
    options: &Options,
    steps: &mpsc::UnboundedSender<Step>,
    enough: impl Future<Output = ()>,
) -> Verification {
    let both = found
        .pairs
        .iter()
        .flat_map(|pair| [&pair.against, &pair.new]);
    let cases: Vec<Prepared> = both.cloned().collect();
    let pools = Pools::new(options, &cases);
    let mut compared = Vec::new();
    let all = async {
        let mut running = stream::iter(found.pairs)
            .map(async |pair: Pair| {
                let case = pair.new.case.id.clone();
                // Who listens may have gone.
                let _ = steps.send(Step::Begun(case.clone()));
                let ended = one(&pair, &pools).await;
                let _ = steps.send(Step::Ended(case));
                ended
            })
            .buffered(options.jobs.max(1));
        while let Some(ended) = running.next().await {
            compared.push(ended);
        }
    };
    let interrupted = tokio::select! {
        biased;
        () = all => false,
        () = enough => true,
    };
    let mut verification = Verification {
        schema: SCHEMA.to_owned(),
        against: against.named(),
        new: new.named(),
        cases: 0,
        flows: 0,
        changed: Vec::new(),
        rules: Vec::new(),
        failed: Vec::new(),
        not_compared: found.not_compared,
        interrupted,
    };
    let mut synced = [Vec::new(), Vec::new()];
    for ended in compared {
        match ended {
            Ok(one) => {
                verification.cases += 1;
                verification.flows += one.flows;
                verification.changed.extend(one.changed);
                verification.rules.extend(one.rules);
                for (all, own) in synced.iter_mut().zip(one.synced) {
                    all.extend(own);
                }
                let [against, new] = one.refused;
                refused::add(&mut verification.against.refused, &against);
                refused::add(&mut verification.new.refused, &new);
            }
            Err(failed) => verification.failed.push(failed),
        }
    }
    let [first, second] = synced.map(Sync::of);
    verification.against.sync = first;
    verification.new.sync = second;
    verification
}

/// A case that was compared.
struct Compared {
    flows: usize,
    changed: Vec<Changed>,
    rules: Vec<RulesDiffer>,
    /// How long kube-proxies took, in milliseconds.
    synced: [Vec<u64>; 2],
    /// What their API servers refused.
    refused: [Vec<Refused>; 2],
}

async fn one(pair: &Pair, pools: &Pools) -> Result<Compared, Failed> {
    let case = pair.new.case.id.clone();
    let wrong = |side: SideOf| {
        let case = case.clone();
        move |error: RunError| Failed { case, side, error }
    };
    let with_new = wrong(SideOf::New);
    let found = pools.of_case(&pair.new).await;
    let found = found.map_err(|error| with_new.clone()(trouble(&error)))?;
    // Where it is to run in several, one is enough to compare.
    let pool = found.into_iter().next();
    let Some(pool) = pool else {
        return Ok(Compared {
            flows: 0,
            changed: Vec::new(),
            rules: Vec::new(),
            synced: [Vec::new(), Vec::new()],
            refused: [Vec::new(), Vec::new()],
        });
    };
    let _room = pool.place(&pair.new.plan).await;
    let agent = pool.agent().await;
    let agent = agent.map_err(|error| with_new(trouble(&error)))?;
    let bench = Bench { pair, agent };
    let [against, new] = bench.run(|plan| plan).await?;
    let (mut first, mut second) = (pair.against.tallies(&against), pair.new.tallies(&new));
    let mut suspects = doubtful(&first, &second, first.keys().cloned().collect());
    for _ in 0..ROUNDS {
        if suspects.is_empty() {
            break;
        }
        let [against, new] = bench.run(|plan| more(plan, &suspects)).await?;
        add(&mut first, pair.against.tallies(&against), &suspects);
        add(&mut second, pair.new.tallies(&new), &suspects);
        suspects = doubtful(&first, &second, suspects);
    }
    let changed: Vec<(String, f64)> = first
        .iter()
        .filter_map(|(probe, tally)| {
            let other = second.get(probe)?;
            match likeness(tally, other) {
                Likeness::Same => None,
                // All that could be asked was asked.
                Likeness::Unsure(chance) if chance >= DOUBTFUL => None,
                Likeness::Unsure(chance) | Likeness::Changed(chance) => {
                    Some((probe.clone(), chance))
                }
            }
        })
        .collect();
    let met = bench.met(&changed).await?;
    let changed = changed.into_iter().zip(met);
    let changed = changed.map(|((probe, chance), met)| Changed {
        flow: bench.flow(&probe),
        against: times(&first[&probe]),
        new: times(&second[&probe]),
        met,
        chance_in_billion: billionths(chance),
    });
    Ok(Compared {
        flows: first.len(),
        changed: changed.collect(),
        rules: bench.rules(&against, &new),
        synced: [&against, &new].map(|evidence| evidence.synced_ms.values().copied().collect()),
        refused: [against, new].map(|evidence| evidence.refused),
    })
}

fn billionths(chance: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a probability in billionths is between 0 and a billion"
    )]
    let billionths = (chance * 1e9).ceil() as u64;
    if chance < 1e-9 { 0 } else { billionths }
}

fn times(tally: &Tally) -> Vec<Times> {
    let all = tally.iter().map(|(outcome, connections)| Times {
        outcome: outcome.clone(),
        connections,
    });
    all.collect()
}

/// Those of these probes of which it cannot be told yet whether they come out alike.
fn doubtful(
    first: &IndexMap<String, Tally>,
    second: &IndexMap<String, Tally>,
    of: BTreeSet<String>,
) -> BTreeSet<String> {
    let is_doubtful = |probe: &String| match (first.get(probe), second.get(probe)) {
        (Some(first), Some(second)) => matches!(likeness(first, second), Likeness::Unsure(_)),
        _ => false,
    };
    of.into_iter().filter(is_doubtful).collect()
}

fn add(
    all: &mut IndexMap<String, Tally>,
    more: IndexMap<String, Tally>,
    suspects: &BTreeSet<String>,
) {
    for (probe, tally) in more {
        if suspects.contains(&probe) {
            all.entry(probe).or_default().add(&tally);
        }
    }
}

/// The same with more connections of some probes.
fn more(mut prepared: Prepared, of: &BTreeSet<String>) -> Prepared {
    for probe in &mut prepared.plan.probes {
        if of.contains(&probe.name) {
            probe.connections = probe.connections.max(MANY);
        }
    }
    prepared
}

impl Prepared {
    fn tallies(&self, evidence: &Evidence) -> IndexMap<String, Tally> {
        tallies(&self.plan, evidence, &Book::new(&self.cluster, &self.plan))
    }
}

/// Where both sides of a case are run.
struct Bench<'p> {
    pair: &'p Pair,
    agent: Agent,
}

impl Bench<'_> {
    /// Runs both, one after the other, changed in the same way.
    async fn run(&self, change: impl Fn(Prepared) -> Prepared) -> Result<[Evidence; 2], Failed> {
        let mut both = Vec::new();
        for (side, prepared) in [
            (SideOf::Against, &self.pair.against),
            (SideOf::New, &self.pair.new),
        ] {
            let plan = change(prepared.clone()).plan;
            let evidence = async {
                let mut session = self.agent.build(plan).await?;
                session.probe().await
            };
            let evidence = evidence.await.map_err(|error| Failed {
                case: prepared.case.id.clone(),
                side,
                error: trouble(&error),
            })?;
            both.push(evidence);
        }
        let new = both.pop().unwrap_or_default();
        Ok([both.pop().unwrap_or_default(), new])
    }

    /// What the packets of flows met on one side only, in their order.
    async fn met(&self, changed: &[(String, f64)]) -> Result<Vec<OnlyMet>, Failed> {
        if changed.is_empty() {
            return Ok(Vec::new());
        }
        let suspects: BTreeSet<String> = changed.iter().map(|(probe, _)| probe.clone()).collect();
        let watched = |prepared: Prepared| {
            let mut prepared = waiting(&more(prepared, &suspects));
            prepared.plan.watch = Watch::everything(&prepared.plan);
            // What nobody asks of needs no watching.
            prepared
                .plan
                .probes
                .retain(|probe| suspects.contains(&probe.name));
            for probe in &mut prepared.plan.probes {
                probe.after = None;
            }
            prepared
        };
        let [against, new] = self.run(watched).await?;
        let against = journeys(&watched(self.pair.against.clone()).plan, &against);
        let new = journeys(&watched(self.pair.new.clone()).plan, &new);
        let met = changed
            .iter()
            .map(|(probe, _)| only_met(probe, &against, &new));
        Ok(met.collect())
    }

    fn flow(&self, name: &str) -> Flow {
        let prepared = &self.pair.new;
        let probe = prepared.case.spec.probes.get(name);
        Flow {
            case: prepared.case.id.clone(),
            kernel: self.agent.surroundings().kernel.clone(),
            probe: name.to_owned(),
            from: probe.map(|probe| probe.from.clone()).unwrap_or_default(),
            to: probe.map(|probe| probe.to.clone()).unwrap_or_default(),
        }
    }

    fn rules(&self, against: &Evidence, new: &Evidence) -> Vec<RulesDiffer> {
        let nodes = self.pair.new.plan.watch.rules.iter();
        let differ = nodes.map(|node| RulesDiffer {
            case: self.pair.new.case.id.clone(),
            node: node.clone(),
            differences: differing_rules(node, against, new),
        });
        differ
            .filter(|differ| !differ.differences.is_empty())
            .collect()
    }
}
