//! Merges two lists so that every subset of their differences gives a valid list.
//!
//! Common items keep their position. An item of one list keeps its neighbours from that list.

use std::collections::HashMap;
use std::hash::Hash;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Item of one list or of both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot<T> {
    /// The item of the good list if both have it.
    pub item: T,
    pub origin: SlotOrigin,
}

/// Lists that have an item, and the difference that decides whether it is included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotOrigin {
    /// Both lists: always included.
    Both,
    /// Only the good list: included unless this difference is selected.
    Good(usize),
    /// Only the bad list: included if this difference is selected.
    Bad(usize),
}

/// Two merged lists.
#[derive(Debug, Clone)]
pub struct Merged<T> {
    /// Items of both lists, in order.
    pub slots: Vec<Slot<T>>,
    /// For each difference, the index of its item in the good list and in the bad list. `None` if a
    /// list has no item.
    pub differences: Vec<(Option<usize>, Option<usize>)>,
}

impl SlotOrigin {
    /// Whether the item is included if `with` selects the differences.
    pub fn is_included(self, with: impl Fn(usize) -> bool) -> bool {
        match self {
            Self::Both => true,
            Self::Good(difference) => !with(difference),
            Self::Bad(difference) => with(difference),
        }
    }

    /// Whether only the good list has the item.
    pub const fn is_only_good(self) -> bool {
        matches!(self, Self::Good(_))
    }

    /// Whether only the bad list has the item.
    pub const fn is_only_bad(self) -> bool {
        matches!(self, Self::Bad(_))
    }

    /// Returns the difference that decides about the item, or `None` if both lists have it.
    pub const fn difference(self) -> Option<usize> {
        match self {
            Self::Both => None,
            Self::Good(difference) | Self::Bad(difference) => Some(difference),
        }
    }
}

/// Merges lists whose order matters.
///
/// Items with equal meaning are common to both lists. Of the others, two items with equal name form
/// one difference, whether the item moved or changed. Differences are numbered from `first`.
pub fn merge_ordered<T: Clone, M: Eq + Hash, N: Eq + Hash>(
    good: &[T],
    bad: &[T],
    meaning: impl Fn(&T) -> M,
    name: impl Fn(&T) -> N,
    first: usize,
) -> Merged<T> {
    // Comparing numbers is faster than comparing meanings.
    let mut numbers: HashMap<M, usize> = HashMap::new();
    let mut number = |items: &[T]| -> Vec<usize> {
        items
            .iter()
            .map(|item| {
                let next = numbers.len();
                *numbers.entry(meaning(item)).or_insert(next)
            })
            .collect()
    };
    let (good_numbers, bad_numbers) = (number(good), number(bad));
    let mut parts = Vec::new();
    let (mut good_index, mut bad_index) = (0, 0);
    for step in capture_diff_slices(Algorithm::Myers, &good_numbers, &bad_numbers) {
        let (removed, added) = (step.old_range().len(), step.new_range().len());
        let same = matches!(step, DiffOp::Equal { .. });
        for place in good_index..good_index + removed {
            parts.push((Some(place), same.then(|| bad_index + place - good_index)));
        }
        if !same {
            parts.extend((bad_index..bad_index + added).map(|place| (None, Some(place))));
        }
        good_index += removed;
        bad_index += added;
    }
    merge(good, bad, parts, name, first)
}

/// Merges lists whose order does not matter and whose items have unique names. Two items with equal
/// name and different meaning form one difference.
pub fn merge_keyed<T: Clone, M: Eq + Hash, N: Eq + Hash>(
    good: &[T],
    bad: &[T],
    meaning: impl Fn(&T) -> M,
    name: impl Fn(&T) -> N,
    first: usize,
) -> Merged<T> {
    let places: HashMap<N, usize> = bad
        .iter()
        .enumerate()
        .map(|(index, item)| (name(item), index))
        .collect();
    let mut taken = vec![false; bad.len()];
    let mut parts = Vec::new();
    for (good_index, item) in good.iter().enumerate() {
        let bad_match = places
            .get(&name(item))
            .copied()
            .filter(|index| !taken[*index]);
        let Some(bad_index) = bad_match else {
            parts.push((Some(good_index), None));
            continue;
        };
        taken[bad_index] = true;
        if meaning(item) == meaning(&bad[bad_index]) {
            parts.push((Some(good_index), Some(bad_index)));
        } else {
            parts.extend([(Some(good_index), None), (None, Some(bad_index))]);
        }
    }
    let left = taken.iter().enumerate().filter(|(_, taken)| !**taken);
    parts.extend(left.map(|(index, _)| (None, Some(index))));
    merge(good, bad, parts, name, first)
}

/// Assigns a difference to each item of only one list. Two items with equal name in the two lists
/// share one difference.
fn merge<T: Clone, N: Eq + Hash>(
    good: &[T],
    bad: &[T],
    parts: Vec<(Option<usize>, Option<usize>)>,
    name: impl Fn(&T) -> N,
    first: usize,
) -> Merged<T> {
    let mut removed: HashMap<N, Vec<usize>> = HashMap::new();
    for (good_index, bad_index) in parts.iter().rev() {
        if let (Some(good_index), None) = (good_index, bad_index) {
            removed
                .entry(name(&good[*good_index]))
                .or_default()
                .push(*good_index);
        }
    }
    let mut differences = Vec::new();
    let mut good_differences: HashMap<usize, usize> = HashMap::new();
    let mut bad_differences: HashMap<usize, usize> = HashMap::new();
    for (good_index, bad_index) in &parts {
        let difference = first + differences.len();
        match (good_index, bad_index) {
            (None, Some(bad_index)) => {
                let partner = removed.get_mut(&name(&bad[*bad_index])).and_then(Vec::pop);
                let known = partner.and_then(|partner| good_differences.get(&partner).copied());
                if let Some(known) = known {
                    // The removed item comes first, and already has the difference.
                    bad_differences.insert(*bad_index, known);
                    differences[known - first] = (partner, Some(*bad_index));
                } else {
                    bad_differences.insert(*bad_index, difference);
                    good_differences.extend(partner.map(|partner| (partner, difference)));
                    differences.push((partner, Some(*bad_index)));
                }
            }
            (Some(good_index), None) if !good_differences.contains_key(good_index) => {
                good_differences.insert(*good_index, difference);
                differences.push((Some(*good_index), None));
            }
            _ => {}
        }
    }
    let slots = parts.into_iter().filter_map(|part| {
        let (item, from) = match part {
            (Some(at), Some(_)) => (&good[at], SlotOrigin::Both),
            (Some(at), None) => (&good[at], SlotOrigin::Good(good_differences[&at])),
            (None, Some(there)) => (&bad[there], SlotOrigin::Bad(bad_differences[&there])),
            (None, None) => return None,
        };
        Some(Slot {
            item: item.clone(),
            origin: from,
        })
    });
    Merged {
        slots: slots.collect(),
        differences,
    }
}

impl<T> Merged<T> {
    /// Returns the items that are included if `with` selects the differences.
    pub fn selected(&self, with: impl Fn(usize) -> bool) -> impl Iterator<Item = &T> {
        let included = self
            .slots
            .iter()
            .filter(move |slot| slot.origin.is_included(&with));
        included.map(|slot| &slot.item)
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
        fn merge_ordered_empty_is_good_full_is_bad(good in list(), bad in list()) {
            let merged = merge_ordered(&good, &bad, |item| *item, |item| item.0, 7);
            let none: Vec<_> = merged.selected(|_| false).copied().collect();
            let all: Vec<_> = merged.selected(|_| true).copied().collect();
            prop_assert_eq!(none, good.clone());
            prop_assert_eq!(all, bad.clone());
            let numbers: std::collections::BTreeSet<usize> =
                merged.slots.iter().filter_map(|slot| slot.origin.difference()).collect();
            let wanted: std::collections::BTreeSet<usize> = (7..7 + merged.differences.len()).collect();
            prop_assert_eq!(numbers, wanted);
            prop_assert_eq!(good == bad, merged.differences.is_empty());
        }

        #[test]
        fn merge_keyed_any_selection_has_unique_names(good in list(), bad in list(), chosen in any::<u64>()) {
            let own = |mut all: Vec<(u8, u8)>| {
                all.sort_unstable();
                all.dedup_by_key(|item| item.0);
                all
            };
            let (good, mut bad) = (own(good), own(bad));
            bad.reverse();
            let merged = merge_keyed(&good, &bad, |item| *item, |item| item.0, 0);
            let with = |chosen: u64| -> Vec<(u8, u8)> {
                let mut there: Vec<_> = merged.selected(|at| chosen >> at & 1 == 1).copied().collect();
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
    fn merge_ordered_moved_item_is_one_difference() {
        let merged = merge_ordered(
            &["a", "b", "c"],
            &["b", "c", "a"],
            |item| *item,
            |item| *item,
            0,
        );
        assert_eq!(merged.differences.len(), 1);
    }
}
