//! Runs a plan again if the machine was too busy for a verdict.

use super::KernelError;
use svclab_model::protocol::Fault;

/// Maximum number of runs of a plan.
const MAX_TRIES: u32 = 3;

/// Number of runs of a plan.
#[derive(Debug, Default)]
pub struct Tries(u32);

impl Tries {
    /// Whether to run the plan again after `error`, in a new lab.
    pub fn again(&mut self, error: &KernelError) -> bool {
        self.0 += 1;
        matches!(error, KernelError::Failed(failure) if failure.fault == Fault::Slow)
            && self.0 < MAX_TRIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::protocol::Failure;

    fn failed(fault: Fault) -> KernelError {
        KernelError::Failed(Failure {
            fault,
            message: String::new(),
            remedy: None,
            rejected: None,
        })
    }

    #[test]
    fn plan_busy_machine_is_run_three_times() {
        let mut tries = Tries::default();
        let again = [(); 3].map(|()| tries.again(&failed(Fault::Slow)));
        assert_eq!(again, [true, true, false]);
    }

    #[test]
    fn plan_other_failure_is_not_run_again() {
        for fault in [Fault::Input, Fault::Machine, Fault::Bug] {
            assert!(!Tries::default().again(&failed(fault)));
        }
    }
}
