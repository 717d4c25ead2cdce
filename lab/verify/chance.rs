//! Whether two tallies differ, or only happen to: endpoints are often chosen by chance,
//! and a few connections need not meet all of them.

use std::collections::BTreeSet;

use super::tally::{Outcome, Tally};

/// Below this probability it is not by chance that two tallies differ.
pub(super) const SURE: f64 = 1e-6;

/// Below this it may be more than chance, though both saw the same outcomes; and it is
/// told though it may be chance, where no more can be tried.
pub const DOUBTFUL: f64 = 1e-3;

/// How two tallies of the same flow compare.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Likeness {
    /// Nothing speaks for a difference.
    Same,
    /// They differ, which may be chance: with this probability, or less. More
    /// connections would tell.
    Unsure(f64),
    /// They differ; were they drawn from the same, it would come to this with at most
    /// this probability.
    Changed(f64),
}

impl Likeness {
    /// With which probability it would look so, or rather, if nothing differed.
    #[must_use]
    pub const fn chance(self) -> f64 {
        match self {
            Self::Same => 1.0,
            Self::Unsure(chance) | Self::Changed(chance) => chance,
        }
    }
}

/// Compares what became of a flow on both sides, by Fisher's exact test of each outcome
/// against all others, corrected for how many there are (Bonferroni).
#[must_use]
pub fn likeness(one: &Tally, other: &Tally) -> Likeness {
    let outcomes: BTreeSet<&Outcome> = one
        .iter()
        .chain(other.iter())
        .map(|(outcome, _)| outcome)
        .collect();
    let tests = f64::from(u32::try_from(outcomes.len()).unwrap_or(u32::MAX));
    let probability = outcomes
        .iter()
        .map(|outcome| (exact(one, other, outcome) * tests).min(1.0))
        .fold(1.0, f64::min);
    let alike = outcomes
        .iter()
        .all(|outcome| (one.of(outcome) > 0) == (other.of(outcome) > 0));
    if probability < SURE {
        Likeness::Changed(probability)
    } else if alike && probability >= DOUBTFUL {
        Likeness::Same
    } else {
        Likeness::Unsure(probability)
    }
}

fn exact(one: &Tally, other: &Tally, outcome: &Outcome) -> f64 {
    let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let table = [
        count(one.of(outcome)),
        count(one.all() - one.of(outcome)),
        count(other.of(outcome)),
        count(other.all() - other.of(outcome)),
    ];
    // It fails for an empty table only, of which nothing can be told.
    fishers_exact::fishers_exact(&table).map_or(1.0, |found| found.two_tail_pvalue)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Verdict;

    fn tally(of: &[(&str, u64)]) -> Tally {
        let mut tally = Tally::default();
        for (endpoint, count) in of {
            for _ in 0..*count {
                tally.count(Outcome {
                    endpoint: Some((*endpoint).to_owned()),
                    ..Outcome::of(Verdict::Connected)
                });
            }
        }
        tally
    }

    #[test]
    fn chance_is_no_difference() {
        let drawn = tally(&[("a", 14), ("b", 18)]);
        let again = tally(&[("a", 20), ("b", 12)]);
        assert_eq!(likeness(&drawn, &again), Likeness::Same);
    }

    #[test]
    fn a_few_connections_tell_nothing() {
        let (one, other) = (tally(&[("a", 2)]), tally(&[("a", 1), ("b", 1)]));
        assert!(matches!(likeness(&one, &other), Likeness::Unsure(_)));
        let (one, other) = (tally(&[("a", 4)]), tally(&[("b", 4)]));
        assert!(matches!(likeness(&one, &other), Likeness::Unsure(_)));
    }

    #[test]
    fn many_do() {
        let (one, other) = (tally(&[("a", 16)]), tally(&[("b", 16)]));
        assert!(matches!(likeness(&one, &other), Likeness::Changed(_)));
        // One endpoint of three is never met.
        let drawn = tally(&[("a", 40), ("b", 41), ("c", 47)]);
        let missing = tally(&[("a", 63), ("b", 65)]);
        assert!(matches!(likeness(&drawn, &missing), Likeness::Changed(_)));
        // Both are met, one of them hardly.
        let (even, odd) = (
            tally(&[("a", 60), ("b", 68)]),
            tally(&[("a", 126), ("b", 2)]),
        );
        assert!(matches!(likeness(&even, &odd), Likeness::Changed(_)));
    }

    #[test]
    fn nothing_is_like_nothing() {
        assert_eq!(
            likeness(&Tally::default(), &Tally::default()),
            Likeness::Same
        );
    }
}
