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
pub type DifferenceMask = Vec<bool>;

/// Side that a trial matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TrialClass {
    /// Matches good.
    Good,
    /// Matches bad.
    Bad,
    /// Matches neither side, or the kernel refused the lab.
    Neither,
}

/// Differences that narrowing found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Culprits {
    /// Minimal set of differences that turns good into bad, by index.
    pub breaks: Vec<usize>,
    /// Minimal set of differences that must be as in good for bad to become good, by index.
    pub fixes: Vec<usize>,
}

/// Effect of the wanted set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The set turns good into bad.
    Breaks,
    /// Leaving out the set turns bad into good.
    Fixes,
}

/// Results of earlier trials.
pub type TrialCache = HashMap<DifferenceMask, TrialClass>;

/// Trial that is needed before narrowing can continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextTrial {
    /// Differences of the trial.
    pub mask: DifferenceMask,
    /// Set that turns good into bad, or `None` if it was not found yet.
    pub breaks: Option<Vec<usize>>,
}

struct TrialResults<'k> {
    count: usize,
    cache: &'k TrialCache,
}

/// Finds the decisive ones of `all` differences from the results of trials.
///
/// A trial without differences is [`TrialClass::Good`], and one with all of them is
/// [`TrialClass::Bad`]: these two need no trial.
///
/// # Errors
///
/// Returns the next trial if the known results are not sufficient.
pub fn narrow(all: usize, cache: &TrialCache) -> Result<Culprits, NextTrial> {
    let trials = TrialResults { count: all, cache };
    let everything: Vec<usize> = (0..all).collect();
    let breaks = trials
        .find_minimal(Effect::Breaks, everything.clone())
        .map_err(|chosen| NextTrial {
            mask: chosen,
            breaks: None,
        })?;
    // The set that breaks good usually also fixes bad.
    let fixes = trials
        .has_effect(Effect::Fixes, &breaks)
        .map(|cures| if cures { breaks.clone() } else { everything })
        .and_then(|pool| trials.find_minimal(Effect::Fixes, pool));
    match fixes {
        Ok(fixes) => Ok(Culprits { breaks, fixes }),
        Err(chosen) => Err(NextTrial {
            mask: chosen,
            breaks: Some(breaks),
        }),
    }
}

/// Finds a minimal set of differences that must be as in good for bad to become good. The results
/// of trials are those of [`narrow`].
///
/// # Errors
///
/// Returns the next trial if the known results are not sufficient.
pub fn narrow_fixes(all: usize, cache: &TrialCache) -> Result<Vec<usize>, DifferenceMask> {
    let trials = TrialResults { count: all, cache };
    trials.find_minimal(Effect::Fixes, (0..all).collect())
}

impl TrialResults<'_> {
    /// Whether a set has the effect. The error is the trial that is needed to decide.
    fn has_effect(&self, effect: Effect, set: &[usize]) -> Result<bool, DifferenceMask> {
        let (included, expected) = match effect {
            Effect::Breaks => (true, TrialClass::Bad),
            Effect::Fixes => (false, TrialClass::Good),
        };
        let mut mask = vec![!included; self.count];
        for index in set {
            mask[*index] = included;
        }
        let like = if mask.iter().all(|is_bad| *is_bad) {
            TrialClass::Bad
        } else if !mask.iter().any(|is_bad| *is_bad) {
            TrialClass::Good
        } else {
            match self.cache.get(&mask) {
                Some(class) => *class,
                None => return Err(mask),
            }
        };
        Ok(like == expected)
    }

    /// Finds a minimal subset of `pool` with the effect.
    fn find_minimal(&self, sought: Effect, pool: Vec<usize>) -> Result<Vec<usize>, DifferenceMask> {
        let mut found = self.find_any(sought, pool)?;
        // If differences counteract each other, one that was found later can make an earlier one
        // unnecessary.
        let mut index = 0;
        while found.len() > 1 && index < found.len() {
            let mut fewer = found.clone();
            fewer.remove(index);
            if self.has_effect(sought, &fewer)? {
                found = self.find_any(sought, fewer)?;
                index = 0;
            } else {
                index += 1;
            }
        }
        Ok(found)
    }

    /// Finds a subset of `pool` with the effect. The subset is minimal if no differences counteract
    /// each other.
    fn find_any(&self, sought: Effect, mut pool: Vec<usize>) -> Result<Vec<usize>, DifferenceMask> {
        let mut found = Vec::new();
        while !self.has_effect(sought, &found)? {
            // With `found`, the first `low` of the pool lack the effect, and the first `high` have
            // it.
            let (mut low, mut high) = (0, pool.len());
            while high - low > 1 {
                let middle = low.midpoint(high);
                let set = [&found, &pool[..middle]].concat();
                if self.has_effect(sought, &set)? {
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
    fn narrow_fully(
        count: usize,
        mut like: impl FnMut(&DifferenceMask) -> TrialClass,
    ) -> (Culprits, usize) {
        let mut cache = TrialCache::new();
        loop {
            match narrow(count, &cache) {
                Ok(narrowed) => return (narrowed, cache.len()),
                Err(NextTrial {
                    mask: chosen,
                    breaks,
                }) => {
                    if let Some(breaks) = breaks {
                        let broken: DifferenceMask =
                            (0..count).map(|index| breaks.contains(&index)).collect();
                        assert_eq!(like(&broken), TrialClass::Bad);
                    }
                    let like = like(&chosen);
                    assert_eq!(cache.insert(chosen, like), None, "repeated trial");
                }
            }
        }
    }

    fn bad_if(bad: bool) -> TrialClass {
        if bad {
            TrialClass::Bad
        } else {
            TrialClass::Good
        }
    }

    #[test]
    fn narrow_single_culprit_needs_few_trials() {
        for count in [1, 2, 3, 7, 1000] {
            for culprit in [0, count / 3, count / 2, count - 1] {
                let (narrowed, trials) = narrow_fully(count, |chosen| bad_if(chosen[culprit]));
                assert_eq!(narrowed.breaks, [culprit]);
                assert_eq!(narrowed.fixes, [culprit]);
                let log = usize::try_from(count.next_power_of_two().ilog2()).unwrap();
                assert!(trials <= log + 2, "{trials} trials for one of {count}");
            }
        }
    }

    #[test]
    fn narrow_joint_culprits_both_break_either_fixes() {
        let (narrowed, trials) = narrow_fully(1000, |chosen| bad_if(chosen[17] && chosen[801]));
        assert_eq!(narrowed.breaks, [17, 801]);
        assert!(narrowed.fixes == [17] || narrowed.fixes == [801]);
        assert!(trials <= 30, "{trials}");
    }

    #[test]
    fn narrow_fixes_finds_all_needed_differences() {
        let mut cache = TrialCache::new();
        let fixes = loop {
            match narrow_fixes(100, &cache) {
                Ok(fixes) => break fixes,
                Err(mask) => {
                    let class = bad_if(mask[17] || mask[80]);
                    assert_eq!(cache.insert(mask, class), None, "repeated trial");
                }
            }
        };
        assert_eq!(fixes, [17, 80]);
        assert!(cache.len() <= 20, "{}", cache.len());
    }

    #[test]
    fn narrow_independent_culprits_must_both_be_fixed() {
        let (narrowed, _) = narrow_fully(1000, |chosen| bad_if(chosen[17] || chosen[801]));
        assert_eq!(narrowed.breaks, [17]);
        assert_eq!(narrowed.fixes, [17, 801]);
    }

    #[test]
    fn narrow_refused_trials_are_ignored() {
        // The kernel refuses labs in which exactly one of the two is missing.
        let (narrowed, _) = narrow_fully(64, |chosen| {
            if chosen[3] == chosen[40] {
                bad_if(chosen[40])
            } else {
                TrialClass::Neither
            }
        });
        assert_eq!(narrowed.breaks, [3, 40]);
        assert_eq!(narrowed.fixes, [3, 40]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        /// For any interaction of differences, the result has the effect and is minimal.
        #[test]
        fn narrow_result_is_minimal(
            all in 1_usize..24,
            clauses in prop::collection::vec(
                (prop::collection::btree_set(0_usize..24, 1..4), prop::collection::btree_set(0_usize..24, 0..3)),
                1..4,
            ),
        ) {
            // Bad with all of a clause's first set and none of its second, or with all differences.
            let like = |chosen: &DifferenceMask| {
                let there = |at: &usize| chosen[at % all];
                bad_if(
                    chosen.iter().all(|there| *there)
                        || chosen.iter().any(|there| *there) && clauses.iter().any(|(with, without)| {
                            with.iter().all(there) && !without.iter().any(there)
                        }),
                )
            };
            let (narrowed, _) = narrow_fully(all, like);
            let with = |set: &[usize]| -> DifferenceMask { (0..all).map(|at| set.contains(&at)).collect() };
            let but = |set: &[usize]| -> DifferenceMask { (0..all).map(|at| !set.contains(&at)).collect() };
            prop_assert_eq!(like(&with(&narrowed.breaks)), TrialClass::Bad);
            prop_assert_eq!(like(&but(&narrowed.fixes)), TrialClass::Good);
            for (at, _) in narrowed.breaks.iter().enumerate() {
                let mut fewer = narrowed.breaks.clone();
                fewer.remove(at);
                prop_assert_eq!(like(&with(&fewer)), TrialClass::Good);
            }
            for (at, _) in narrowed.fixes.iter().enumerate() {
                let mut fewer = narrowed.fixes.clone();
                fewer.remove(at);
                prop_assert_eq!(like(&but(&fewer)), TrialClass::Bad);
            }
        }
    }
}
