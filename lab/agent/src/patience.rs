//! Waiting for an answer that another task of this process, or the kernel, must give.

use std::collections::BTreeSet;
use std::time::Duration;

use super::pulse::Running;
use super::softnet::Queues;

/// The longest that packets are waited for that the kernel has not processed when a
/// patience is over.
const LONGEST_QUEUE: Duration = Duration::from_mins(1);

/// The pause between two looks at the kernel's queues.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Such a part of the patience follows after packets that waited were processed: an answer
/// to them may be on its way.
const MORE: u32 = 10;

/// Why nothing came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nothing {
    /// No answer came in time.
    InTime,
    /// Packets still waited for a processor after a minute.
    Queued,
}

/// Returns what comes of `doing` within a patience. `doing` is polled first, so that what
/// came in time counts, however late this process looks.
///
/// # Errors
///
/// When nothing came.
pub async fn within<T>(patience: Duration, doing: impl Future<Output = T>) -> Result<T, Nothing> {
    tokio::select! {
        biased;
        done = doing => Ok(done),
        nothing = over(patience) => Err(nothing),
    }
}

/// Waits until a patience is over. It counts time in which this process ran: who is to
/// answer lives here, too. It is not over while packets wait in the kernel for a
/// processor.
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
        // A processor whose queue was empty once has processed what waited before.
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

    /// On a clock that moves only while all tasks wait, or by `advance`: as if the thread
    /// had been blocked for so long.
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
                // The queues of two processors, neither of them empty for long.
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
        // Both are ready when they are polled first.
        for _ in 0..64 {
            let got = on_one_thread(within(Duration::ZERO, ready(())));
            assert_eq!(got, Ok(()));
        }
    }
}
