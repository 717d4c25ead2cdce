//! Runs a complete bisection, from the two sides to a verified result.

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

/// Maximum number of repetitions if the verification fails, each with a longer wait.
const AGAIN: u32 = 3;

/// Factor between the maximum waits of two repetitions.
const PATIENCE: u32 = 4;

/// Finds the decisive differences, in up to `labs` labs at once: see [`super::side_by_side`].
///
/// Reports each finished trial to the callback, with the total number of differences.
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

/// Trial of the bad side with the full maximum wait, which runs in the background.
enum SlowBad {
    Looking(Looking),
    Seen(Box<Evidence>),
}

impl<F: FnMut(&Trial, usize)> Trials<'_, F> {
    /// Finds the symptom and the decisive differences.
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
            // The bad side answers late, and the wait may have been too short for the answer.
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

    /// Whether the result holds in newly built labs: with the full maximum wait if the symptom has
    /// no randomness.
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
            // Both sides themselves already ran with the full maximum wait.
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
