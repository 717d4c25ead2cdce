//! Trials that run in the background, so that waiting in one lab does not delay trials in another.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use super::super::error::BisectError;
use crate::bench::{AgentSource, Bench, LabOrigin, TrialError, TrialRequest};
use svclab_model::evidence::Evidence;
use svclab_model::protocol::{Failure, FailureKind};
use svclab_runner::kernel::KernelError;

pub(super) enum TrialResult {
    /// The probes ran.
    Finished(Box<Evidence>, LabOrigin),
    /// The kernel refused the lab with this message.
    Refused(String),
    /// The lab was ready, but its probes cannot run. A mixture of both sides may lack the source
    /// address of a probe.
    NotProbed(Failure, LabOrigin),
}

impl TrialResult {
    /// Separates a failure of the trial's plan, which is a result, from other errors.
    fn from_run(run: Result<(Evidence, LabOrigin), TrialError>) -> Result<Self, KernelError> {
        match run {
            Ok((evidence, origin)) => Ok(Self::Finished(Box::new(evidence), origin)),
            Err(TrialError {
                lab,
                error: KernelError::RequestFailed(failure),
            }) if failure.kind == FailureKind::Input => Ok(match lab {
                Some(origin) => Self::NotProbed(failure, origin),
                None => Self::Refused(failure.message),
            }),
            Err(failed) => Err(failed.error),
        }
    }
}

/// Trial that runs in the background until this handle is dropped.
pub(super) struct RunningTrial(AbortOnDropHandle<Result<TrialResult, KernelError>>);

impl RunningTrial {
    pub(super) fn start(bench: &Arc<Bench>, agents: &AgentSource, trial: TrialRequest) -> Self {
        let (bench, agents) = (Arc::clone(bench), agents.clone());
        Self(AbortOnDropHandle::new(tokio::spawn(async move {
            TrialResult::from_run(bench.run(&agents, trial).await)
        })))
    }

    pub(super) async fn finish(self) -> Result<TrialResult, BisectError> {
        match self.0.await {
            Ok(result) => Ok(result?),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Ok(TrialResult::Refused("the trial was cancelled".to_owned())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_failed(kind: FailureKind, lab: Option<LabOrigin>) -> Result<TrialResult, KernelError> {
        TrialResult::from_run(Err(TrialError {
            lab,
            error: KernelError::RequestFailed(Failure {
                kind,
                message: "no free source port".to_owned(),
                remedy: Some("use fewer connections".to_owned()),
                rejected: None,
            }),
        }))
    }

    #[test]
    fn trial_result_input_failure_depends_on_phase() {
        assert!(matches!(
            run_failed(FailureKind::Input, None),
            Ok(TrialResult::Refused(_))
        ));
        let Ok(TrialResult::NotProbed(failure, LabOrigin::Changed)) =
            run_failed(FailureKind::Input, Some(LabOrigin::Changed))
        else {
            panic!("a failure of the probes");
        };
        assert_eq!(failure.remedy.as_deref(), Some("use fewer connections"));
    }

    #[test]
    fn trial_result_failure_of_machine_is_error() {
        for lab in [None, Some(LabOrigin::Built)] {
            assert!(run_failed(FailureKind::Machine, lab).is_err());
        }
    }
}
