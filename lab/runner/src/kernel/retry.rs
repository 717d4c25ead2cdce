//! Runs a plan again if the machine was too busy for a verdict.

use super::KernelError;
use svclab_model::protocol::FailureKind;

/// Maximum number of runs of a plan.
const MAX_RUNS: u32 = 3;

/// Number of runs of a plan.
#[derive(Debug, Default)]
pub struct RunCount(u32);

impl RunCount {
    /// Whether to run the plan again after `error`, in a new lab.
    pub fn should_retry(&mut self, error: &KernelError) -> bool {
        self.0 += 1;
        matches!(error, KernelError::RequestFailed(failure) if failure.kind == FailureKind::TooBusy)
            && self.0 < MAX_RUNS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::protocol::Failure;

    fn failed(fault: FailureKind) -> KernelError {
        KernelError::RequestFailed(Failure {
            kind: fault,
            message: String::new(),
            remedy: None,
            rejected: None,
        })
    }

    #[test]
    fn run_count_busy_machine_allows_three_runs() {
        let mut tries = RunCount::default();
        let again = [(); 3].map(|()| tries.should_retry(&failed(FailureKind::TooBusy)));
        assert_eq!(again, [true, true, false]);
    }

    #[test]
    fn run_count_other_failure_allows_no_retry() {
        for fault in [FailureKind::Input, FailureKind::Machine, FailureKind::Bug] {
            assert!(!RunCount::default().should_retry(&failed(fault)));
        }
    }
}
