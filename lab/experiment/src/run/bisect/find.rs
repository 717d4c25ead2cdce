//! Finding what makes the difference, from the ends to an answer that holds.

use std::time::Instant;

use super::bench::Way;
use super::benches::{Benches, Looking};
use super::ends::{Ends, Slow};
use super::error::BisectError;
use super::narrowing::Found;
use super::task::{Task, probes};
use super::trials::Trials;
use crate::bisect::document::{Purpose, Trial};
use crate::bisect::{Bisection, Like, Narrowed, Pair, SCHEMA};
use svclab_model::evidence::Evidence;
use svclab_runner::kernel::Agent;

/// How often all is narrowed down again where the answer does not hold, each time with more
/// patience.
const AGAIN: u32 = 3;

/// So many times the patience of before.
const PATIENCE: u32 = 4;

/// Finds what makes the difference, in as many labs at once as
/// [there is room](super::side_by_side) for.
///
/// `tell` hears of each trial, with the number of differences.
///
/// # Errors
///
/// See [`BisectError`].
pub async fn find(
    task: &Task,
    agent: &Agent,
    labs: usize,
    tell: &mut impl FnMut(&Trial, usize),
) -> Result<Bisection, BisectError> {
    let begun = Instant::now();
    let pair = Pair::of(&task.good, &task.bad)?;
    if pair.is_empty() {
        return Err(BisectError::Same {
            good: task.good_name.clone(),
            bad: task.bad_name.clone(),
        });
    }
    let mut trials = Trials {
        task,
        probes: probes(task)?,
        pair,
        benches: Benches::new(agent, labs),
        all: Vec::new(),
        tell,
    };
    let (ends, Narrowed { breaks, cures }) = trials.answer().await?;
    let wrong = ends.symptom.wrong(trials.all.len());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a probability in millionths is between 0 and a million"
    )]
    let wrong_in_million = (wrong * 1e6).ceil() as u64;
    Ok(Bisection {
        schema: SCHEMA.to_owned(),
        good: task.good_name.clone(),
        bad: task.bad_name.clone(),
        over: task.over.clone(),
        kernel: trials.benches.kernel().to_owned(),
        symptom: ends.shown,
        differences: trials.pair.len(),
        breaks: trials.pair.told(&breaks),
        cures: trials.pair.told(&cures),
        said_by: Vec::new(),
        trials: trials.all,
        wrong_in_million,
        duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// The bad end, looked at with all patience while other things go on.
enum SlowBad {
    Looking(Looking),
    Seen(Box<Evidence>),
}

impl<F: FnMut(&Trial, usize)> Trials<'_, F> {
    /// What tells the ends apart, and what makes the difference.
    async fn answer(&mut self) -> Result<(Ends, Narrowed), BisectError> {
        let probes = self.probes.clone();
        let looking = self.look_at_end(true, &probes, Way::Slow);
        let slow_good = self.end(true, &probes, looking).await?;
        let mut slow_bad = SlowBad::Looking(self.look_at_end(false, &probes, Way::Slow));
        let mut patience = Way::patience(&[&slow_good]);
        let mut probe = String::new();
        for _ in 0..=AGAIN {
            let found = match self.told_apart(patience).await {
                Ok(ends) => {
                    let found = self.narrowed(&ends).await?;
                    Ok((ends, found))
                }
                Err(alike @ BisectError::Alike { .. }) => Err(alike),
                Err(error) => return Err(error),
            };
            let bad = match slow_bad {
                SlowBad::Looking(looking) => Box::new(self.end(false, &probes, looking).await?),
                SlowBad::Seen(seen) => seen,
            };
            let needed = Way::patience(&[&slow_good, &bad]);
            let of_probe = |evidence| self.tallies(evidence);
            let (good_tallies, bad_tallies) = (of_probe(&slow_good), of_probe(&bad));
            slow_bad = SlowBad::Seen(bad);
            let slow = found.as_ref().ok().and_then(|(ends, _)| {
                let own = &ends.symptom.probe;
                ends.slow(good_tallies.get(own), bad_tallies.get(own))
            });
            // Bad answers late, and was not waited for where that may have mattered.
            if needed > patience && slow.is_none() {
                patience = needed;
                continue;
            }
            let (ends, found) = found?;
            let own = &ends.symptom.probe;
            probe.clone_from(own);
            let narrowed = found.narrowed.clone();
            if self.holds(&ends, found, slow.as_ref()).await? {
                return Ok((ends, narrowed));
            }
            patience *= PATIENCE;
        }
        Err(BisectError::Unsteady { probe })
    }

    /// Whether the answer holds in labs that are built anew: where chance has no part in
    /// it, with all patience.
    async fn holds(
        &mut self,
        ends: &Ends,
        found: Found,
        slow: Option<&Slow>,
    ) -> Result<bool, BisectError> {
        let way = if slow.is_some() {
            Way::Slow
        } else {
            ends.way()
        };
        let Narrowed { breaks, cures } = found.narrowed;
        let begun = found.verified.filter(|(begun, _)| *begun == way);
        let begun = begun.map(|(_, looking)| looking);
        let broken = (self.chosen(&breaks, true), Like::Bad, begun);
        let cured = (self.chosen(&cures, false), Like::Good, None);
        let mut all = Vec::new();
        for (chosen, wanted, begun) in [cured, broken] {
            // Both ends were looked at with all patience.
            if chosen.iter().all(|there| *there) || !chosen.iter().any(|there| *there) {
                continue;
            }
            let looking = begun.unwrap_or_else(|| self.look(&chosen, ends, way, None));
            all.push((chosen, wanted, looking));
        }
        for (chosen, wanted, looking) in all {
            let like = |tally: &_| match slow {
                Some(slow) => slow.like(&ends.symptom, tally),
                None => ends.symptom.like(tally),
            };
            let tried = looking.over().await?;
            if self.judge(&chosen, tried, Purpose::Verification, like, ends) != wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
