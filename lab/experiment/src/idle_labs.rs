//! Keeps idle labs for later trials, unless a trial waits for the room that they hold.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Idle labs, and the number of trials that wait for room. While any waits, no lab is kept: idle
/// labs of one case would hold the room that another needs.
pub(crate) struct IdleLabs<L> {
    state: Mutex<IdleState<L>>,
}

struct IdleState<L> {
    labs: Vec<L>,
    waiting: usize,
}

/// Trial that waits for room until this guard is dropped.
pub(crate) struct WaitingTrial<'l, L>(&'l IdleLabs<L>);

impl<L> Default for IdleLabs<L> {
    fn default() -> Self {
        Self {
            state: Mutex::new(IdleState {
                labs: Vec::new(),
                waiting: 0,
            }),
        }
    }
}

impl<L> IdleLabs<L> {
    /// Keeps a lab, or drops the lab if a trial waits for room.
    pub(crate) fn keep(&self, lab: L) {
        let mut state = self.state();
        // One lock for both: a trial that starts to wait now removes the lab.
        if state.waiting == 0 {
            state.labs.push(lab);
        }
    }

    /// Changes the list of idle labs.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Vec<L>) -> T) -> T {
        change(&mut self.state().labs)
    }

    /// Counts a trial as waiting.
    pub(crate) fn start_waiting(&self) -> WaitingTrial<'_, L> {
        self.state().waiting += 1;
        WaitingTrial(self)
    }

    fn state(&self) -> MutexGuard<'_, IdleState<L>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L> Drop for WaitingTrial<'_, L> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn keep_waiting_trial_drops_lab() {
        let idle = IdleLabs::default();
        idle.keep("first");
        let waiting = idle.start_waiting();
        idle.keep("second");
        drop(waiting);
        idle.keep("third");
        assert_eq!(idle.update(std::mem::take), ["first", "third"]);
    }

    #[test]
    fn keep_in_other_thread_never_adds_lab_while_trial_waits() {
        const ROUNDS: usize = 20_000;
        // On a busy machine, a round takes long, and finds the error with a higher probability.
        const MAX_TIME: Duration = Duration::from_secs(5);
        let begun = Instant::now();
        let idle = IdleLabs::default();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    idle.keep(());
                }
            });
            let mut rounds = (0..ROUNDS).take_while(|_| begun.elapsed() < MAX_TIME);
            let kept = rounds.any(|_| {
                let _waiting = idle.start_waiting();
                idle.update(Vec::clear);
                std::thread::yield_now();
                idle.update(|labs| !labs.is_empty())
            });
            is_done.store(true, Ordering::Relaxed);
            assert!(!kept);
        });
    }
}
