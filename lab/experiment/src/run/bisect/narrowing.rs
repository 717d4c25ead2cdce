//! Narrows down the differences between good and bad.
//!
//! A trial that looks bad mostly waits for answers that do not arrive. Meanwhile the next trial
//! starts on the assumption that the result is bad.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;

use super::bench::{Doubt, Tried, Way};
use super::benches::Looking;
use super::ends::Ends;
use super::error::BisectError;
use super::trials::Trials;
use crate::bisect::document::{Purpose, Trial};
use crate::bisect::{Chosen, Known, Like, Narrowed, narrow};

/// Fraction of a trial's maximum wait after which the trial is assumed to be bad. After a wrong
/// assumption, as on a busy machine, the whole maximum wait has to pass.
const DOUBT: u32 = 4;

/// Result of narrowing.
pub struct Found {
    pub narrowed: Narrowed,
    /// Probe mode and trial that verify `narrowed.breaks` in a separate lab, if already started.
    pub verified: Option<(Way, Looking)>,
}

/// Running trial.
struct UnderWay {
    chosen: Chosen,
    looks_bad: bool,
}

impl<F: FnMut(&Trial, usize)> Trials<'_, F> {
    /// Narrows down the differences, and starts to verify the set that turns good into bad as soon
    /// as the set is found.
    ///
    /// # Errors
    ///
    /// Returns an error if the agent is lost.
    pub async fn narrowed(&mut self, ends: &Ends) -> Result<Found, BisectError> {
        let all = self.pair.len();
        let mut known = Known::new();
        let mut verified = None;
        let mut under_way: HashMap<usize, UnderWay> = HashMap::new();
        let mut going_on = FuturesUnordered::new();
        let (doubt, mut doubted) = mpsc::unbounded_channel();
        let mut after = ends.patience / DOUBT;
        let mut number = 0;
        loop {
            let told = narrow(all, &known);
            let breaks = match &told {
                Ok(narrowed) => Some(&narrowed.breaks),
                Err(wanted) => wanted.breaks.as_ref(),
            };
            if let (Some(breaks), None) = (breaks, &verified) {
                verified = self.verified_breaks(breaks, ends);
            }
            if let Ok(narrowed) = told {
                return Ok(Found { narrowed, verified });
            }
            let free = under_way.is_empty() || self.benches.has_room();
            let wanted = wanted(all, &known, &under_way).filter(|_| free);
            if let Some(chosen) = wanted {
                number += 1;
                let doubt = doubts(&doubt, number, after);
                let looking = self.look(&chosen, ends, ends.way(), Some(doubt));
                going_on.push(async move { (number, looking.over().await) });
                let looks_bad = false;
                under_way.insert(number, UnderWay { chosen, looks_bad });
                continue;
            }
            tokio::select! {
                Some((number, tried)) = going_on.next() => {
                    if let Some(UnderWay { chosen, looks_bad }) = under_way.remove(&number) {
                        let like = self.like(&chosen, tried?, ends);
                        if looks_bad && like != Like::Bad {
                            after = ends.patience;
                        }
                        known.insert(chosen, like);
                    }
                }
                Some(number) = doubted.recv() => {
                    if let Some(own) = under_way.get_mut(&number) {
                        own.looks_bad = true;
                    }
                }
            }
        }
    }

    fn like(&mut self, chosen: &Chosen, tried: Tried, ends: &Ends) -> Like {
        let like = |tally: &_| ends.symptom.like(tally);
        self.judge(chosen, tried, Purpose::Narrowing, like, ends)
    }

    fn verified_breaks(&self, breaks: &[usize], ends: &Ends) -> Option<(Way, Looking)> {
        let way = if ends.symptom.certain {
            Way::Slow
        } else {
            ends.way()
        };
        let chosen = self.chosen(breaks, true);
        // If all differences are needed, the trial of the bad side is sufficient.
        (breaks.len() < self.pair.len()).then(|| (way, self.look(&chosen, ends, way, None)))
    }
}

/// Returns the next trial, assuming that running trials get the results that they look like.
/// Returns `None` if this trial is already running, or if none is left under the assumption.
fn wanted(all: usize, known: &Known, under_way: &HashMap<usize, UnderWay>) -> Option<Chosen> {
    let mut guessed = known.clone();
    let looks_bad = under_way.values().filter(|own| own.looks_bad);
    guessed.extend(looks_bad.map(|own| (own.chosen.clone(), Like::Bad)));
    let wanted = narrow(all, &guessed).err()?.chosen;
    let known = under_way.values().any(|own| own.chosen == wanted);
    (!known).then_some(wanted)
}

fn doubts(doubt: &mpsc::UnboundedSender<usize>, number: usize, after: Duration) -> Doubt {
    let doubt = doubt.clone();
    Doubt {
        after,
        // The receiver no longer exists if narrowing has ended.
        tell: Box::new(move || {
            let _ = doubt.send(number);
        }),
    }
}
