//! When and how a run was made.

use std::time::{Duration, Instant, SystemTime};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::flows::DeclaredFlows;

/// When and how a run was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunFacts {
    /// Start of the run in UTC, in the format of RFC 3339 with whole seconds.
    pub started_at: String,
    /// Duration of the run, in milliseconds.
    pub duration_ms: u64,
    /// Maximum number of cases that ran at the same time.
    pub jobs: usize,
    /// Command that started the run, as a shell reads it.
    pub command: String,
    /// Whether flaky cases set the exit code to 1.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub flaky_fails: bool,
    /// Part of a run that several machines share. Absent for a whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardFacts>,
}

/// Part of a run that several machines share, with what is necessary to merge the parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShardFacts {
    /// Number of the shard, from 1.
    pub number: usize,
    /// Number of all shards.
    pub count: usize,
    /// Names of the cases of all shards on the command line, in order.
    pub cases: Vec<String>,
    /// Flows that the labs declare, with the indices of their cases in `cases`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<DeclaredFlows>,
}

/// Start of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunStart {
    date: SystemTime,
    time: Instant,
}

impl RunStart {
    /// Starts now.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the date is for people; the duration is measured with an instant"
    )]
    pub fn now() -> Self {
        Self {
            date: SystemTime::now(),
            time: Instant::now(),
        }
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.time.elapsed()
    }

    /// Returns the facts of a run that ends now.
    #[must_use]
    pub fn facts(&self, jobs: usize, command: String) -> RunFacts {
        RunFacts {
            started_at: humantime::format_rfc3339_seconds(self.date).to_string(),
            duration_ms: u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX),
            jobs,
            command,
            flaky_fails: false,
            shard: None,
        }
    }
}
