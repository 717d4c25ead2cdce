//! Waits with a time limit for an answer from another task of this process or from the kernel.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::runtime::process_clock::ClockGuard;
use crate::runtime::softnet::BacklogQueues;

/// Maximum time to wait for queued packets when a time limit has expired.
const MAX_QUEUE_WAIT: Duration = Duration::from_mins(1);

/// Interval between reads of the kernel's queues. The kernel has no event for an empty queue.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Divisor of the time limit that gives the extra wait after queued packets were processed: a reply
/// to them may be on its way.
const EXTRA_WAIT_DIVISOR: u32 = 10;

/// Reason why no answer arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// No answer arrived within the time limit.
    TimedOut,
    /// Packets were still queued for a processor after 1 minute.
    Queued,
}

/// Returns the result of `future` within a time limit. `future` is polled first, so that a result
/// in time counts even if this process runs late.
///
/// # Errors
///
/// When no result arrived.
pub(crate) async fn within<T>(
    limit: Duration,
    future: impl Future<Output = T>,
) -> Result<T, NoAnswer> {
    tokio::select! {
        biased;
        done = future => Ok(done),
        nothing = expired(limit) => Err(nothing),
    }
}

/// Waits until a time limit expires. Only time in which this process ran counts, because the
/// answering server runs in this process too. The limit does not expire while packets are queued
/// for a processor.
pub(crate) async fn expired(limit: Duration) -> NoAnswer {
    expired_with(limit, MAX_QUEUE_WAIT, BacklogQueues::read).await
}

async fn expired_with(
    limit: Duration,
    longest_queue: Duration,
    read: impl Fn() -> BacklogQueues,
) -> NoAnswer {
    let running = ClockGuard::start();
    running.wait(limit).await;
    let deadline = running.ran().saturating_add(longest_queue);
    let mut busy = read().busy;
    while !busy.is_empty() {
        // A processor whose queue was empty once has processed all packets queued before.
        let mut left: BTreeSet<u32> = busy.into_iter().collect();
        while !left.is_empty() {
            if running.ran() >= deadline {
                return NoAnswer::Queued;
            }
            running.wait(POLL_INTERVAL).await;
            let busy_now = read().busy;
            left.retain(|processor| busy_now.contains(processor));
        }
        running.wait(limit / EXTRA_WAIT_DIVISOR).await;
        busy = read().busy;
    }
    NoAnswer::TimedOut
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use tokio::runtime::Builder;
    use tokio::task::LocalSet;
    use tokio::time::{Instant, advance};

    use super::*;

    const LIMIT: Duration = Duration::from_millis(100);

    /// Runs a future on a clock that advances only while all tasks wait, or through `advance`,
    /// which simulates a blocked thread.
    fn run_with_paused_clock<T>(future: impl Future<Output = T>) -> T {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        LocalSet::new().block_on(&runtime, future)
    }

    fn queues_with(busy: &[u32]) -> BacklogQueues {
        BacklogQueues {
            dropped: 0,
            busy: busy.to_vec(),
        }
    }

    #[test]
    fn limit_process_stalled_does_not_expire() {
        run_with_paused_clock(async {
            let started = Instant::now();
            let busy = advance(Duration::from_millis(200));
            let (over, ()) = tokio::join!(expired_with(LIMIT, LIMIT, BacklogQueues::default), busy);
            assert_eq!(over, NoAnswer::TimedOut);
            assert!(started.elapsed() >= Duration::from_millis(280));
        });
    }

    #[test]
    fn limit_packets_queued_waits_for_each_processor() {
        let looks = Cell::new(0);
        let queues = || {
            looks.set(looks.get() + 1);
            match looks.get() {
                // Both processors have queued packets at first; each queue is empty once.
                1 | 2 => queues_with(&[0, 1]),
                3 => queues_with(&[0]),
                4 => queues_with(&[1]),
                _ => queues_with(&[]),
            }
        };
        let over = expired_with(LIMIT, MAX_QUEUE_WAIT, queues);
        assert_eq!(run_with_paused_clock(over), NoAnswer::TimedOut);
        assert_eq!(looks.get(), 5);
    }

    #[test]
    fn limit_queue_never_empty_is_queued() {
        let over = expired_with(LIMIT, LIMIT, || queues_with(&[1]));
        assert_eq!(run_with_paused_clock(over), NoAnswer::Queued);
    }

    #[test]
    fn ready_answer_precedes_expired_limit() {
        // Both futures are ready at the first poll.
        for _ in 0..64 {
            let got = run_with_paused_clock(within(Duration::ZERO, ready(())));
            assert_eq!(got, Ok(()));
        }
    }
}
