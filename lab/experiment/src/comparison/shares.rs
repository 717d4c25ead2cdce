//! Compares the shares of a service's endpoints over all flows to the service. Few connections of
//! many flows together find differences that no single flow shows.

use std::collections::{BTreeMap, BTreeSet};

use crate::statistics::{Threshold, p_value, sample_size};
use crate::trial::Tally;

/// Key of the flows that the same rules distribute over the same endpoints.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShareGroup {
    /// Service and port: `service/default/web:80`.
    pub(crate) service: String,
    /// Modes of the kube-proxies, comma-separated.
    pub(crate) modes: String,
    /// Endpoints that answered on either side.
    pub(crate) endpoints: BTreeSet<String>,
    /// Whether clients are drawn instead of connections, because each client stays with its
    /// endpoint.
    pub(crate) by_client: bool,
}

/// Draws of all flows with the same [`ShareGroup`]. Each flow has the same number of draws on both
/// sides, so that the test stays valid if the shares of flows differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SharePool {
    draws: [BTreeMap<Option<String>, u64>; 2],
}

impl SharePool {
    pub(crate) fn add(&mut self, tallies: &[Tally; 2]) {
        for (draws, tally) in self.draws.iter_mut().zip(tallies) {
            for (outcome, count) in tally.iter() {
                *draws.entry(outcome.endpoint.clone()).or_default() += count;
            }
        }
    }

    /// Returns the number of draws by endpoint, on both sides.
    pub(crate) const fn draws(&self) -> &[BTreeMap<Option<String>, u64>; 2] {
        &self.draws
    }

    /// Returns the number of draws that are missing on each side for `endpoints` endpoints.
    pub(crate) fn missing_draws(&self, endpoints: usize, threshold: Threshold) -> u64 {
        let drawn = self.draws.iter().map(|draws| draws.values().sum());
        sample_size(endpoints, threshold).saturating_sub(drawn.min().unwrap_or(0))
    }

    /// Returns the probability that two equal sides differ so much, or `None` if it is not below
    /// the threshold.
    pub(crate) fn difference(&self, threshold: Threshold) -> Option<f64> {
        let [against, new] = &self.draws;
        let p_value = p_value(against, new);
        threshold.is_below(p_value).then_some(p_value)
    }
}

#[cfg(test)]
mod tests;
