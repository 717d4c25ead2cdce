//! Fisher's exact test of two samples.

use statrs::distribution::{Discrete, Hypergeometric};
use statrs::statistics::{Max, Min};

/// Factor by which the probabilities of equally likely tables may differ because of rounding.
const ROUNDING: f64 = 1.0 + 1e-8;

/// Returns the probability that a table with the same sums of rows and columns is at most as likely
/// as this one, by chance (two-sided). Rows are samples and columns are kinds of draws.
///
/// `statrs::stats_tests::fishers_exact` (0.18) cannot replace this function. It multiplies binomial
/// coefficients, which overflow from about 1,000 draws on, and subtracts the upper tail from 1,
/// which rounds small probabilities to 0.
pub(super) fn fishers_exact([a, b, c, d]: [u64; 4]) -> f64 {
    // The arguments are valid for every table.
    let Ok(tables) = Hypergeometric::new(a + b + c + d, a + b, a + c) else {
        return 1.0;
    };
    let limit = tables.ln_pmf(a) + ROUNDING.ln();
    let all = (tables.min()..=tables.max()).map(|count| tables.ln_pmf(count));
    all.filter(|table| *table <= limit)
        .map(f64::exp)
        .sum::<f64>()
        .min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values were computed with integers of arbitrary size.
    #[test]
    fn fishers_exact_matches_exact_values() {
        for (table, expected) in [
            ([3, 5, 4, 50], 3.970_749_247e-2),
            ([172, 46, 90, 127], 9.041_009_037e-16),
            ([18, 147, 123, 58], 7.686_224_775e-29),
            ([64, 0, 0, 64], 8.350_331_114e-38),
            ([1_000, 1_000, 900, 1_100], 1.717_615_178e-3),
            ([10_000, 10_000, 10_300, 9_700], 2.786_251_484e-3),
            ([40, 60, 60, 40], 7.059_515_495e-3),
            ([5_000, 5_000, 5_000, 5_000], 1.0),
        ] {
            let found = fishers_exact(table);
            assert!((found / expected - 1.0).abs() < 1e-7, "{table:?}: {found}");
        }
    }

    #[test]
    fn fishers_exact_sample_without_draws_is_one() {
        for table in [[0, 0, 0, 0], [3, 0, 0, 0], [3, 5, 0, 0], [0, 7, 0, 5]] {
            assert!((fishers_exact(table) - 1.0).abs() < 1e-12, "{table:?}");
        }
    }
}
