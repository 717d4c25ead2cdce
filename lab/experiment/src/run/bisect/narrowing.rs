//! Narrowing good and bad's differences down. What is waited for in a trial that looks
//! like bad is mostly that nothing comes: meanwhile the next goes on, as if it were bad.

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

/// Such a part of the patience of a trial passes before it looks like bad; all of it after
/// one that was not, as on a busy machine.
const DOUBT: u32 = 4;

/// What was found.
pub struct Found {
    pub narrowed: Narrowed,
    /// How what turns good into bad is looked at in a lab of its own, by then.
    pub verified: Option<(Way, Looking)>,
}

/// A trial that is not over.
struct UnderWay {
    chosen: Chosen,
    looks_bad: bool,
}

impl<F: FnMut(&Trial, usize)> Trials<'_, F> {
    /// Narrows down what decides, and begins to verify what turns good into bad as soon as
    /// that is found.
    ///
    /// # Errors
    ///
    /// When the agent is lost.
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
        // The bad end is looked at besides.
        (breaks.len() < self.pair.len()).then(|| (way, self.look(&chosen, ends, way, None)))
    }
}

/// What is to be tried next if those under way come to what they look like; none where
/// that is under way, or nothing is left then.
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
        // Whoever would hear it may have found what was sought.
        tell: Box::new(move || {
            let _ = doubt.send(number);
        }),
    }
}
