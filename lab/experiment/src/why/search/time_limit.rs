//! Limits the time of a search.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Search;
use crate::why::finding::Stopped;

/// Time after which a search of a case tries no further change.
#[derive(Debug, Clone, Copy)]
pub(in crate::why) struct TimeLimit {
    limit: Duration,
    end: Instant,
}

impl TimeLimit {
    /// Starts the time of a search.
    pub(in crate::why) fn start(limit: Duration) -> Self {
        Self {
            limit,
            end: Instant::now() + limit,
        }
    }

    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.end
    }

    /// Returns the result of work, or `None` if the time ends first.
    pub(super) async fn within<T>(self, work: impl Future<Output = T>) -> Option<T> {
        timeout_at(self.end, work).await.ok()
    }
}

impl Search<'_> {
    /// Whether the time is over. If so, this is recorded with a number of known changes that are not
    /// tried.
    pub(super) fn stop_if_over(&mut self, untried: usize) -> bool {
        let is_over = self.time.is_over();
        if is_over {
            self.stop(untried);
        }
        is_over
    }

    /// Records that changes were not tried because the time was over: a number of known ones, and
    /// those that depend on their results.
    pub(super) fn stop(&mut self, untried: usize) {
        let limit_ms = u64::try_from(self.time.limit.as_millis()).unwrap_or(u64::MAX);
        let stopped = self.finding.stopped.get_or_insert(Stopped {
            limit_ms,
            untried: 0,
        });
        stopped.untried += untried;
    }
}
