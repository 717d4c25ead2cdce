//! Decides whether two samples differ, or whether chance explains the difference. kube-proxy
//! chooses endpoints at random.
//!
//! `verify` compares two samples by [`p_value`]. `bisect` separates two frequencies by the tails of
//! the binomial distribution ([`binomial`]). The thresholds of `verify` follow from one number,
//! [`FALSE_ALARM`]. Half of this probability is for flows and half for the shares of endpoints. Each
//! half is divided by its number of tests (Bonferroni).

pub(crate) mod binomial;
mod fisher;

use std::collections::{BTreeMap, BTreeSet};

use fisher::fishers_exact;

/// Probability that a verification of two sides that behave alike reports any difference.
pub(crate) const FALSE_ALARM: f64 = 1e-6;

/// Probability that a share as wrong as [`wrong_share`] is not found.
const MISSED: f64 = 1e-6;

/// Number of independent draws per side at which each look is made. A flow that is drawn by
/// connection has one more run per look, with more connections each time.
pub(crate) const LOOKS: [u64; 10] = [1, 4, 8, 12, 15, 18, 21, 26, 40, 64];

/// Maximum sample size per side for comparing the shares of a service.
const MAX_SAMPLE: u32 = 20_000;

/// Maximum error probability of each test of one verification.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Threshold(f64);

impl Threshold {
    /// Returns the threshold for each look at one of `flows` flows.
    pub(crate) fn for_flows(flows: usize) -> Self {
        Self::divide(FALSE_ALARM / 2.0, flows * LOOKS.len())
    }

    /// Returns the threshold for each of `services` services, whose shares are compared once.
    pub(crate) fn for_shares(services: usize) -> Self {
        Self::divide(FALSE_ALARM / 2.0, services)
    }

    /// Divides `false_alarm`, the probability that any of `tests` tests gives a false alarm.
    pub(crate) fn divide(false_alarm: f64, tests: usize) -> Self {
        Self(false_alarm / float(tests.max(1)))
    }

    /// Whether a difference with this p-value is not due to chance.
    pub(crate) fn is_below(self, p_value: f64) -> bool {
        p_value < self.0
    }
}

/// Returns the probability that two samples of the same distribution differ at least as much as
/// these. Each kind of outcome is compared with all others by Fisher's exact test, corrected for
/// the number of kinds (Bonferroni). Two kinds need only one test.
///
/// The draws have to be independent of each other. If they are less random, as in a round robin,
/// the counts vary less and the true probability is lower.
pub(crate) fn p_value<K: Ord>(left: &BTreeMap<K, u64>, right: &BTreeMap<K, u64>) -> f64 {
    let kinds: BTreeSet<&K> = left.keys().chain(right.keys()).collect();
    let tests = match kinds.len() {
        2 => 1.0,
        kinds => float(kinds),
    };
    let (total, other_total) = (left.values().sum::<u64>(), right.values().sum::<u64>());
    kinds
        .into_iter()
        .map(|kind| {
            let count = |counts: &BTreeMap<K, u64>| counts.get(kind).copied().unwrap_or(0);
            let (shown, shown_other) = (count(left), count(right));
            let table = [shown, total - shown, shown_other, other_total - shown_other];
            (fishers_exact(table) * tests).min(1.0)
        })
        .fold(1.0, f64::min)
}

/// Returns an endpoint's share that is certain to be found if each of `endpoints` should get the
/// same. It is the last endpoint's share if the probability of each rule is the one for one more
/// endpoint.
pub(crate) fn wrong_share(endpoints: usize) -> f64 {
    2.0 / float(endpoints + 1)
}

/// Returns the number of draws per side that find [`wrong_share`] with an error probability of at
/// most [`MISSED`]. The number is at most [`MAX_SAMPLE`].
///
/// Sample size of the comparison of two proportions (J. L. Fleiss, Statistical Methods for Rates
/// and Proportions, chapter 4). The bound `sqrt(2 ln(1/p))` replaces the quantiles of the normal
/// distribution, which it exceeds.
pub(crate) fn sample_size(endpoints: usize, threshold: Threshold) -> u64 {
    let right = 1.0 / float(endpoints.max(1));
    let wrong = wrong_share(endpoints).min(1.0);
    let bound = |p: f64| (2.0 * (1.0 / p).ln()).sqrt();
    let variance = |p: f64| p * (1.0 - p);
    let middle = right.midpoint(wrong);
    let alike = bound(threshold.0 / float(endpoints.max(1))) * (2.0 * variance(middle)).sqrt();
    let unlike = bound(MISSED) * (variance(right) + variance(wrong)).sqrt();
    let size = ((alike + unlike) / (wrong - right)).powi(2).ceil();
    whole(size.min(f64::from(MAX_SAMPLE)))
}

/// Accepted probability that chance makes every repetition succeed.
const MAX_CHANCE: f64 = 1e-3;

/// Returns the number of repetitions, at most `max`, that all succeed with a probability of at most
/// [`MAX_CHANCE`] if chance makes each succeed with this probability.
pub(crate) fn repetitions(chance: f64, max: u32) -> u32 {
    let mut enough = 1..max;
    let is_enough = |count: &u32| chance.powf(f64::from(*count)) <= MAX_CHANCE;
    enough.find(is_enough).unwrap_or(max)
}

/// Returns a probability in parts of `all`, rounded up; 0 below 1 part.
pub(crate) fn parts(probability: f64, all: f64) -> u64 {
    let parts = probability * all;
    if parts < 1.0 { 0 } else { whole(parts.ceil()) }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates"
)]
const fn whole(number: f64) -> u64 {
    number as u64
}

fn float(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(counts: &[(&'static str, u64)]) -> BTreeMap<&'static str, u64> {
        counts.iter().copied().collect()
    }

    #[test]
    fn p_value_of_separated_samples_is_fishers() {
        // 2 of the 184,756 ways to sort 20 draws into two halves.
        let found = p_value(&counts(&[("a", 10)]), &counts(&[("b", 10)]));
        assert!((found - 2.0 / 184_756.0).abs() < 1e-9, "{found}");
    }

    #[test]
    fn p_value_of_several_kinds_is_corrected() {
        let even = counts(&[("a", 40), ("b", 41), ("c", 47)]);
        assert!(p_value(&even, &counts(&[("a", 47), ("b", 40), ("c", 41)])) > 0.99);
        assert!(p_value(&even, &counts(&[("a", 63), ("b", 65)])) < 1e-12);
    }

    #[test]
    fn p_value_of_nothing_is_one() {
        assert_eq!(
            p_value(&counts(&[]), &counts(&[])).to_bits(),
            1.0_f64.to_bits()
        );
        assert_eq!(
            p_value(&counts(&[("a", 3)]), &counts(&[])).to_bits(),
            1.0_f64.to_bits()
        );
    }

    /// All tests of the largest verification together have an error probability of at most
    /// [`FALSE_ALARM`]. At the last look, a difference in every draw is certain.
    #[test]
    fn thresholds_together_spend_one_false_alarm() {
        for (flows, services) in [(1, 0), (1, 1), (549, 40), (10_000, 500)] {
            let looks = float(flows * LOOKS.len()) * Threshold::for_flows(flows).0;
            let shares = float(services) * Threshold::for_shares(services).0;
            assert!(
                looks + shares <= FALSE_ALARM * (1.0 + 1e-9),
                "{flows} {services}"
            );
            let (one, other) = (counts(&[("a", LOOKS[9])]), counts(&[("b", LOOKS[9])]));
            assert!(Threshold::for_flows(flows).is_below(p_value(&one, &other) * 4.0));
        }
    }

    #[test]
    fn sample_size_grows_with_endpoints_and_is_bounded() {
        let threshold = Threshold::for_shares(50);
        assert!((wrong_share(2) - 2.0 / 3.0).abs() < 1e-12);
        let sizes: Vec<u64> = [2, 3, 5, 10, 30, 1_000]
            .map(|endpoints| sample_size(endpoints, threshold))
            .to_vec();
        assert!(
            sizes.is_sorted() && sizes[0] > 1_000 && sizes[4] < MAX_SAMPLE.into(),
            "{sizes:?}"
        );
        assert_eq!(sizes[5], u64::from(MAX_SAMPLE));
    }
}
