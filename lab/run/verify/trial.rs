//! Running both sides of every case.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};
use indexmap::IndexMap;
use tokio::sync::mpsc;

use super::bench::Bench;
use super::pairs::{Pair, Pairs};
use super::side::Side;
use crate::evidence::{Refused, refused};
use crate::kernel::KernelError;
use crate::run::Prepared;
use crate::run::execute::{Options, trouble};
use crate::run::pool::{Pool, Pools};
use crate::run::tasks::caught;
use crate::verify::{
    Changed, DOUBTFUL, Failed, Likeness, Moved, Moving, NotCompared, RulesDiffer, Runs, SCHEMA,
    SideOf, Sync, Tally, Times, Verification,
};

/// How often it is tried again at most: the whole case, as a lab whose steps were made is
/// not what it was.
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
                let ended = caught(one(&pair, &pools)).await.unwrap_or_else(|error| {
                    let (case, side) = (case.clone(), SideOf::New);
                    (Err(Failed { case, side, error }), None)
                });
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
        moved: Vec::new(),
        failed: Vec::new(),
        not_compared: found.not_compared,
        interrupted,
    };
    let mut synced = [Vec::new(), Vec::new()];
    for (ended, left_out) in compared {
        verification.also(left_out);
        match ended {
            Ok(one) => {
                verification.cases += 1;
                verification.flows += one.flows;
                verification.changed.extend(one.changed);
                verification.rules.extend(one.rules);
                verification.moved.extend(one.moved);
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
    let of = |of: fn(&Moved) -> Option<u64>| {
        Moving::of(verification.moved.iter().filter_map(of).collect())
    };
    let [first, second] = [of(|moved| moved.against_us), of(|moved| moved.new_us)];
    verification.against.moving = first;
    verification.new.moving = second;
    verification
}

/// A case that was compared.
#[derive(Default)]
struct Compared {
    flows: usize,
    changed: Vec<Changed>,
    rules: Vec<RulesDiffer>,
    moved: Vec<Moved>,
    /// How long kube-proxies took, in milliseconds.
    synced: [Vec<u64>; 2],
    /// What their API servers refused.
    refused: [Vec<Refused>; 2],
}

/// Compares a case, and says what of it is not compared.
async fn one(pair: &Pair, pools: &Pools) -> (Result<Compared, Failed>, Option<NotCompared>) {
    match place(pair, pools).await {
        Ok(pool) => (on(pair, pool).await, None),
        Err(error) if pair.new.plan.steps.is_empty() => (Err(with_new(pair, &error)), None),
        Err(lacking) => {
            let shorter = pair.without_steps();
            match place(&shorter, pools).await {
                Ok(pool) => (on(&shorter, pool).await, not_made(&pair.new, &lacking)),
                // There is no place for what comes before them either.
                Err(error) => (Err(with_new(pair, &error)), None),
            }
        }
    }
}

fn with_new(pair: &Pair, error: &KernelError) -> Failed {
    Failed {
        case: pair.new.case.id.clone(),
        side: SideOf::New,
        error: trouble(error),
    }
}

/// Where a case is compared: where it is to run in several kernels, one is enough.
async fn place(pair: &Pair, pools: &Pools) -> Result<Option<Arc<Pool>>, KernelError> {
    let found = pools.of_case(&pair.new).await?;
    Ok(found.into_iter().next())
}

/// That the steps of a case are not compared, for which there is no place.
fn not_made(prepared: &Prepared, error: &KernelError) -> Option<NotCompared> {
    let first = prepared.plan.steps.first()?;
    let told = trouble(error);
    Some(NotCompared {
        cases: vec![prepared.case.id.clone()],
        from_step: Some(first.name.clone()),
        because: match told.remedy {
            Some(remedy) => {
                let remedy = remedy.replace('\n', ", ");
                format!("{}; what to do: {remedy}", told.message)
            }
            None => told.message,
        },
    })
}

/// Compares a case with agents of one kernel.
async fn on(pair: &Pair, pool: Option<Arc<Pool>>) -> Result<Compared, Failed> {
    let Some(pool) = pool else {
        return Ok(Compared::default());
    };
    let _room = pool.place(&pair.new.plan).await;
    let agent = pool.agent().await;
    let agent = agent.map_err(|error| with_new(pair, &error))?;
    let bench = Bench::new(pair, agent);
    let both = bench.once().await?;
    let mut flows: IndexMap<String, Runs> = bench
        .tallies(&both)
        .map(|(probe, tallies)| {
            let runs = match pair.new.plan.step_of(&probe) {
                None => Runs::of_what_stands(tallies),
                Some(_) => Runs::of_a_step(tallies),
            };
            (probe, runs)
        })
        .collect();
    for _ in 0..ROUNDS {
        let suspects = doubtful(&flows);
        if suspects.is_empty() {
            break;
        }
        let again = bench.again(&suspects).await?;
        for (probe, tallies) in bench.tallies(&again) {
            if let Some(runs) = flows.get_mut(&probe).filter(|_| suspects.contains(&probe)) {
                runs.add(tallies);
            }
        }
    }
    let changed: Vec<(&String, f64)> = flows
        .iter()
        .filter_map(|(probe, runs)| match runs.likeness() {
            Likeness::Same => None,
            // All that could be asked was asked.
            Likeness::Unsure(chance) if chance >= DOUBTFUL => None,
            Likeness::Unsure(chance) | Likeness::Changed(chance) => Some((probe, chance)),
        })
        .collect();
    let suspects: BTreeSet<String> = changed.iter().map(|(probe, _)| (*probe).clone()).collect();
    let mut met = bench.met(&suspects).await?;
    let changed = changed.into_iter().map(|(probe, chance)| {
        let [against, new] = flows[probe].all();
        Changed {
            flow: bench.flow(probe),
            against: times(&against),
            new: times(&new),
            met: met.remove(probe).unwrap_or_default(),
            chance_in_billion: billionths(chance),
        }
    });
    Ok(Compared {
        flows: flows.len(),
        changed: changed.collect(),
        rules: bench.rules(&both),
        moved: bench.moved(&both),
        // What was refused before the steps is counted after the last of them, too.
        refused: both
            .each_ref()
            .map(|evidence| evidence.last().refused.clone()),
        synced: both.map(|evidence| evidence.synced_ms.into_values().collect()),
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

/// The probes of which it cannot be told yet whether they come out alike.
fn doubtful(flows: &IndexMap<String, Runs>) -> BTreeSet<String> {
    let doubtful = flows
        .iter()
        .filter(|(_, runs)| matches!(runs.likeness(), Likeness::Unsure(_)));
    doubtful.map(|(probe, _)| probe.clone()).collect()
}
