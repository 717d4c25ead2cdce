//! Two lists laid over each other, so that any choice of what differs gives a list
//! again: what both have stands where both have it, what one has stands between the
//! same neighbours as there.

use std::collections::HashMap;
use std::hash::Hash;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Something of one list or of both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot<T> {
    /// It, as the good list has it where both do.
    pub item: T,
    /// Who has it.
    pub from: From,
}

/// Who has something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// Both lists.
    Both,
    /// The good one alone: it goes with this difference.
    Good(usize),
    /// The bad one alone: it comes with this difference.
    Bad(usize),
}

/// Two lists, merged.
#[derive(Debug, Clone)]
pub struct Merged<T> {
    /// What either has, in order.
    pub slots: Vec<Slot<T>>,
    /// Each difference by the places of what the good and the bad list have.
    pub differences: Vec<(Option<usize>, Option<usize>)>,
}

impl From {
    /// Whether it is there when the differences are that `with` says.
    pub fn is_there(self, with: impl Fn(usize) -> bool) -> bool {
        match self {
            Self::Both => true,
            Self::Good(difference) => !with(difference),
            Self::Bad(difference) => with(difference),
        }
    }

    /// The difference that it hangs on.
    pub const fn difference(self) -> Option<usize> {
        match self {
            Self::Both => None,
            Self::Good(difference) | Self::Bad(difference) => Some(difference),
        }
    }
}

/// Lists whose order says something. What means the same is of both; of what is left, what
/// has the same name in both is one difference, be it that it moved or that it changed.
/// Differences are numbered from `first`.
pub fn ordered<T: Clone, M: Eq + Hash, N: Eq + Hash>(
    good: &[T],
    bad: &[T],
    meaning: impl Fn(&T) -> M,
    name: impl Fn(&T) -> N,
    first: usize,
) -> Merged<T> {
    // Numbers are compared faster than what they stand for.
    let mut numbers: HashMap<M, usize> = HashMap::new();
    let mut number = |all: &[T]| -> Vec<usize> {
        all.iter()
            .map(|item| {
                let next = numbers.len();
                *numbers.entry(meaning(item)).or_insert(next)
            })
            .collect()
    };
    let (one, other) = (number(good), number(bad));
    let mut parts = Vec::new();
    let (mut at, mut there) = (0, 0);
    for step in capture_diff_slices(Algorithm::Myers, &one, &other) {
        let (goes, comes) = (step.old_range().len(), step.new_range().len());
        let same = matches!(step, DiffOp::Equal { .. });
        for place in at..at + goes {
            parts.push((Some(place), same.then(|| there + place - at)));
        }
        if !same {
            parts.extend((there..there + comes).map(|place| (None, Some(place))));
        }
        at += goes;
        there += comes;
    }
    merge(good, bad, parts, name, first)
}

/// Lists whose order says nothing, of things that each have a name of their own: what has
/// the same in both and means something else is one difference.
pub fn keyed<T: Clone, M: Eq + Hash, N: Eq + Hash>(
    good: &[T],
    bad: &[T],
    meaning: impl Fn(&T) -> M,
    name: impl Fn(&T) -> N,
    first: usize,
) -> Merged<T> {
    let places: HashMap<N, usize> = bad
        .iter()
        .enumerate()
        .map(|(at, item)| (name(item), at))
        .collect();
    let mut taken = vec![false; bad.len()];
    let mut parts = Vec::new();
    for (at, item) in good.iter().enumerate() {
        let other = places
            .get(&name(item))
            .copied()
            .filter(|there| !taken[*there]);
        let Some(there) = other else {
            parts.push((Some(at), None));
            continue;
        };
        taken[there] = true;
        if meaning(item) == meaning(&bad[there]) {
            parts.push((Some(at), Some(there)));
        } else {
            parts.extend([(Some(at), None), (None, Some(there))]);
        }
    }
    let left = taken.iter().enumerate().filter(|(_, taken)| !**taken);
    parts.extend(left.map(|(there, _)| (None, Some(there))));
    merge(good, bad, parts, name, first)
}

/// Gives what is of one list alone a difference each, or one together with what has its
/// name in the other.
fn merge<T: Clone, N: Eq + Hash>(
    good: &[T],
    bad: &[T],
    parts: Vec<(Option<usize>, Option<usize>)>,
    name: impl Fn(&T) -> N,
    first: usize,
) -> Merged<T> {
    let mut goes: HashMap<N, Vec<usize>> = HashMap::new();
    for (at, there) in parts.iter().rev() {
        if let (Some(at), None) = (at, there) {
            goes.entry(name(&good[*at])).or_default().push(*at);
        }
    }
    let mut differences = Vec::new();
    let mut of_good: HashMap<usize, usize> = HashMap::new();
    let mut of_bad: HashMap<usize, usize> = HashMap::new();
    for (at, there) in &parts {
        let difference = first + differences.len();
        match (at, there) {
            (None, Some(there)) => {
                let partner = goes.get_mut(&name(&bad[*there])).and_then(Vec::pop);
                let known = partner.and_then(|partner| of_good.get(&partner).copied());
                if let Some(known) = known {
                    // What goes stands before what comes, and has its difference.
                    of_bad.insert(*there, known);
                    differences[known - first] = (partner, Some(*there));
                } else {
                    of_bad.insert(*there, difference);
                    of_good.extend(partner.map(|partner| (partner, difference)));
                    differences.push((partner, Some(*there)));
                }
            }
            (Some(at), None) if !of_good.contains_key(at) => {
                of_good.insert(*at, difference);
                differences.push((Some(*at), None));
            }
            _ => {}
        }
    }
    let slots = parts.into_iter().filter_map(|part| {
        let (item, from) = match part {
            (Some(at), Some(_)) => (&good[at], From::Both),
            (Some(at), None) => (&good[at], From::Good(of_good[&at])),
            (None, Some(there)) => (&bad[there], From::Bad(of_bad[&there])),
            (None, None) => return None,
        };
        Some(Slot {
            item: item.clone(),
            from,
        })
    });
    Merged {
        slots: slots.collect(),
        differences,
    }
}

impl<T> Merged<T> {
    /// What is there when the differences are that `with` says.
    pub fn with(&self, with: impl Fn(usize) -> bool) -> impl Iterator<Item = &T> {
        let there = self
            .slots
            .iter()
            .filter(move |slot| slot.from.is_there(&with));
        there.map(|slot| &slot.item)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list() -> impl Strategy<Value = Vec<(u8, u8)>> {
        prop::collection::vec((0_u8..6, 0_u8..2), 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn none_is_good_and_all_is_bad(good in list(), bad in list()) {
            let merged = ordered(&good, &bad, |item| *item, |item| item.0, 7);
            let none: Vec<_> = merged.with(|_| false).copied().collect();
            let all: Vec<_> = merged.with(|_| true).copied().collect();
            prop_assert_eq!(none, good.clone());
            prop_assert_eq!(all, bad.clone());
            let numbers: std::collections::BTreeSet<usize> =
                merged.slots.iter().filter_map(|slot| slot.from.difference()).collect();
            let wanted: std::collections::BTreeSet<usize> = (7..7 + merged.differences.len()).collect();
            prop_assert_eq!(numbers, wanted);
            prop_assert_eq!(good == bad, merged.differences.is_empty());
        }

        #[test]
        fn what_has_a_name_of_its_own_is_there_once(good in list(), bad in list(), chosen in any::<u64>()) {
            let own = |mut all: Vec<(u8, u8)>| {
                all.sort_unstable();
                all.dedup_by_key(|item| item.0);
                all
            };
            let (good, mut bad) = (own(good), own(bad));
            bad.reverse();
            let merged = keyed(&good, &bad, |item| *item, |item| item.0, 0);
            let with = |chosen: u64| -> Vec<(u8, u8)> {
                let mut there: Vec<_> = merged.with(|at| chosen >> at & 1 == 1).copied().collect();
                there.sort_unstable();
                there
            };
            bad.reverse();
            prop_assert_eq!(with(0), good);
            prop_assert_eq!(with(u64::MAX), bad);
            let mut names: Vec<u8> = with(chosen).iter().map(|item| item.0).collect();
            let all = names.len();
            names.dedup();
            prop_assert_eq!(names.len(), all);
        }
    }

    #[test]
    fn what_moved_is_one_difference() {
        let merged = ordered(
            &["a", "b", "c"],
            &["b", "c", "a"],
            |item| *item,
            |item| *item,
            0,
        );
        assert_eq!(merged.differences.len(), 1);
    }
}
