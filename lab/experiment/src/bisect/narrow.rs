//! Narrowing: from many differences to the few that decide, by trying subsets.
//!
//! What is sought is a set that shows what it is sought for and none of whose subsets
//! does, as delta debugging does it (A. Zeller and R. Hildebrandt, "Simplifying and
//! isolating failure-inducing input", 2002). Its ddmin takes up to n² trials where
//! several differences work together, and 2·log2(n) for one; here the smallest
//! beginning of the list that shows it is found by binary search, its last difference
//! is one of those sought, and what comes before it is searched again, together with
//! those that were found. That takes log2(n) + 2 trials for one of n and k·(log2(n) + 2)
//! for k that only act together, which is as little as `QuickXplain` (U. Junker, 2004)
//! takes for few of many, in half as many trials for one: it has no halves of which
//! both must be asked, as a beginning that shows nothing says that the rest does.
//! It costs more where many differences are needed together, which is not why anybody
//! compares two nodes.
//!
//! Nothing is assumed of how differences act together but at the two ends: what is
//! returned was tried itself, and so was every subset of it that lacks one. What is tried
//! next follows from what became of what was tried, and from nothing else: so whoever
//! tries may go on from what a trial that is not over looks like, and come back if it was
//! not that.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

/// Which of the differences are there: on the way from good to bad, how far it went.
pub type Chosen = Vec<bool>;

/// What became of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Like {
    /// As in good.
    Good,
    /// As in bad.
    Bad,
    /// As in neither, or it could not be tried.
    Neither,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Narrowed {
    /// Differences that turn good into bad, none of which can be left out.
    pub breaks: Vec<usize>,
    /// Differences without which bad turns good, none of which can be left in.
    pub cures: Vec<usize>,
}

/// What is sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sought {
    /// Differences that make good bad.
    Breaks,
    /// Differences whose absence makes bad good.
    Cures,
}

/// What was tried, and what became of it.
pub type Known = HashMap<Chosen, Like>;

/// What has to be tried before more can be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// It.
    pub chosen: Chosen,
    /// What turns good into bad, where that is known already.
    pub breaks: Option<Vec<usize>>,
}

/// What is known of trials among so many differences.
struct Trials<'k> {
    all: usize,
    known: &'k Known,
}

/// Finds the differences, of which there are `all`, that decide, by what became of trials.
/// With none of them a trial is [`Like::Good`], with all of them [`Like::Bad`]; the rest
/// is tried.
///
/// # Errors
///
/// What has to be tried next.
pub fn narrow(all: usize, known: &Known) -> Result<Narrowed, Wanted> {
    let trials = Trials { all, known };
    let everything: Vec<usize> = (0..all).collect();
    let breaks = trials
        .minimal(Sought::Breaks, everything.clone())
        .map_err(|chosen| Wanted {
            chosen,
            breaks: None,
        })?;
    // Mostly what breaks it is also what cures it.
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
    /// Whether a set shows what is sought; else, what has to be tried to know.
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

    /// A set within one that shows it, of which nothing can be left out.
    fn minimal(&self, sought: Sought, pool: Vec<usize>) -> Result<Vec<usize>, Chosen> {
        let mut found = self.some(sought, pool)?;
        // Where differences act against each other, one may be found before another
        // makes it needless.
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

    /// A set within one that shows it, which for differences that do not act against each
    /// other is minimal.
    fn some(&self, sought: Sought, mut pool: Vec<usize>) -> Result<Vec<usize>, Chosen> {
        let mut found = Vec::new();
        while !self.shows(sought, &found)? {
            // With `found`, the first `low` of the pool do not show it, `high` do.
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
            // An empty pool has shown it, and `found` with it.
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

    /// What is found where trials come out as `like` says, and after how many.
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
        // What is not there with both of these does not load.
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

        /// Whatever differences do to each other, what is found shows it, and nothing can
        /// be left out of it.
        #[test]
        fn what_is_found_is_minimal(
            all in 1_usize..24,
            clauses in prop::collection::vec(
                (prop::collection::btree_set(0_usize..24, 1..4), prop::collection::btree_set(0_usize..24, 0..3)),
                1..4,
            ),
        ) {
            // Bad with all of one clause's first and none of its second, and at the end.
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
