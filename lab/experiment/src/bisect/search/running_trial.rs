//! Trials that run in the background, so that waiting in one lab does not delay trials in another.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use super::super::error::BisectError;
use crate::bench::{AgentSource, Bench, LabOrigin, TrialRequest};
use svclab_model::evidence::Evidence;
use svclab_model::protocol::FailureKind;
use svclab_runner::kernel::KernelError;

pub(super) enum TrialResult {
    /// The probes ran.
    Finished(Box<Evidence>, LabOrigin),
    /// The kernel refused the lab with this message.
    Refused(String),
}

/// Trial that runs in the background until this handle is dropped.
pub(super) struct RunningTrial(AbortOnDropHandle<Result<TrialResult, KernelError>>);

impl RunningTrial {
    pub(super) fn start(bench: &Arc<Bench>, agents: &AgentSource, trial: TrialRequest) -> Self {
        let (bench, agents) = (Arc::clone(bench), agents.clone());
        Self(AbortOnDropHandle::new(tokio::spawn(async move {
            match bench.run(&agents, trial).await {
                Ok((evidence, origin)) => Ok(TrialResult::Finished(Box::new(evidence), origin)),
                Err(KernelError::RequestFailed(failure)) if failure.kind == FailureKind::Input => {
                    Ok(TrialResult::Refused(failure.message))
                }
                Err(error) => Err(error),
            }
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
