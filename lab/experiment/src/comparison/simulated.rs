//! Simulates flows of a known distribution, for tests.

use crate::trial::{ConnectionOutcome, Tally};
use svclab_model::evidence::Verdict;

/// Random number generator (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators,
/// 2014).
pub(crate) struct Random(pub u64);

impl Random {
    /// Returns the next number between 0 and 1.
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let upper = u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap_or(0);
        f64::from(upper) / f64::from(u32::MAX)
    }

    /// Chooses an endpoint as a chain of rules with one probability each does.
    pub(crate) fn choose(&mut self, probabilities: &[f64]) -> usize {
        let mut rules = probabilities.iter();
        rules
            .position(|probability| self.next() < *probability)
            .unwrap_or(probabilities.len())
    }

    /// Simulates a run in which an endpoint is chosen for each connection.
    pub(crate) fn run(&mut self, connections: u32, probabilities: &[f64]) -> Tally {
        tally((0..connections).map(|_| self.choose(probabilities)))
    }

    /// Simulates a run in which all connections have the same endpoint.
    pub(crate) fn run_with_affinity(&mut self, connections: u32, probabilities: &[f64]) -> Tally {
        let endpoint = self.choose(probabilities);
        tally((0..connections).map(|_| endpoint))
    }
}

/// Returns the probabilities of the rules that give `endpoints` endpoints the same share. All but
/// the last endpoint have a rule. With `more`, the probabilities are those for as many more
/// endpoints.
pub(crate) fn probabilities(endpoints: u32, more: u32) -> Vec<f64> {
    (2..=endpoints)
        .rev()
        .map(|left| 1.0 / f64::from(left + more))
        .collect()
}

/// Returns the tally of connections to these endpoints.
pub(crate) fn tally(endpoints: impl IntoIterator<Item = usize>) -> Tally {
    let mut tally = Tally::default();
    for endpoint in endpoints {
        tally.count(ConnectionOutcome {
            endpoint: Some(format!("pod/default/web-{endpoint}")),
            ..ConnectionOutcome::from_verdict(Verdict::Connected)
        });
    }
    tally
}
