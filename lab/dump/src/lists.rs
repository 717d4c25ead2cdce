//! Compares two lists: items that only one list has, and items that moved.

use std::collections::{HashMap, VecDeque};

use super::difference::{Change, Side};

/// Item of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Canonical text: items with the same meaning have the same key.
    pub key: String,
    /// Source text of the item.
    pub written: String,
    /// Line of the item, from 1; 0 if the item is from no file.
    pub line: u32,
}

impl Item {
    /// Creates an item whose source text is its key.
    pub fn plain(written: impl Into<String>, line: u32) -> Self {
        let written = written.into();
        Self {
            key: written.clone(),
            written,
            line,
        }
    }

    fn only(&self, only: Side) -> Change {
        Change::Item {
            only,
            item: self.written.clone(),
            line: self.line,
        }
    }
}

/// Returns the differences of the second list from the first in reading order: an added item
/// follows the item that precedes it. The number of moved items is minimal.
pub fn compare(first: &[Item], second: &[Item]) -> Vec<Change> {
    let mut places: HashMap<&str, VecDeque<usize>> = HashMap::new();
    for (j, item) in second.iter().enumerate() {
        places.entry(&item.key).or_default().push_back(j);
    }
    let mut pairs = Vec::new();
    let mut changes: Vec<((usize, usize), Change)> = Vec::new();
    for (i, item) in first.iter().enumerate() {
        match places
            .get_mut(item.key.as_str())
            .and_then(VecDeque::pop_front)
        {
            Some(j) => pairs.push((i, j)),
            None => changes.push(((i, 0), item.only(Side::First))),
        }
    }
    let stay = longest_rising(&pairs);
    let mut anchors = vec![0; second.len()];
    let mut found = vec![false; second.len()];
    for (pair, stays) in pairs.iter().zip(stay) {
        let (i, j) = *pair;
        found[j] = true;
        if stays {
            anchors[j] = i + 1;
        } else {
            let moved = Change::Moved {
                item: first[i].written.clone(),
                first: first[i].line,
                second: second[j].line,
            };
            changes.push(((i, 0), moved));
        }
    }
    let mut anchor = 0;
    for (j, item) in second.iter().enumerate() {
        anchor = anchor.max(anchors[j]);
        if !found[j] {
            changes.push(((anchor, j + 1), item.only(Side::Second)));
        }
    }
    changes.sort_by_key(|(place, _)| *place);
    changes.into_iter().map(|(_, change)| change).collect()
}

/// Returns which pairs belong to a longest subsequence with increasing second elements. The first
/// elements of the pairs increase. (Patience sorting.)
fn longest_rising(pairs: &[(usize, usize)]) -> Vec<bool> {
    // For each length, the last pair of the subsequence with the lowest end. For each pair, its
    // predecessor in the subsequence.
    let mut ends: Vec<usize> = Vec::new();
    let mut before = vec![None; pairs.len()];
    for (at, (_, j)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].1 < *j);
        before[at] = length.checked_sub(1).map(|shorter| ends[shorter]);
        if length == ends.len() {
            ends.push(at);
        } else {
            ends[length] = at;
        }
    }
    let mut rising = vec![false; pairs.len()];
    let mut at = ends.last().copied();
    while let Some(pair) = at {
        rising[pair] = true;
        at = before[pair];
    }
    rising
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn items(text: &str) -> Vec<Item> {
        let words = text.split_ascii_whitespace().zip(1..);
        words.map(|(word, line)| Item::plain(word, line)).collect()
    }

    fn told(first: &str, second: &str) -> Vec<String> {
        compare(&items(first), &items(second))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn as_little_as_possible_has_moved() {
        assert_eq!(told("a b c d", "a b c d"), [""; 0]);
        assert_eq!(told("a b c d", "b c d a"), ["~ a"]);
        assert_eq!(told("a b c d", "a d b c"), ["~ d"]);
        assert_eq!(told("a b", "b a"), ["~ a"]);
    }

    #[test]
    fn what_is_added_comes_after_what_it_follows() {
        assert_eq!(told("a b c", "a x c y"), ["- b", "+ x", "+ y"]);
        assert_eq!(told("a a b", "a b"), ["- a"]);
        assert_eq!(told("a b", "a b b"), ["+ b"]);
        assert_eq!(told("", "a"), ["+ a"]);
    }

    proptest! {
        /// Applying the changes to the first list gives the items of the second list. Equal lists
        /// have no changes.
        #[test]
        fn changes_account_for_everything(
            first in proptest::collection::vec(0_u8..6, 0..12),
            second in proptest::collection::vec(0_u8..6, 0..12),
        ) {
            let list = |numbers: &[u8]| -> Vec<Item> {
                numbers.iter().map(|n| Item::plain(n.to_string(), 0)).collect()
            };
            let changes = compare(&list(&first), &list(&second));
            prop_assert_eq!(changes.is_empty(), first == second);
            let mut balance: HashMap<String, i32> = HashMap::new();
            for n in &first {
                *balance.entry(n.to_string()).or_default() += 1;
            }
            for change in changes {
                match change {
                    Change::Item { only, item, .. } => {
                        let step = if only == Side::First { -1 } else { 1 };
                        *balance.entry(item).or_default() += step;
                    }
                    Change::Moved { .. } => {}
                    other => prop_assert!(false, "{other}"),
                }
            }
            for n in &second {
                *balance.entry(n.to_string()).or_default() -= 1;
            }
            prop_assert!(balance.values().all(|left| *left == 0), "{:?}", balance);
        }
    }
}
