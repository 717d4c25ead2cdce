//! Compares two lists: items that only one list has, and items that moved.

use std::collections::{HashMap, VecDeque};

use super::difference::{DumpChange, Side};

/// Item of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListItem {
    /// Canonical text: items with the same meaning have the same key.
    pub key: String,
    /// Source text of the item.
    pub source_text: String,
    /// Line of the item, from 1; 0 if the item is from no file.
    pub line: u32,
}

impl ListItem {
    /// Creates an item whose source text is its key.
    pub fn from_text(written: impl Into<String>, line: u32) -> Self {
        let source_text = written.into();
        Self {
            key: source_text.clone(),
            source_text,
            line,
        }
    }

    fn one_sided(&self, only: Side) -> DumpChange {
        DumpChange::Item {
            only,
            item: self.source_text.clone(),
            line: self.line,
        }
    }
}

/// Returns the differences of the second list from the first in reading order: an added item
/// follows the item that precedes it. The number of moved items is minimal.
pub(crate) fn compare(first: &[ListItem], second: &[ListItem]) -> Vec<DumpChange> {
    let mut places: HashMap<&str, VecDeque<usize>> = HashMap::new();
    for (j, item) in second.iter().enumerate() {
        places.entry(&item.key).or_default().push_back(j);
    }
    let mut pairs = Vec::new();
    let mut changes: Vec<((usize, usize), DumpChange)> = Vec::new();
    for (i, item) in first.iter().enumerate() {
        match places
            .get_mut(item.key.as_str())
            .and_then(VecDeque::pop_front)
        {
            Some(j) => pairs.push((i, j)),
            None => changes.push(((i, 0), item.one_sided(Side::First))),
        }
    }
    let stay = longest_increasing(&pairs);
    let mut anchors = vec![0; second.len()];
    let mut found = vec![false; second.len()];
    for (pair, stays) in pairs.iter().zip(stay) {
        let (i, j) = *pair;
        found[j] = true;
        if stays {
            anchors[j] = i + 1;
        } else {
            let moved = DumpChange::Moved {
                item: first[i].source_text.clone(),
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
            changes.push(((anchor, j + 1), item.one_sided(Side::Second)));
        }
    }
    changes.sort_by_key(|(place, _)| *place);
    changes.into_iter().map(|(_, change)| change).collect()
}

/// Returns which pairs belong to a longest subsequence with increasing second elements. The first
/// elements of the pairs increase. (Patience sorting.)
fn longest_increasing(pairs: &[(usize, usize)]) -> Vec<bool> {
    // For each length, the last pair of the subsequence with the lowest end. For each pair, its
    // predecessor in the subsequence.
    let mut ends: Vec<usize> = Vec::new();
    let mut predecessors = vec![None; pairs.len()];
    for (index, (_, j)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].1 < *j);
        predecessors[index] = length.checked_sub(1).map(|shorter| ends[shorter]);
        if length == ends.len() {
            ends.push(index);
        } else {
            ends[length] = index;
        }
    }
    let mut is_rising = vec![false; pairs.len()];
    let mut current = ends.last().copied();
    while let Some(pair) = current {
        is_rising[pair] = true;
        current = predecessors[pair];
    }
    is_rising
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn items(text: &str) -> Vec<ListItem> {
        let words = text.split_ascii_whitespace().zip(1..);
        words
            .map(|(word, line)| ListItem::from_text(word, line))
            .collect()
    }

    fn describe_changes(first: &str, second: &str) -> Vec<String> {
        compare(&items(first), &items(second))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn compare_lists_minimizes_moves() {
        assert_eq!(describe_changes("a b c d", "a b c d"), [""; 0]);
        assert_eq!(describe_changes("a b c d", "b c d a"), ["~ a"]);
        assert_eq!(describe_changes("a b c d", "a d b c"), ["~ d"]);
        assert_eq!(describe_changes("a b", "b a"), ["~ a"]);
    }

    #[test]
    fn compare_lists_added_item_follows_predecessor() {
        assert_eq!(describe_changes("a b c", "a x c y"), ["- b", "+ x", "+ y"]);
        assert_eq!(describe_changes("a a b", "a b"), ["- a"]);
        assert_eq!(describe_changes("a b", "a b b"), ["+ b"]);
        assert_eq!(describe_changes("", "a"), ["+ a"]);
    }

    proptest! {
        /// Applying the changes to the first list gives the items of the second list. Equal lists
        /// have no changes.
        #[test]
        fn compare_lists_changes_are_complete(
            first in proptest::collection::vec(0_u8..6, 0..12),
            second in proptest::collection::vec(0_u8..6, 0..12),
        ) {
            let list = |numbers: &[u8]| -> Vec<ListItem> {
                numbers.iter().map(|n| ListItem::from_text(n.to_string(), 0)).collect()
            };
            let changes = compare(&list(&first), &list(&second));
            prop_assert_eq!(changes.is_empty(), first == second);
            let mut balance: HashMap<String, i32> = HashMap::new();
            for n in &first {
                *balance.entry(n.to_string()).or_default() += 1;
            }
            for change in changes {
                match change {
                    DumpChange::Item { only, item, .. } => {
                        let step = if only == Side::First { -1 } else { 1 };
                        *balance.entry(item).or_default() += step;
                    }
                    DumpChange::Moved { .. } => {}
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
