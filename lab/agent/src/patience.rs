//! Waits with a time limit for an answer from another task of this process or from the kernel.

use std::collections::BTreeSet;
use std::time::Duration;

use super::pulse::Running;
use super::softnet::Queues;

/// Maximum time to wait for queued packets when a time limit has expired.
const LONGEST_QUEUE: Duration = Duration::from_mins(1);

/// Interval between reads of the kernel's queues.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Divisor of the time limit that gives the extra wait after queued packets were processed: a reply
/// to them may be on its way.
const MORE: u32 = 10;

/// Reason why no answer arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nothing {
    /// No answer arrived within the time limit.
    InTime,
    /// Packets were still queued for a processor after 1 minute.
    Queued,
}

/// Returns the result of `doing` within a time limit. `doing` is polled first, so that a result in
/// time counts even if this process runs late.
///
/// # Errors
///
/// When no result arrived.
pub async fn within<T>(patience: Duration, doing: impl Future<Output = T>) -> Result<T, Nothing> {
    tokio::select! {
        biased;
        done = doing => Ok(done),
        nothing = over(patience) => Err(nothing),
    }
}

/// Waits until a time limit expires. Only time in which this process ran counts, because the
/// answering server runs in this process too. The limit does not expire while packets are queued
/// for a processor.
pub async fn over(patience: Duration) -> Nothing {
    over_beside(patience, LONGEST_QUEUE, Queues::read).await
}

async fn over_beside(
    patience: Duration,
    longest_queue: Duration,
    read: impl Fn() -> Queues,
) -> Nothing {
    let running = Running::begin();
    running.wait(patience).await;
    let last = running.ran().saturating_add(longest_queue);
    let mut busy = read().busy;
    while !busy.is_empty() {
        // A processor whose queue was empty once has processed all packets queued before.
        let mut left: BTreeSet<u32> = busy.into_iter().collect();
        while !left.is_empty() {
            if running.ran() >= last {
                return Nothing::Queued;
            }
            running.wait(LOOK_AGAIN).await;
            let now = read().busy;
            left.retain(|processor| now.contains(processor));
        }
        running.wait(patience / MORE).await;
        busy = read().busy;
    }
    Nothing::InTime
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use tokio::runtime::Builder;
    use tokio::task::LocalSet;
    use tokio::time::{Instant, advance};

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(100);

    /// Runs a future on a clock that advances only while all tasks wait, or through `advance`,
    /// which simulates a blocked thread.
    fn on_one_thread<T>(doing: impl Future<Output = T>) -> T {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        LocalSet::new().block_on(&runtime, doing)
    }

    fn waiting_at(busy: &[u32]) -> Queues {
        Queues {
            dropped: 0,
            busy: busy.to_vec(),
        }
    }

    #[test]
    fn patience_process_stalled_is_not_over() {
        on_one_thread(async {
            let begun = Instant::now();
            let busy = advance(Duration::from_millis(200));
            let (over, ()) = tokio::join!(over_beside(PATIENCE, PATIENCE, Queues::default), busy);
            assert_eq!(over, Nothing::InTime);
            assert!(begun.elapsed() >= Duration::from_millis(280));
        });
    }

    #[test]
    fn patience_packets_queued_waits_for_each_processor() {
        let looks = Cell::new(0);
        let queues = || {
            looks.set(looks.get() + 1);
            match looks.get() {
                // Both processors have queued packets at first; each queue is empty once.
                1 | 2 => waiting_at(&[0, 1]),
                3 => waiting_at(&[0]),
                4 => waiting_at(&[1]),
                _ => waiting_at(&[]),
            }
        };
        let over = over_beside(PATIENCE, LONGEST_QUEUE, queues);
        assert_eq!(on_one_thread(over), Nothing::InTime);
        assert_eq!(looks.get(), 5);
    }

    #[test]
    fn patience_queue_never_empty_is_no_verdict() {
        let over = over_beside(PATIENCE, PATIENCE, || waiting_at(&[1]));
        assert_eq!(on_one_thread(over), Nothing::Queued);
    }

    #[test]
    fn answer_that_is_there_comes_before_the_end() {
        // Both futures are ready at the first poll.
        for _ in 0..64 {
            let got = on_one_thread(within(Duration::ZERO, ready(())));
            assert_eq!(got, Ok(()));
        }
    }
}
