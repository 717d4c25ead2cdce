//! Compares the shares of each service's endpoints over all flows of all cases. Uses the draws of
//! the cases and as many further draws as are needed to find a wrong share with certainty.

use std::collections::{BTreeMap, BTreeSet, HashMap};

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
    /// Draws of each group, in the order of the groups.
    groups: Vec<(ShareGroup, GroupDraws)>,
    /// Index of the group of each flow.
    group_by_flow: HashMap<FlowKey, usize>,
}

#[derive(Debug, Default)]
struct GroupDraws {
    pool: SharePool,
    /// Flows by case and probe.
    flows: BTreeSet<(usize, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FlowKey {
    case: usize,
    probe: String,
    by_client: bool,
}

impl Shares {
    /// Groups the draws by spread. If clients are drawn, one flow of each case is used, and all its
    /// draws are made later.
    pub(super) fn new(drawn: Vec<FlowDraws>) -> Self {
        let mut groups: BTreeMap<ShareGroup, GroupDraws> = BTreeMap::new();
        for drawn in drawn {
            let by_client = drawn.group.by_client;
            let group = groups.entry(drawn.group).or_default();
            let mut of_later_cases = group.flows.range((drawn.case, String::new())..);
            if !by_client {
                group.pool.add(&drawn.tallies);
            } else if of_later_cases
                .next()
                .is_some_and(|(case, _)| *case == drawn.case)
            {
                continue;
            }
            group.flows.insert((drawn.case, drawn.probe));
        }
        let groups: Vec<_> = groups.into_iter().collect();
        let group_by_flow = groups
            .iter()
            .enumerate()
            .flat_map(|(index, (group, draws))| {
                let flows = draws.flows.iter();
                flows.map(move |(case, probe)| {
                    let key = FlowKey {
                        case: *case,
                        probe: probe.clone(),
                        by_client: group.by_client,
                    };
                    (key, index)
                })
            });
        Self {
            group_by_flow: group_by_flow.collect(),
            groups,
        }
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
        for (group, GroupDraws { pool, flows }) in &self.groups {
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
                        let flow = FlowKey {
                            case,
                            probe,
                            by_client,
                        };
                        self.add(&flow, &tallies);
                    }
                }
                Err(error) => failed.push(error),
            }
        }
        failed
    }

    /// Adds draws of a flow to its group.
    fn add(&mut self, flow: &FlowKey, tallies: &[Tally; 2]) {
        if let Some(index) = self.group_by_flow.get(flow) {
            self.groups[*index].1.pool.add(tallies);
        }
    }

    /// Returns the services whose endpoints get different shares.
    pub(super) fn differing(&self, pairs: &[CasePair]) -> Vec<SharesDiffer> {
        let threshold = self.threshold();
        let differing = self
            .groups
            .iter()
            .filter_map(|(spread, GroupDraws { pool, flows })| {
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
        Threshold::for_shares(self.groups.len())
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn flow_draws(case: usize, probe: &str, by_client: bool) -> FlowDraws {
        FlowDraws {
            case,
            probe: probe.to_owned(),
            group: ShareGroup {
                service: "service/default/web:80".to_owned(),
                modes: "iptables".to_owned(),
                endpoints: BTreeSet::from(["pod/default/web".to_owned()]),
                by_client,
            },
            tallies: <[Tally; 2]>::default(),
        }
    }

    #[test]
    fn shares_by_client_use_one_flow_of_each_case() {
        let draws = [(0, "b"), (1, "a"), (0, "a"), (1, "b")];
        let flows = |by_client| {
            let draws = draws.map(|(case, probe)| flow_draws(case, probe, by_client));
            let shares = Shares::new(draws.to_vec());
            let flows = shares.groups[0].1.flows.iter();
            flows
                .map(|(case, probe)| format!("{case} {probe}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(flows(true), ["0 b", "1 a"]);
        assert_eq!(flows(false), ["0 a", "0 b", "1 a", "1 b"]);
    }

    #[test]
    fn shares_many_flows_are_grouped_in_linear_time() {
        const CASES: usize = 50_000;
        for by_client in [false, true] {
            let started = Instant::now();
            let draws = (0..CASES).map(|case| flow_draws(case, "call", by_client));
            let mut shares = Shares::new(draws.collect());
            for case in 0..CASES {
                let probe = "call".to_owned();
                let flow = FlowKey {
                    case,
                    probe,
                    by_client,
                };
                assert!(shares.group_by_flow.contains_key(&flow));
                shares.add(&flow, &<[Tally; 2]>::default());
            }
            // A linear search for each flow takes minutes in a build without optimization.
            assert!(started.elapsed() < Duration::from_secs(10));
        }
    }
}
