//! Trying changes in copies of a failing case, until some make it work.

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

/// How many cases are asked about at once: most of what they do is to wait for connections
/// that time out.
const CASES: usize = 4;

/// A case that is asked about.
#[derive(Debug)]
pub struct Asked<'l> {
    /// Its lab.
    pub lab: &'l Chosen,
    /// The case.
    pub prepared: Prepared,
    /// How cases are prepared.
    pub wishes: Wishes,
    /// The probe in question; all whose connections are not made without it.
    pub probe: Option<String>,
}

/// How far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// A case is begun.
    Begun(String),
    /// It is known what there is to know of it.
    Ended(String),
}

/// Finds out of cases what makes them work, in their order. `tell` hears of each as it is
/// begun and ended.
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

/// What is found of a case, on each kernel that it is to run in.
async fn one(asked: &Asked<'_>, pools: &Pools, copies: &Copies) -> Result<Vec<Finding>, RunError> {
    let kernels = match pools.of_case(&asked.prepared).await {
        Ok(kernels) => kernels,
        // What a kernel lacks may be left out of dumps.
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
        // The next is on another kernel.
        copies.let_go(&asked.prepared.case.id);
    }
    Ok(found)
}
