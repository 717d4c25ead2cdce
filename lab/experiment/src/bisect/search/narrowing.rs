//! Narrows down the differences between good and bad.
//!
//! A trial that looks bad mostly waits for answers that do not arrive. Meanwhile the next trial
//! starts on the assumption that the result is bad.

use std::collections::HashMap;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;

use super::baseline::Baseline;
use super::bisection_run::BisectionRun;
use super::probe_mode::ProbeMode;
use super::running_trial::{RunningTrial, TrialResult};
use crate::bench::SlowNotice;
use crate::bisect::document::{Purpose, Trial};
use crate::bisect::error::BisectError;
use crate::bisect::narrow::{Culprits, DifferenceMask, TrialCache, TrialClass, narrow};

/// Fraction of a trial's maximum wait after which the trial is assumed to be bad. After a wrong
/// assumption, as on a busy machine, the whole maximum wait has to pass.
const ASSUMED_BAD_FRACTION: u32 = 4;

pub(super) struct NarrowingResult {
    pub(super) narrowed: Culprits,
    /// Probe mode and trial that verify `narrowed.breaks` in a separate lab, if already started.
    pub(super) verification: Option<(ProbeMode, RunningTrial)>,
}

struct PendingTrial {
    chosen: DifferenceMask,
    looks_bad: bool,
}

impl<F: FnMut(&Trial)> BisectionRun<'_, F> {
    /// Narrows down the differences, and starts to verify the set that turns good into bad as soon
    /// as the set is found.
    pub(super) async fn narrow_down(
        &mut self,
        baseline: &Baseline,
    ) -> Result<NarrowingResult, BisectError> {
        let count = self.pair.len();
        let mut cache = TrialCache::new();
        let mut verification = None;
        let mut pending: HashMap<usize, PendingTrial> = HashMap::new();
        let mut running = FuturesUnordered::new();
        let (slow_sender, mut slow_receiver) = mpsc::unbounded_channel();
        let mut notice_delay = baseline.max_wait / ASSUMED_BAD_FRACTION;
        let mut number = 0;
        loop {
            let result = narrow(count, &cache);
            let breaks = match &result {
                Ok(narrowed) => Some(&narrowed.breaks),
                Err(wanted) => wanted.breaks.as_ref(),
            };
            if let (Some(breaks), None) = (breaks, &verification) {
                verification = self.start_verification(breaks, baseline);
            }
            if let Ok(narrowed) = result {
                return Ok(NarrowingResult {
                    narrowed,
                    verification,
                });
            }
            let free = pending.is_empty() || self.bench.has_room();
            let next = next_trial(count, &cache, &pending).filter(|_| free);
            if let Some(chosen) = next {
                number += 1;
                let notice = SlowNotice {
                    after: notice_delay,
                    trial: number,
                    receiver: slow_sender.clone(),
                };
                let trial = self.start_trial(
                    &chosen,
                    &baseline.probe,
                    baseline.probe_mode(),
                    Some(notice),
                );
                running.push(async move { (number, trial.finish().await) });
                let looks_bad = false;
                pending.insert(number, PendingTrial { chosen, looks_bad });
                continue;
            }
            tokio::select! {
                Some((number, result)) = running.next() => {
                    if let Some(PendingTrial { chosen, looks_bad }) = pending.remove(&number) {
                        let like = self.judge_narrowing(&chosen, result?, baseline);
                        if looks_bad && like != TrialClass::Bad {
                            notice_delay = baseline.max_wait;
                        }
                        cache.insert(chosen, like);
                    }
                }
                Some(number) = slow_receiver.recv() => {
                    if let Some(pending_trial) = pending.get_mut(&number) {
                        pending_trial.looks_bad = true;
                    }
                }
            }
        }
    }

    fn judge_narrowing(
        &mut self,
        chosen: &DifferenceMask,
        result: TrialResult,
        baseline: &Baseline,
    ) -> TrialClass {
        let classify = |tally: &_| baseline.symptom.classify(tally);
        self.record(
            chosen,
            result,
            Purpose::Narrowing,
            classify,
            &baseline.probe,
        )
    }

    fn start_verification(
        &self,
        breaks: &[usize],
        baseline: &Baseline,
    ) -> Option<(ProbeMode, RunningTrial)> {
        let mode = if baseline.symptom.is_deterministic {
            ProbeMode::Full
        } else {
            baseline.probe_mode()
        };
        let chosen = self.mask(breaks, true);
        // If all differences are needed, the trial of the bad side is sufficient.
        (breaks.len() < self.pair.len())
            .then(|| (mode, self.start_trial(&chosen, &baseline.probe, mode, None)))
    }
}

/// Returns the next trial, assuming that running trials get the results that they look like.
/// Returns `None` if this trial is already running, or if none is left under the assumption.
fn next_trial(
    count: usize,
    cache: &TrialCache,
    pending: &HashMap<usize, PendingTrial>,
) -> Option<DifferenceMask> {
    let mut guessed = cache.clone();
    let looks_bad = pending.values().filter(|trial| trial.looks_bad);
    guessed.extend(looks_bad.map(|trial| (trial.chosen.clone(), TrialClass::Bad)));
    let next = narrow(count, &guessed).err()?.mask;
    let is_running = pending.values().any(|trial| trial.chosen == next);
    (!is_running).then_some(next)
}
