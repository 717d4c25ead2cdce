//! Tries changes in copies of a failing case until some make the case succeed.

mod copies;
mod made;
mod search;

use futures_util::stream::{self, StreamExt as _};

use self::copies::Copies;
use self::search::Search;
use crate::why::Finding;
use svclab_runner::results::RunError;
use svclab_runner::run::execute::{Options, trouble};
use svclab_runner::run::pool::Pools;
use svclab_runner::run::prepare::{Prepared, Wishes};
use svclab_runner::run::refit::as_far_as_had;
use svclab_runner::run::select::Chosen;
use svclab_runner::run::tasks::caught;

/// Number of cases that are examined at once. Most of the time is spent waiting for timeouts.
const CASES: usize = 4;

/// Case to examine.
#[derive(Debug)]
pub struct Asked<'l> {
    /// Lab of the case.
    pub lab: &'l Chosen,
    /// Prepared case.
    pub prepared: Prepared,
    /// Options for preparing changed cases.
    pub wishes: Wishes,
    /// Name of the probe to examine; `None` means all probes with failing connections.
    pub probe: Option<String>,
}

/// Progress of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// The search of this case started.
    Begun(String),
    /// The search of this case ended.
    Ended(String),
}

/// Finds changes that make cases succeed. Returns the results in the order of the cases. Reports
/// the start and end of each case to the callback.
pub async fn why(
    cases: Vec<Asked<'_>>,
    options: &Options,
    tell: impl Fn(Stage),
) -> Vec<Result<Vec<Finding>, (String, RunError)>> {
    let prepared: Vec<Prepared> = cases.iter().map(|asked| asked.prepared.clone()).collect();
    let pools = Pools::new(options, &prepared);
    let copies = Copies::new(options.jobs);
    let (tell, pools, copies) = (&tell, &pools, &copies);
    let all = stream::iter(&cases).map(|asked| async move {
        let case = asked.prepared.case.id.clone();
        tell(Stage::Begun(case.clone()));
        let one = Box::pin(caught(one(asked, pools, copies))).await;
        copies.let_go(&case);
        tell(Stage::Ended(case.clone()));
        one.and_then(|one| one).map_err(|error| (case, error))
    });
    all.buffered(CASES).collect().await
}

/// Examines a case on each kernel that the case requires.
async fn one(asked: &Asked<'_>, pools: &Pools, copies: &Copies) -> Result<Vec<Finding>, RunError> {
    let kernels = match pools.of_case(&asked.prepared).await {
        Ok(kernels) => kernels,
        // Objects of a dump that the kernel does not support may be omitted.
        Err(error) => {
            let fitting = as_far_as_had(&asked.prepared, &error);
            let fitting = fitting.unwrap_or_else(|| Err(trouble(&error)))?;
            let again = pools.of_case(&fitting).await;
            again.map_err(|error| trouble(&error))?
        }
    };
    let mut found = Vec::new();
    for pool in kernels {
        let mut search = Search::begin(asked, &pool, copies).await?;
        if !search.finding.is_healthy() {
            search.singly().await?;
            if !search.finding.is_answered() {
                search.in_pairs().await?;
            }
            search.narrow().await?;
        }
        found.push(search.finding);
        // The next kernel cannot use these copies.
        copies.let_go(&asked.prepared.case.id);
    }
    Ok(found)
}
