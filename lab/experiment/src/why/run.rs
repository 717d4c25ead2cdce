//! Tries changes in copies of a failing case until some make the case succeed.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};

use super::case_labs::CaseLabs;
use super::change;
use super::finding::Finding;
use super::frozen::{has_manual_changes, state_programs};
use super::request::{SilentNextHop, WhyRequest};
use super::search::{Search, TimeLimit};
use crate::Progress;
use crate::bench::Bench;
use svclab_runner::results::RunError;
use svclab_runner::run::execute::pool::Pools;
use svclab_runner::run::prepare::Prepared;
use svclab_runner::run::refit::without_unsupported;
use svclab_runner::run::tasks::catch_panic;
use svclab_runner::run::{RunOptions, to_run_error};

/// Number of cases that are examined at once. Most of the time is spent waiting for timeouts.
const MAX_PARALLEL_CASES: usize = 4;

/// Finds changes that make cases succeed. The search of a case ends after `limit`. Returns the
/// results in the order of the cases. Reports the start and end of each case to the callback.
pub async fn find_fixes(
    cases: Vec<WhyRequest<'_>>,
    options: &RunOptions,
    limit: Duration,
    on_progress: impl Fn(Progress) + Sync,
) -> Vec<Result<Vec<Finding>, (String, RunError)>> {
    let prepared = cases.iter().map(|request| request.prepared.clone());
    let prepared: Vec<Prepared> = prepared.collect();
    let mut pools = Pools::new(options, &prepared);
    if prepared.iter().any(|case| has_manual_changes(&case.plan)) {
        pools = pools.with_programs_in_guests(state_programs().chain(change::PROGRAMS));
    }
    let bench = Bench::new(options.jobs);
    let (pools, bench) = (&pools, &bench);
    let report: &(dyn Fn(Progress) + Sync) = &on_progress;
    let all = stream::iter(&cases).map(|request| async move {
        let case = request.prepared.case.id.clone();
        report(Progress::Started(case.clone()));
        let result = Box::pin(catch_panic(examine_case(
            request, pools, bench, limit, report,
        )))
        .await;
        bench.stop(&case);
        report(Progress::Ended(case.clone()));
        result.and_then(|one| one).map_err(|error| (case, error))
    });
    all.buffered(MAX_PARALLEL_CASES).collect().await
}

/// Searches until each failing probe has a fix.
async fn complete(search: &mut Search<'_>) -> Result<(), RunError> {
    search.try_single().await?;
    if !search.finding.is_answered() {
        search.try_combined().await?;
    }
    if !search.finding.is_answered() {
        search.try_helpful_pairs().await?;
    }
    if !search.finding.is_answered() {
        search.restore_jointly().await?;
    }
    if !search.finding.is_answered() {
        search.try_rewrites().await?;
    }
    if !search.finding.is_answered() {
        search.try_pairs().await?;
    }
    search.narrow_fixes().await
}

/// Examines a case on each kernel that the case requires.
async fn examine_case(
    request: &WhyRequest<'_>,
    pools: &Pools,
    bench: &Bench,
    limit: Duration,
    report: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Finding>, RunError> {
    let kernels = match pools.pools_for_case(&request.prepared).await {
        Ok(kernels) => kernels,
        // Objects of a dump that the kernel does not support may be omitted.
        Err(error) => {
            let fitting = without_unsupported(&request.prepared, &error);
            let fitting = fitting.unwrap_or_else(|| Err(to_run_error(&error)))?;
            let again = pools.pools_for_case(&fitting).await;
            again.map_err(|error| to_run_error(&error))?
        }
    };
    let mut findings = Vec::new();
    for pool in &kernels {
        let (silent, silent_foreign);
        let time = TimeLimit::start(limit);
        let labs = CaseLabs { bench, pool };
        let mut search = Search::start(request, labs, time, report).await?;
        if search.finding.is_healthy() {
            silent = request.with_silent_next_hops(|_, _| true);
            if let Some((request, assumed)) = &silent {
                let mut other = Search::start(request, labs, time, report).await?;
                if !other.finding.is_healthy() {
                    let assumed = assumed.iter().map(SilentNextHop::describe);
                    other.finding.assumed = assumed.collect();
                    search = other;
                }
            }
        }
        if !search.finding.is_healthy() {
            complete(&mut search).await?;
        }
        // Of the routes that components do not write, the next hop may not exist.
        if !search.finding.is_healthy() && search.finding.assumed.is_empty() {
            silent_foreign =
                request.with_silent_next_hops(|node, hop| search.is_foreign(node, hop.address));
            if let Some((request, assumed)) = &silent_foreign {
                let mut other = Search::start(request, labs, time, report).await?;
                let fails_as = other.fails_as(&search.finding);
                let fails_more = other.finding.failing.len() > search.finding.failing.len();
                if fails_as && (fails_more || !other.confirms(&search.finding).await?) {
                    complete(&mut other).await?;
                    let describe = if other.finding.is_answered() {
                        search = other;
                        SilentNextHop::describe
                    } else {
                        search.finding.stopped = search.finding.stopped.or(other.finding.stopped);
                        SilentNextHop::describe_reply
                    };
                    search.finding.assumed = assumed.iter().map(describe).collect();
                }
            }
        }
        findings.push(search.finding);
        // The next kernel cannot use these labs.
        bench.stop(&request.prepared.case.id);
    }
    Ok(findings)
}
