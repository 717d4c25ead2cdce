//! Selects the part of the cases that one of several machines runs: `run --shard K/N`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

/// Maximum number of shards.
const MAX_SHARDS: usize = 1000;

/// Part of a run: `K/N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shard {
    /// Number of the shard, from 1.
    pub(crate) number: usize,
    /// Number of all shards.
    pub(crate) count: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('/').and_then(|(number, count)| {
            let number = number.parse().ok()?;
            let count = count.parse().ok()?;
            Some(Self { number, count })
        });
        numbers
            .filter(|shard| (1..=MAX_SHARDS).contains(&shard.count))
            .filter(|shard| (1..=shard.count).contains(&shard.number))
            .ok_or_else(|| format!("expected K/N with 1 <= K <= N <= {MAX_SHARDS}, such as 2/4"))
    }
}

impl Shard {
    /// Returns whether each case belongs to this shard. Depends only on the set of names and on the
    /// durations, not on the order of the names.
    ///
    /// The longest case goes to the shard with the smallest sum of durations, and so on. A case
    /// without a duration counts as long as the median of the others.
    pub(crate) fn select(self, names: &[String], durations: &BTreeMap<String, u64>) -> Vec<bool> {
        let mut known: Vec<u64> = names
            .iter()
            .filter_map(|name| durations.get(name).copied())
            .collect();
        known.sort_unstable();
        // A duration of 0 would put all these cases into one shard.
        let median = known.get(known.len() / 2).copied().unwrap_or(1).max(1);
        let duration = |name: &String| durations.get(name).map_or(median, |known| (*known).max(1));
        let mut order: Vec<&String> = names.iter().collect();
        order.sort_unstable_by_key(|name| (Reverse(duration(name)), name.as_str()));
        let mut sums = vec![0_u64; self.count];
        let mut shard_by_name = HashMap::new();
        for name in order {
            let smallest = (0..self.count)
                .min_by_key(|index| sums[*index])
                .unwrap_or(0);
            sums[smallest] = sums[smallest].saturating_add(duration(name));
            shard_by_name.insert(name.as_str(), smallest + 1);
        }
        let is_selected = |name: &String| shard_by_name.get(name.as_str()) == Some(&self.number);
        names.iter().map(is_selected).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shards(count: usize) -> impl Iterator<Item = Shard> {
        (1..=count).map(move |number| Shard { number, count })
    }

    #[test]
    fn shard_text_outside_range_is_refused() {
        assert_eq!(
            "2/4".parse(),
            Ok(Shard {
                number: 2,
                count: 4
            })
        );
        for text in [
            "", "1", "0/4", "5/4", "1/0", "a/b", "1/2/3", "-1/2", "1/1001",
        ] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    #[test]
    fn select_durations_balance_shards() {
        let durations = [("a", 90), ("b", 50), ("c", 40), ("d", 30)];
        let durations: BTreeMap<String, u64> = durations
            .iter()
            .map(|(name, duration)| ((*name).to_owned(), *duration))
            .collect();
        // The new case counts as 50.
        let names: Vec<String> = ["a", "b", "c", "d", "new"].map(str::to_owned).to_vec();
        let selected: Vec<Vec<bool>> = shards(2)
            .map(|shard| shard.select(&names, &durations))
            .collect();
        assert_eq!(selected[0], [true, false, true, false, false]);
        assert_eq!(selected[1], [false, true, false, true, true]);
    }

    #[test]
    fn select_without_durations_has_equal_counts() {
        let names: Vec<String> = (0..10).map(|number| format!("lab/n={number}")).collect();
        let counts: Vec<usize> = shards(4)
            .map(|shard| {
                let selected = shard.select(&names, &BTreeMap::new());
                selected
                    .into_iter()
                    .filter(|is_selected| *is_selected)
                    .count()
            })
            .collect();
        assert_eq!(counts, [3, 3, 2, 2]);
    }

    proptest! {
        #[test]
        fn select_each_case_belongs_to_one_shard(
            durations in prop::collection::btree_map("[a-f]{1,3}", 0_u64..9_000, 0..30),
            unknown in prop::collection::btree_set("[g-k]{1,3}", 0..30),
            count in 1_usize..9,
        ) {
            let mut names: Vec<String> = durations.keys().cloned().chain(unknown).collect();
            let selected: Vec<Vec<bool>> = shards(count)
                .map(|shard| shard.select(&names, &durations))
                .collect();
            for index in 0..names.len() {
                let owners = selected.iter().filter(|shard| shard[index]).count();
                prop_assert_eq!(owners, 1);
            }
            // Another order of the names does not change the shards.
            names.reverse();
            for (number, shard) in shards(count).enumerate() {
                let mut reversed = shard.select(&names, &durations);
                reversed.reverse();
                prop_assert_eq!(&reversed, &selected[number]);
            }
        }
    }
}
