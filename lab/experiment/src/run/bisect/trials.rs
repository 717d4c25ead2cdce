//! State of a running bisection: its input, labs and finished trials.

use indexmap::IndexMap;

use super::bench::{Doubt, Look, Tried, Way, tallies};
use super::benches::{Benches, Looking};
use super::ends::Ends;
use super::error::BisectError;
use super::task::Task;
use crate::bisect::document::{Purpose, Reached, Trial};
use crate::bisect::{Chosen, Like, Pair};
use crate::verify::{Tally, Times};
use svclab_model::evidence::Evidence;
use svclab_model::plan::Probe;

/// Running bisection.
pub struct Trials<'t, F> {
    pub task: &'t Task,
    pub pair: Pair,
    /// Probes that both sides have.
    pub probes: Vec<Probe>,
    pub benches: Benches,
    /// Finished trials, in the order in which they ended.
    pub all: Vec<Trial>,
    /// Callback for each finished trial, with the total number of differences.
    pub tell: &'t mut F,
}

impl<F: FnMut(&Trial, usize)> Trials<'_, F> {
    /// Returns the selection in which the differences of `set`, and no others, have the value
    /// `there`.
    pub fn chosen(&self, set: &[usize], there: bool) -> Chosen {
        let all = 0..self.pair.len();
        all.map(|at| set.contains(&at) == there).collect()
    }

    /// Starts a trial of the good or bad side.
    pub fn look_at_end(&self, good: bool, probes: &[Probe], way: Way) -> Looking {
        let look = Look {
            plan: self.pair.plan(&self.chosen(&[], good)),
            probes: probes.to_vec(),
            way,
            anew: way == Way::Slow,
        };
        self.benches.look(look, None)
    }

    /// Waits for the trial of a side.
    ///
    /// # Errors
    ///
    /// Returns an error if the side cannot be built, or if the agent is lost.
    pub async fn end(
        &mut self,
        good: bool,
        probes: &[Probe],
        looking: Looking,
    ) -> Result<Evidence, BisectError> {
        match looking.over().await? {
            Tried::Seen(evidence, reached) => {
                let tallies = self.tallies(&evidence);
                let seen = match probes {
                    [probe] => times(tallies.get(&probe.name)),
                    _ => Vec::new(),
                };
                self.note(Trial {
                    of: Purpose::End,
                    as_bad: if good { 0 } else { self.pair.len() },
                    reached,
                    seen,
                    like: if good { Like::Good } else { Like::Bad },
                    refused: None,
                });
                Ok(*evidence)
            }
            Tried::Refused(why) => {
                let name = if good {
                    &self.task.good_name
                } else {
                    &self.task.bad_name
                };
                Err(BisectError::End {
                    name: name.clone(),
                    why,
                })
            }
        }
    }

    /// Starts a trial of a selection. A narrowing trial has `doubt` and may use any lab. A
    /// verification has none and uses a newly built lab.
    pub fn look(&self, chosen: &Chosen, ends: &Ends, way: Way, doubt: Option<Doubt>) -> Looking {
        let look = Look {
            plan: self.pair.plan(chosen),
            probes: vec![ends.probe.clone()],
            way,
            anew: doubt.is_none(),
        };
        self.benches.look(look, doubt)
    }

    /// Records a trial's result and returns its classification.
    pub fn judge(
        &mut self,
        chosen: &Chosen,
        tried: Tried,
        of: Purpose,
        like: impl FnOnce(&Tally) -> Like,
        ends: &Ends,
    ) -> Like {
        let as_bad = chosen.iter().filter(|there| **there).count();
        let trial = match tried {
            Tried::Seen(evidence, reached) => {
                let tallies = self.tallies(&evidence);
                let tally = tallies.get(&ends.probe.name);
                Trial {
                    of,
                    as_bad,
                    reached,
                    seen: times(tally),
                    like: tally.map_or(Like::Neither, like),
                    refused: None,
                }
            }
            Tried::Refused(why) => Trial {
                of,
                as_bad,
                reached: Reached::Not,
                seen: Vec::new(),
                like: Like::Neither,
                refused: Some(why),
            },
        };
        let like = trial.like;
        self.note(trial);
        like
    }

    /// Counts the outcomes of each probe.
    pub fn tallies(&self, evidence: &Evidence) -> IndexMap<String, Tally> {
        tallies(&self.task.good, evidence)
    }

    fn note(&mut self, trial: Trial) {
        (self.tell)(&trial, self.pair.len());
        self.all.push(trial);
    }
}

/// Returns the outcomes of a probe with their numbers of connections.
pub fn times(tally: Option<&Tally>) -> Vec<Times> {
    let all = tally.into_iter().flat_map(Tally::iter);
    let all = all.map(|(outcome, connections)| Times {
        outcome: outcome.clone(),
        connections,
    });
    all.collect()
}
