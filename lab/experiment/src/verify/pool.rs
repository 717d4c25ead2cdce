//! Finds the agents that compare a case.

use std::sync::Arc;

use super::document::{FailedCase, SideName};
use super::pairs::CasePair;
use svclab_runner::results::RunError;
use svclab_runner::run::execute::pool::{Pool, Pools};
use svclab_runner::run::to_run_error;

pub(super) fn failed_on_new(pair: &CasePair, error: RunError) -> FailedCase {
    FailedCase {
        case: pair.new.case.id.clone(),
        side: SideName::New,
        error,
    }
}

/// Returns the pool that compares a case. If the case requires several kernels, the first is
/// enough.
pub(super) async fn find_pool(pair: &CasePair, pools: &Pools) -> Result<Arc<Pool>, FailedCase> {
    let found = pools.pools_for_case(&pair.new).await;
    let found = found.map_err(|error| failed_on_new(pair, to_run_error(&error)))?;
    let first = found.into_iter().next();
    first.ok_or_else(|| failed_on_new(pair, RunError::no_kernel()))
}
