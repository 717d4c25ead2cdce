//! Frequencies of an event: bounds from a sample, and the sample that separates two frequencies.

use statrs::distribution::{Beta, Binomial, ContinuousCDF, DiscreteCDF};

/// Returns the largest frequency for which `shown` or fewer of `all` trials show the event with a
/// probability of at least `wrong` (C. Clopper and E. Pearson, 1934).
pub(crate) fn upper_bound(shown: u64, all: u64, wrong: f64) -> f64 {
    if shown >= all {
        return 1.0;
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of connections are small"
    )]
    let shapes = (shown as f64 + 1.0, (all - shown) as f64);
    // Both shapes are positive.
    Beta::new(shapes.0, shapes.1).map_or(1.0, |frequency| frequency.inverse_cdf(1.0 - wrong))
}

/// Returns the smallest number of trials, and the minimum number of those with the event that
/// indicates the frequency `high` and not `low`. With these numbers, the probability of confusing
/// the frequencies is at most `mistaken`. Returns `None` if `max` trials are too few.
pub(crate) fn separating_sample(
    low: f64,
    high: f64,
    mistaken: f64,
    max: u32,
) -> Option<(u32, u32)> {
    if low >= high {
        return None;
    }
    (1..=max).find_map(|trials| {
        let [low, high] = [low, high].map(|frequency| Binomial::new(frequency, trials.into()).ok());
        let (low, high) = low.zip(high)?;
        // The smallest threshold that `low` reaches only with the probability `mistaken`.
        let below = (0..trials).find(|below| low.sf(u64::from(*below)) <= mistaken)?;
        (high.cdf(below.into()) <= mistaken).then_some((trials, below + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_bound_is_clopper_pearson() {
        // With 0 of 29, the frequency is at most about 10 % at a probability of 1 in 20 (rule of
        // three).
        let bound = upper_bound(0, 29, 0.05);
        assert!((bound - (1.0 - 0.05_f64.powf(1.0 / 29.0))).abs() < 1e-9);
        for (shown, all) in [
            (0, 1),
            (1, 2),
            (3, 64),
            (32, 64),
            (63, 64),
            (252, 512),
            (511, 512),
        ] {
            let bound = upper_bound(shown, all, 5e-5);
            let tail = Binomial::new(bound, all).unwrap().cdf(shown);
            assert!(
                (tail / 5e-5 - 1.0).abs() < 1e-6,
                "{shown} of {all}: {bound}"
            );
        }
        assert_eq!(upper_bound(4, 4, 0.05).to_bits(), 1.0_f64.to_bits());
    }

    #[test]
    fn separating_sample_keeps_both_errors_below_limit() {
        for (low, high) in [(0.1, 0.9), (0.3, 0.6), (0.01, 0.2)] {
            let (trials, threshold) = separating_sample(low, high, 1e-3, 512).unwrap();
            let [low, high] = [low, high].map(|p| Binomial::new(p, trials.into()).unwrap());
            let below = u64::from(threshold - 1);
            assert!(low.sf(below) <= 1e-3 && high.cdf(below) <= 1e-3);
        }
        assert_eq!(separating_sample(0.5, 0.4, 1e-3, 512), None);
        assert_eq!(separating_sample(0.5, 0.51, 1e-3, 512), None);
    }
}
