//! Compares the shares of each service's endpoints over all flows of all cases. Uses the draws of
//! the cases and as many further draws as are needed to find a wrong share with certainty.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream::{self, StreamExt as _};

use super::bench::{CaseComparison, MissingDraws};
use super::pairs::CasePair;
use super::trial::{billionths, failed_on_new, find_pool};
use crate::verify::{
    FailedCase, Share, ShareGroup, SharePool, SharesDiffer, SideName, Tally, Threshold,
};
use svclab_runner::run::execute::to_run_error;
use svclab_runner::run::pool::Pools;
use svclab_runner::run::tasks::catch_panic;

/// Draws of one flow in the first run of its case.
#[derive(Debug, Clone)]
pub struct FlowDraws {
    /// Index of the case.
    pub case: usize,
    /// Probe name.
    pub probe: String,
    /// Spread of the flow.
    pub group: ShareGroup,
    /// Outcomes on both sides.
    pub tallies: [Tally; 2],
}

/// Spread of each probe.
type GroupByProbe<'s> = BTreeMap<&'s String, &'s ShareGroup>;

/// Further draws with their spreads.
type NewDraws = Vec<(ShareGroup, [Tally; 2])>;

/// Services whose shares are compared.
#[derive(Debug, Default)]
pub struct Shares {
    pools: BTreeMap<ShareGroup, (SharePool, Vec<(usize, String)>)>,
}

impl Shares {
    /// Groups the draws by spread. If clients are drawn, one flow of each case is used, and all its
    /// draws are made later.
    pub fn new(drawn: Vec<FlowDraws>) -> Self {
        let mut pools: BTreeMap<ShareGroup, (SharePool, Vec<(usize, String)>)> = BTreeMap::new();
        for drawn in drawn {
            let (pool, flows) = pools.entry(drawn.group.clone()).or_default();
            if drawn.group.by_client {
                if flows.iter().all(|(case, _)| *case != drawn.case) {
                    flows.push((drawn.case, drawn.probe));
                }
                continue;
            }
            pool.add(&drawn.tallies);
            flows.push((drawn.case, drawn.probe));
        }
        Self { pools }
    }

    /// Makes the missing draws, several cases at once.
    pub async fn draw(
        &mut self,
        pairs: &[CasePair],
        pools: &Pools,
        jobs: usize,
    ) -> Vec<FailedCase> {
        let threshold = self.threshold();
        // Key: index of the case, and whether clients are drawn.
        let mut lacking: BTreeMap<(usize, bool), (MissingDraws, GroupByProbe<'_>)> =
            BTreeMap::new();
        for (spread, (pool, flows)) in &self.pools {
            let draws = pool.missing_draws(spread.endpoints.len(), threshold);
            let each = draws.div_ceil(u64::try_from(flows.len()).unwrap_or(u64::MAX).max(1));
            if each == 0 {
                continue;
            }
            for (case, probe) in flows {
                let (lacking, spreads) = lacking.entry((*case, spread.by_client)).or_default();
                lacking.insert(probe.clone(), each);
                spreads.insert(probe, spread);
            }
        }
        let drawn: Vec<Result<NewDraws, FailedCase>> = stream::iter(lacking)
            .map(async |((case, by_client), (lacking, spreads))| {
                let drawing = draw(&pairs[case], pools, &lacking, by_client);
                let runs = Box::pin(catch_panic(drawing))
                    .await
                    .unwrap_or_else(|error| {
                        let (case, side) = (pairs[case].new.case.id.clone(), SideName::New);
                        Err(FailedCase { case, side, error })
                    })?;
                let tallies = runs.into_iter().flatten();
                let with_group =
                    |(probe, tallies)| Some(((*spreads.get(&probe)?).clone(), tallies));
                Ok(tallies.filter_map(with_group).collect())
            })
            .buffered(jobs.max(1))
            .collect()
            .await;
        let mut failed = Vec::new();
        for case in drawn {
            match case {
                Ok(tallied) => {
                    for (spread, tallies) in tallied {
                        if let Some((pool, _)) = self.pools.get_mut(&spread) {
                            pool.add(&tallies);
                        }
                    }
                }
                Err(error) => failed.push(error),
            }
        }
        failed
    }

    /// Returns the services whose endpoints get different shares.
    pub fn differing(&self, pairs: &[CasePair]) -> Vec<SharesDiffer> {
        let threshold = self.threshold();
        let differing = self.pools.iter().filter_map(|(spread, (pool, flows))| {
            let chance = pool.difference(threshold)?;
            let cases: BTreeSet<usize> = flows.iter().map(|(case, _)| *case).collect();
            let [against, new] = pool.draws();
            Some(SharesDiffer {
                service: spread.service.clone(),
                modes: spread.modes.clone(),
                cases: cases
                    .into_iter()
                    .map(|case| pairs[case].new.case.id.clone())
                    .collect(),
                flows: flows.len(),
                by_client: spread.by_client,
                against: shares(against),
                new: shares(new),
                error_per_billion: billionths(chance),
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
    lacking: &MissingDraws,
    by_client: bool,
) -> Result<Vec<super::bench::Runs>, FailedCase> {
    let pair = pair.without_steps();
    let pool = find_pool(&pair, pools).await?;
    let _room = pool.acquire_room(&pair.new.plan).await;
    let agent = pool.agent().await;
    let agent = agent.map_err(|error| failed_on_new(&pair, to_run_error(&error)))?;
    let bench = CaseComparison::new(&pair, agent);
    if by_client {
        bench.draw_client_shares(lacking).await
    } else {
        bench.draw_shares(lacking).await
    }
}

fn shares(draws: &BTreeMap<Option<String>, u64>) -> Vec<Share> {
    let share = |(endpoint, draws): (&Option<String>, &u64)| Share {
        endpoint: endpoint.clone(),
        draws: *draws,
    };
    draws.iter().map(share).collect()
}
