//! Implements a clock that stops while this process does not run.
//!
//! Probes, servers, load balancers and health checks share one thread. Each waits for results of
//! the others, so that a wait counts only time in which all of them could run. All of them use the
//! same clock: which of two waits ends first does not depend on the load of the host.

use std::cell::RefCell;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Interval between two ticks.
const TICK: Duration = Duration::from_millis(10);

/// Maximum advance of the clock per tick. Every ready task runs between two ticks, because the
/// tasks of a thread run in the order in which they become ready.
const MAX_STEP: Duration = Duration::from_millis(20);

thread_local! {
    static CLOCK: RefCell<ThreadClock> = const { RefCell::new(ThreadClock::new()) };
}

/// Clock of one thread.
struct ThreadClock {
    /// Number of waits that need the clock.
    waits: usize,
    /// Time of the last tick; `None` while no task advances the clock.
    last_tick: Option<Instant>,
    ran: Duration,
    late: Duration,
}

impl ThreadClock {
    const fn new() -> Self {
        Self {
            waits: 0,
            last_tick: None,
            ran: Duration::ZERO,
            late: Duration::ZERO,
        }
    }

    /// Returns the time in which the process ran, and the time in which it was due to run but did
    /// not.
    fn times_at(&self, now: Instant) -> (Duration, Duration) {
        let passed = self
            .last_tick
            .map_or(Duration::ZERO, |beat| now.saturating_duration_since(beat));
        let ran = passed.min(MAX_STEP);
        (self.ran + ran, self.late + passed.saturating_sub(ran))
    }

    fn tick(&mut self, now: Instant) {
        (self.ran, self.late) = self.times_at(now);
        self.last_tick = Some(now);
    }
}

/// Guard that keeps the clock of this thread running.
pub(crate) struct ClockGuard(());

impl ClockGuard {
    /// Starts the clock if it is stopped. The calling task must belong to a `LocalSet`.
    pub(crate) fn start() -> Self {
        let starts = CLOCK.with_borrow_mut(|pulse| {
            pulse.waits += 1;
            let starts = pulse.last_tick.is_none();
            if starts {
                pulse.last_tick = Some(Instant::now());
            }
            starts
        });
        if starts {
            tokio::task::spawn_local(run_ticks());
        }
        Self(())
    }

    /// Returns the time in which this process ran, since a fixed moment in the past.
    #[expect(
        clippy::unused_self,
        reason = "the clock runs only while a `Running` exists"
    )]
    pub(crate) fn ran(&self) -> Duration {
        CLOCK.with_borrow(|pulse| pulse.times_at(Instant::now()).0)
    }

    /// Returns the time in which this process was due to run but did not, since the same moment.
    #[expect(
        clippy::unused_self,
        reason = "the clock runs only while a `Running` exists"
    )]
    pub(crate) fn late(&self) -> Duration {
        CLOCK.with_borrow(|pulse| pulse.times_at(Instant::now()).1)
    }

    /// Waits until the clock has advanced by `duration`.
    pub(crate) async fn wait(&self, duration: Duration) {
        let end = self.ran().saturating_add(duration);
        while let Some(left) = end.checked_sub(self.ran()).filter(|left| !left.is_zero()) {
            sleep(left).await;
        }
    }
}

impl Drop for ClockGuard {
    fn drop(&mut self) {
        CLOCK.with_borrow_mut(|pulse| pulse.waits -= 1);
    }
}

async fn run_ticks() {
    // The task may be dropped with its `LocalSet`.
    struct StopOnDrop;
    impl Drop for StopOnDrop {
        fn drop(&mut self) {
            CLOCK.with_borrow_mut(|pulse| pulse.last_tick = None);
        }
    }
    let _ends = StopOnDrop;
    while CLOCK.with_borrow(|pulse| pulse.waits > 0) {
        sleep(TICK).await;
        CLOCK.with_borrow_mut(|pulse| pulse.tick(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;
    use tokio::task::LocalSet;
    use tokio::time::advance;

    use super::*;

    /// Runs a future on a clock that advances only while all tasks wait, or through `advance`,
    /// which simulates a blocked thread.
    fn run_with_paused_clock(future: impl Future<Output = ()>) {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        LocalSet::new().block_on(&runtime, future);
    }

    #[test]
    fn clock_thread_blocked_counts_one_step() {
        run_with_paused_clock(async {
            let running = ClockGuard::start();
            running.wait(Duration::from_millis(50)).await;
            let (ran, late) = (running.ran(), running.late());
            advance(Duration::from_millis(500)).await;
            sleep(Duration::ZERO).await;
            running.wait(Duration::ZERO).await;
            assert!(running.ran() <= ran + 4 * MAX_STEP);
            assert!(running.late() >= late + Duration::from_millis(450));
        });
    }

    #[test]
    fn waits_thread_blocked_end_in_order_of_length() {
        run_with_paused_clock(async {
            let order = RefCell::new(Vec::new());
            let wait = async |duration: u64| {
                let running = ClockGuard::start();
                running.wait(Duration::from_millis(duration)).await;
                order.borrow_mut().push(duration);
            };
            let stall = async {
                for _ in 0..4 {
                    sleep(Duration::from_millis(20)).await;
                    advance(Duration::from_millis(150)).await;
                }
            };
            tokio::join!(wait(200), wait(150), wait(100), stall);
            assert_eq!(*order.borrow(), [100, 150, 200]);
        });
    }

    #[test]
    fn clock_last_wait_over_stops_ticks() {
        run_with_paused_clock(async {
            let running = ClockGuard::start();
            running.wait(TICK).await;
            drop(running);
            while CLOCK.with_borrow(|pulse| pulse.last_tick.is_some()) {
                tokio::task::yield_now().await;
            }
        });
    }
}
