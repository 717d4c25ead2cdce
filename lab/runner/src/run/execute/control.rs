//! Options that repeat cases, limit their time, or end a run before all cases ran.

use std::time::Duration;

use crate::results::{CaseResult, CaseStatus, ErrorKind, RunError, StopReason};

/// Options that repeat cases, limit their time, or end a run early. The default runs every case
/// once, without limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunControl {
    /// Whether the first case that does not pass ends the run.
    pub fail_fast: bool,
    /// Maximum number of further tries of a case that does not pass.
    pub retries: u32,
    /// Whether a case that passes only in a further try sets the exit code to 1.
    pub flaky_fails: bool,
    /// Maximum time of one try of a case, from its first namespace to its last verdict, without
    /// waits for other cases. `None` for no limit.
    pub case_timeout: Option<Duration>,
    /// Maximum time of the run. `None` for no limit.
    pub run_timeout: Option<Duration>,
}

impl RunControl {
    /// Whether to try a case again after this result, the last of `tries` tries. Another try of
    /// invalid input, or of a bug in svclab, has the same result.
    pub(super) fn should_retry(&self, result: &CaseResult, tries: usize) -> bool {
        let can_differ = match &result.error {
            Some(error) => !matches!(error.kind, ErrorKind::Input | ErrorKind::Bug),
            None => result.result == CaseStatus::Fail,
        };
        can_differ && u32::try_from(tries).is_ok_and(|tries| tries <= self.retries)
    }

    /// Whether this result of a case ends the run.
    pub(super) fn stops_after(&self, result: &CaseResult) -> bool {
        self.fail_fast && !result.result.has_passed()
    }

    /// Waits until the time of the run is over. Never returns without a limit.
    pub(super) async fn run_timeout(&self) -> StopReason {
        match self.run_timeout {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
        StopReason::RunTimeout
    }
}

/// Returns the error of a case that was stopped at its time limit.
pub(super) fn case_timeout_error(limit: Duration) -> RunError {
    RunError {
        kind: ErrorKind::Timeout,
        message: format!(
            "the case was stopped after {}, its time limit",
            humantime::format_duration(limit)
        ),
        remedy: Some("raise --timeout, or lower --max-wait".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::fixture;

    #[test]
    fn should_retry_only_results_that_can_differ() {
        let control = RunControl {
            retries: 2,
            ..RunControl::default()
        };
        let failed = CaseResult {
            result: CaseStatus::Fail,
            ..fixture::passed("lab/a")
        };
        let with_error = |kind| CaseResult {
            result: CaseStatus::Error,
            error: Some(RunError {
                kind,
                message: "error".to_owned(),
                remedy: None,
            }),
            ..fixture::passed("lab/a")
        };
        let retried = [1, 2, 3].map(|tries| control.should_retry(&failed, tries));
        assert_eq!(retried, [true, true, false]);
        assert!(!RunControl::default().should_retry(&failed, 1));
        assert!(!control.should_retry(&fixture::passed("lab/a"), 1));
        for (kind, can_differ) in [
            (ErrorKind::Timeout, true),
            (ErrorKind::KubeProxy, true),
            (ErrorKind::Machine, true),
            (ErrorKind::Lost, true),
            (ErrorKind::Input, false),
            (ErrorKind::Bug, false),
        ] {
            assert_eq!(
                control.should_retry(&with_error(kind), 1),
                can_differ,
                "{kind:?}"
            );
        }
    }
}
