//! Shares of a service's endpoints, over all flows that call the service: few connections
//! of many flows find together what none of them finds alone.

use std::collections::{BTreeMap, BTreeSet};

use super::chance::{Threshold, p_value, sample_size};
use super::draws::by_endpoint;
use super::tally::Tally;

/// What flows have in common that are spread over the same endpoints by the same rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spread {
    /// The service and its port: `service/default/web:80`.
    pub service: String,
    /// Modes of the kube-proxies.
    pub modes: String,
    /// Endpoints that answered on either side.
    pub endpoints: BTreeSet<String>,
    /// Whether clients are drawn, which stay with their endpoint, and not connections.
    pub by_client: bool,
}

/// Draws of all flows of one [`Spread`]: the same number on both sides for each flow, so
/// that a flow with other shares than the others makes the test no less valid.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pool {
    draws: [BTreeMap<Option<String>, u64>; 2],
}

impl Pool {
    /// Adds draws of a flow.
    pub fn add(&mut self, tallies: &[Tally; 2]) {
        for (draws, tally) in self.draws.iter_mut().zip(tallies) {
            for (endpoint, count) in by_endpoint(tally.counts()) {
                *draws.entry(endpoint).or_default() += count;
            }
        }
    }

    /// Number of draws by endpoint, on both sides.
    #[must_use]
    pub const fn draws(&self) -> &[BTreeMap<Option<String>, u64>; 2] {
        &self.draws
    }

    /// Number of draws that are lacking on each side for `endpoints` endpoints.
    #[must_use]
    pub fn lacking(&self, endpoints: usize, threshold: Threshold) -> u64 {
        let drawn = self.draws.iter().map(|draws| draws.values().sum());
        sample_size(endpoints, threshold).saturating_sub(drawn.min().unwrap_or(0))
    }

    /// The probability that two equal sides differ so much, where it is below the threshold.
    #[must_use]
    pub fn difference(&self, threshold: Threshold) -> Option<f64> {
        let [one, other] = &self.draws;
        let p_value = p_value(one, other);
        threshold.is_below(p_value).then_some(p_value)
    }
}

#[cfg(test)]
#[path = "shares_tests.rs"]
mod tests;
