//! Finds the decisive ones among many differences by testing subsets.
//!
//! Input: the number of differences and the results of earlier trials. Output: minimal sets of
//! differences, or the next subset to test.
//!
//! The goal is a set that has the wanted effect while none of its subsets has it, as in delta
//! debugging (A. Zeller and R. Hildebrandt, "Simplifying and isolating failure-inducing input",
//! 2002). Its ddmin needs up to n² trials if several differences act together, and 2·log2(n) for
//! one. This module instead finds the smallest prefix of the list that has the effect, by binary
//! search. The last difference of this prefix belongs to the result. The search continues in the
//! differences before it, together with those already found.
//!
//! This takes log2(n) + 2 trials for one of n differences, and k·(log2(n) + 2) for k that only act
//! together. `QuickXplain` (U. Junker, 2004) takes as many for few of many, and twice as many for
//! one: it has to test both halves, whereas a prefix without the effect proves that the rest has
//! it. The cost is higher if many differences are needed together, which is unusual when two nodes
//! are compared.
//!
//! The only assumption is that no differences at all give good and that all of them give bad. Every
//! returned set was tested, and so was each of its subsets that lacks one difference. The next
//! subset depends only on the results so far. The caller can therefore continue from a guessed
//! result of an unfinished trial, and come back if the guess was wrong.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

/// Selection of differences: `true` at the index of a difference means as in bad.
pub type Chosen = Vec<bool>;

/// Side that a trial matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Like {
    /// Matches good.
    Good,
    /// Matches bad.
    Bad,
    /// Matches neither side, or the kernel refused the lab.
    Neither,
}

/// Differences that narrowing found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Narrowed {
    /// Minimal set of differences that turns good into bad, by index.
    pub breaks: Vec<usize>,
    /// Minimal set of differences that must be as in good for bad to become good, by index.
    pub cures: Vec<usize>,
}

/// Effect of the wanted set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sought {
    /// The set turns good into bad.
    Breaks,
    /// Leaving out the set turns bad into good.
    Cures,
}

/// Results of earlier trials.
pub type Known = HashMap<Chosen, Like>;

/// Trial that is needed before narrowing can continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Differences of the trial.
    pub chosen: Chosen,
    /// Set that turns good into bad, or `None` if it was not found yet.
    pub breaks: Option<Vec<usize>>,
}

struct Trials<'k> {
    all: usize,
    known: &'k Known,
}

/// Finds the decisive ones of `all` differences from the results of trials.
///
/// A trial without differences is [`Like::Good`], and one with all of them is [`Like::Bad`]: these
/// two need no trial.
///
/// # Errors
///
/// Returns the next trial if the known results are not sufficient.
pub fn narrow(all: usize, known: &Known) -> Result<Narrowed, Wanted> {
    let trials = Trials { all, known };
    let everything: Vec<usize> = (0..all).collect();
    let breaks = trials
        .minimal(Sought::Breaks, everything.clone())
        .map_err(|chosen| Wanted {
            chosen,
            breaks: None,
        })?;
    // The set that breaks good usually also fixes bad.
    let cures = trials
        .shows(Sought::Cures, &breaks)
        .map(|cures| if cures { breaks.clone() } else { everything })
        .and_then(|pool| trials.minimal(Sought::Cures, pool));
    match cures {
        Ok(cures) => Ok(Narrowed { breaks, cures }),
        Err(chosen) => Err(Wanted {
            chosen,
            breaks: Some(breaks),
        }),
    }
}

impl Trials<'_> {
    /// Whether a set has the effect. The error is the trial that is needed to decide.
    fn shows(&self, sought: Sought, set: &[usize]) -> Result<bool, Chosen> {
        let (there, wanted) = match sought {
            Sought::Breaks => (true, Like::Bad),
            Sought::Cures => (false, Like::Good),
        };
        let mut chosen = vec![!there; self.all];
        for at in set {
            chosen[*at] = there;
        }
        let like = if chosen.iter().all(|there| *there) {
            Like::Bad
        } else if !chosen.iter().any(|there| *there) {
            Like::Good
        } else {
            match self.known.get(&chosen) {
                Some(known) => *known,
                None => return Err(chosen),
            }
        };
        Ok(like == wanted)
    }

    /// Finds a minimal subset of `pool` with the effect.
    fn minimal(&self, sought: Sought, pool: Vec<usize>) -> Result<Vec<usize>, Chosen> {
        let mut found = self.some(sought, pool)?;
        // If differences counteract each other, one that was found later can make an earlier one
        // unnecessary.
        let mut at = 0;
        while found.len() > 1 && at < found.len() {
            let mut fewer = found.clone();
            fewer.remove(at);
            if self.shows(sought, &fewer)? {
                found = self.some(sought, fewer)?;
                at = 0;
            } else {
                at += 1;
            }
        }
        Ok(found)
    }

    /// Finds a subset of `pool` with the effect. The subset is minimal if no differences counteract
    /// each other.
    fn some(&self, sought: Sought, mut pool: Vec<usize>) -> Result<Vec<usize>, Chosen> {
        let mut found = Vec::new();
        while !self.shows(sought, &found)? {
            // With `found`, the first `low` of the pool lack the effect, and the first `high` have
            // it.
            let (mut low, mut high) = (0, pool.len());
            while high - low > 1 {
                let middle = low.midpoint(high);
                let set = [&found, &pool[..middle]].concat();
                if self.shows(sought, &set)? {
                    high = middle;
                } else {
                    low = middle;
                }
            }
            // The empty pool together with `found` has the effect.
            let Some(last) = high.checked_sub(1) else {
                break;
            };
            found.push(pool[last]);
            pool.truncate(last);
        }
        found.sort_unstable();
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the result of narrowing and the number of trials, if `like` decides each trial.
    fn found(all: usize, mut like: impl FnMut(&Chosen) -> Like) -> (Narrowed, usize) {
        let mut known = Known::new();
        loop {
            match narrow(all, &known) {
                Ok(narrowed) => return (narrowed, known.len()),
                Err(Wanted { chosen, breaks }) => {
                    if let Some(breaks) = breaks {
                        let with: Chosen = (0..all).map(|at| breaks.contains(&at)).collect();
                        assert_eq!(like(&with), Like::Bad);
                    }
                    let like = like(&chosen);
                    assert_eq!(known.insert(chosen, like), None, "asked again");
                }
            }
        }
    }

    fn bad_if(bad: bool) -> Like {
        if bad { Like::Bad } else { Like::Good }
    }

    #[test]
    fn one_of_many_takes_few_trials() {
        for all in [1, 2, 3, 7, 1000] {
            for culprit in [0, all / 3, all / 2, all - 1] {
                let (narrowed, trials) = found(all, |chosen| bad_if(chosen[culprit]));
                assert_eq!(narrowed.breaks, [culprit]);
                assert_eq!(narrowed.cures, [culprit]);
                let log = usize::try_from(all.next_power_of_two().ilog2()).unwrap();
                assert!(trials <= log + 2, "{trials} trials for one of {all}");
            }
        }
    }

    #[test]
    fn two_that_act_together_are_both_found_and_either_cures() {
        let (narrowed, trials) = found(1000, |chosen| bad_if(chosen[17] && chosen[801]));
        assert_eq!(narrowed.breaks, [17, 801]);
        assert!(narrowed.cures == [17] || narrowed.cures == [801]);
        assert!(trials <= 30, "{trials}");
    }

    #[test]
    fn two_causes_are_both_to_be_cured() {
        let (narrowed, _) = found(1000, |chosen| bad_if(chosen[17] || chosen[801]));
        assert_eq!(narrowed.breaks, [17]);
        assert_eq!(narrowed.cures, [17, 801]);
    }

    #[test]
    fn what_cannot_be_tried_shows_nothing() {
        // The kernel refuses labs in which exactly one of the two is missing.
        let (narrowed, _) = found(64, |chosen| {
            if chosen[3] == chosen[40] {
                bad_if(chosen[40])
            } else {
                Like::Neither
            }
        });
        assert_eq!(narrowed.breaks, [3, 40]);
        assert_eq!(narrowed.cures, [3, 40]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        /// For any interaction of differences, the result has the effect and is minimal.
        #[test]
        fn what_is_found_is_minimal(
            all in 1_usize..24,
            clauses in prop::collection::vec(
                (prop::collection::btree_set(0_usize..24, 1..4), prop::collection::btree_set(0_usize..24, 0..3)),
                1..4,
            ),
        ) {
            // Bad with all of a clause's first set and none of its second, or with all differences.
            let like = |chosen: &Chosen| {
                let there = |at: &usize| chosen[at % all];
                bad_if(
                    chosen.iter().all(|there| *there)
                        || chosen.iter().any(|there| *there) && clauses.iter().any(|(with, without)| {
                            with.iter().all(there) && !without.iter().any(there)
                        }),
                )
            };
            let (narrowed, _) = found(all, like);
            let with = |set: &[usize]| -> Chosen { (0..all).map(|at| set.contains(&at)).collect() };
            let but = |set: &[usize]| -> Chosen { (0..all).map(|at| !set.contains(&at)).collect() };
            prop_assert_eq!(like(&with(&narrowed.breaks)), Like::Bad);
            prop_assert_eq!(like(&but(&narrowed.cures)), Like::Good);
            for (at, _) in narrowed.breaks.iter().enumerate() {
                let mut fewer = narrowed.breaks.clone();
                fewer.remove(at);
                prop_assert_eq!(like(&with(&fewer)), Like::Good);
            }
            for (at, _) in narrowed.cures.iter().enumerate() {
                let mut fewer = narrowed.cures.clone();
                fewer.remove(at);
                prop_assert_eq!(like(&but(&fewer)), Like::Bad);
            }
        }
    }
}
