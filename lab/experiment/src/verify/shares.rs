//! Compares the shares of each service's endpoints over all flows of all cases. Uses the draws of
//! the cases and as many further draws as are needed to find a wrong share with certainty.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream::{self, StreamExt as _};

use super::case_comparison::{CaseComparison, MissingDraws, Runs};
use super::document::{FailedCase, Share, SharesDiffer};
use super::pairs::CasePair;
use super::pool::{failed_on_new, find_pool};
use crate::comparison::{ShareGroup, SharePool};
use crate::statistics::{Threshold, parts};
use crate::trial::Tally;
use svclab_runner::run::execute::pool::Pools;
use svclab_runner::run::tasks::catch_panic;
use svclab_runner::run::to_run_error;

/// Draws of one flow in the first run of its case.
#[derive(Debug, Clone)]
pub(super) struct FlowDraws {
    /// Index of the case.
    pub(super) case: usize,
    pub(super) probe: String,
    pub(super) group: ShareGroup,
    /// Outcomes on both sides.
    pub(super) tallies: [Tally; 2],
}

/// Services whose shares are compared.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Draws of each group, and its flows by case and probe.
    pools: BTreeMap<ShareGroup, (SharePool, Vec<(usize, String)>)>,
}

impl Shares {
    /// Groups the draws by spread. If clients are drawn, one flow of each case is used, and all its
    /// draws are made later.
    pub(super) fn new(drawn: Vec<FlowDraws>) -> Self {
        let mut shares = Self::default();
        for drawn in drawn {
            let by_client = drawn.group.by_client;
            let (pool, flows) = shares.pools.entry(drawn.group).or_default();
            if !by_client {
                pool.add(&drawn.tallies);
            } else if flows.iter().any(|(case, _)| *case == drawn.case) {
                continue;
            }
            flows.push((drawn.case, drawn.probe));
        }
        shares
    }

    /// Makes the missing draws, several cases at once.
    pub(super) async fn draw(
        &mut self,
        pairs: &[CasePair],
        pools: &Pools,
        jobs: usize,
    ) -> Vec<FailedCase> {
        let threshold = self.threshold();
        // Key: index of the case, and whether clients are drawn.
        let mut missing: BTreeMap<(usize, bool), MissingDraws> = BTreeMap::new();
        for (group, (pool, flows)) in &self.pools {
            let draws = pool.missing_draws(group.endpoints.len(), threshold);
            let each = draws.div_ceil(u64::try_from(flows.len()).unwrap_or(u64::MAX).max(1));
            for (case, probe) in flows.iter().filter(|_| each > 0) {
                let missing = missing.entry((*case, group.by_client)).or_default();
                missing.insert(probe.clone(), each);
            }
        }
        let drawn: Vec<_> = stream::iter(missing)
            .map(async |((case, by_client), missing)| {
                let drawing = draw(&pairs[case], pools, &missing, by_client);
                let drawn = Box::pin(catch_panic(drawing)).await;
                let runs = drawn.unwrap_or_else(|error| Err(failed_on_new(&pairs[case], error)))?;
                Ok((case, by_client, runs))
            })
            .buffered(jobs.max(1))
            .collect()
            .await;
        let mut failed = Vec::new();
        for result in drawn {
            match result {
                Ok((case, by_client, runs)) => {
                    for (probe, tallies) in runs.into_iter().flatten() {
                        self.add(&(case, probe), by_client, &tallies);
                    }
                }
                Err(error) => failed.push(error),
            }
        }
        failed
    }

    /// Adds draws of a flow to its group.
    fn add(&mut self, flow: &(usize, String), by_client: bool, tallies: &[Tally; 2]) {
        let mut pools = self.pools.iter_mut();
        let group =
            pools.find(|(group, (_, flows))| group.by_client == by_client && flows.contains(flow));
        if let Some((_, (pool, _))) = group {
            pool.add(tallies);
        }
    }

    /// Returns the services whose endpoints get different shares.
    pub(super) fn differing(&self, pairs: &[CasePair]) -> Vec<SharesDiffer> {
        let threshold = self.threshold();
        let differing = self.pools.iter().filter_map(|(spread, (pool, flows))| {
            let chance = pool.difference(threshold)?;
            let cases: BTreeSet<usize> = flows.iter().map(|(case, _)| *case).collect();
            let [against, new] = pool.draws();
            let cases = cases
                .into_iter()
                .map(|case| pairs[case].new.case.id.clone());
            Some(SharesDiffer {
                service: spread.service.clone(),
                modes: spread.modes.clone(),
                cases: cases.collect(),
                flows: flows.len(),
                by_client: spread.by_client,
                against: shares(against),
                new: shares(new),
                error_per_billion: parts(chance, 1e9),
            })
        });
        differing.collect()
    }

    fn threshold(&self) -> Threshold {
        Threshold::for_shares(self.pools.len())
    }
}

async fn draw(
    pair: &CasePair,
    pools: &Pools,
    missing: &MissingDraws,
    by_client: bool,
) -> Result<Vec<Runs>, FailedCase> {
    let pair = pair.without_steps();
    let pool = find_pool(&pair, pools).await?;
    let _room = pool.acquire_room(&pair.new.plan).await;
    let agent = pool.agent().await;
    let agent = agent.map_err(|error| failed_on_new(&pair, to_run_error(&error)))?;
    let comparison = CaseComparison::new(&pair, agent);
    if by_client {
        comparison.draw_client_shares(missing).await
    } else {
        comparison.draw_shares(missing).await
    }
}

fn shares(draws: &BTreeMap<Option<String>, u64>) -> Vec<Share> {
    let share = |(endpoint, draws): (&Option<String>, &u64)| Share {
        endpoint: endpoint.clone(),
        draws: *draws,
    };
    draws.iter().map(share).collect()
}
