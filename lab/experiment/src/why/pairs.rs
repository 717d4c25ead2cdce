//! Selects the pairs of changes to try: those of an operator's configuration first, and of these the
//! pairs of the likeliest changes.

use indexmap::IndexMap;

use super::change::{Origin, ProposedChange};

/// Maximum number of pairs of changes that are tried per case.
const MAX_PAIRS: usize = 400;

/// Pairs of changes, each of which occurs once.
pub(super) struct Pairs<'o> {
    origin_of: &'o dyn Fn(&ProposedChange) -> Origin,
    /// Changes of the pairs. The first `candidates` are those that were also tried alone.
    changes: Vec<ProposedChange>,
    candidates: usize,
    /// Pairs by the sorted indices of both changes.
    ranked: IndexMap<[usize; 2], RankedPair>,
}

#[derive(Clone, Copy)]
struct RankedPair {
    /// Indices of both changes in the order in which they are applied.
    order: [usize; 2],
    /// Sum of the positions of both changes in the lists that they are from.
    rank: usize,
}

impl<'o> Pairs<'o> {
    /// Creates a selection without pairs from changes without duplicates, the likeliest first.
    pub(super) fn new(
        candidates: Vec<ProposedChange>,
        origin_of: &'o dyn Fn(&ProposedChange) -> Origin,
    ) -> Self {
        Self {
            origin_of,
            candidates: candidates.len(),
            changes: candidates,
            ranked: IndexMap::new(),
        }
    }

    /// Adds the pairs of a candidate with the changes that are worth trying after it, the likeliest
    /// first.
    pub(super) fn add(&mut self, first: usize, next: Vec<ProposedChange>) {
        for (position, change) in next.into_iter().enumerate() {
            let known = self.changes.iter().position(|known| *known == change);
            let second = known.unwrap_or_else(|| {
                self.changes.push(change);
                self.changes.len() - 1
            });
            self.add_pair(first, second, first + position);
        }
    }

    /// Adds the pairs of a candidate with all other candidates.
    pub(super) fn add_others(&mut self, first: usize) {
        for second in 0..self.candidates {
            self.add_pair(first, second, first + second);
        }
    }

    fn add_pair(&mut self, first: usize, second: usize, rank: usize) {
        if first == second || self.changes[second].replaces(&self.changes[first]) {
            return;
        }
        let key = [first.min(second), first.max(second)];
        let order = [first, second];
        let known = self.ranked.entry(key);
        let pair = known.or_insert(RankedPair { order, rank });
        pair.rank = pair.rank.min(rank);
    }

    fn origin(&self, [first, second]: [usize; 2]) -> Origin {
        let origin = |index: usize| (self.origin_of)(&self.changes[index]);
        origin(first).max(origin(second))
    }

    /// Returns at most [`MAX_PAIRS`] pairs that are not known, and the number of the others.
    pub(super) fn select(
        self,
        is_known: impl Fn(&[ProposedChange]) -> bool,
    ) -> (Vec<Vec<ProposedChange>>, usize) {
        let changes = |order: [usize; 2]| order.map(|index| self.changes[index].clone());
        let pairs = self.ranked.values().copied();
        let mut pairs: Vec<RankedPair> = pairs
            .filter(|pair| !is_known(&changes(pair.order)))
            .collect();
        pairs.sort_by_key(|pair| (self.origin(pair.order), pair.rank));
        let untried = pairs.len().saturating_sub(MAX_PAIRS);
        pairs.truncate(MAX_PAIRS);
        let selected = pairs.into_iter().map(|pair| changes(pair.order).to_vec());
        (selected.collect(), untried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(number: usize) -> ProposedChange {
        ProposedChange::UndoManualChanges {
            node: format!("node-{number}"),
        }
    }

    fn generated(number: usize) -> ProposedChange {
        ProposedChange::DeleteSetEntry {
            namespace: "node-1".to_owned(),
            set: "KUBE-CLUSTER-IP".to_owned(),
            entry: number.to_string(),
        }
    }

    fn origin(change: &ProposedChange) -> Origin {
        match change {
            ProposedChange::DeleteSetEntry { .. } => Origin::Generated,
            _ => Origin::Configured,
        }
    }

    #[test]
    fn select_each_pair_occurs_once_configuration_first() {
        let mut pairs = Pairs::new(vec![configured(0), generated(0), configured(1)], &origin);
        for first in 0..3 {
            pairs.add(first, vec![configured(1), generated(7)]);
            pairs.add_others(first);
        }
        let (selected, untried) = pairs.select(|_| false);
        assert_eq!(untried, 0);
        assert_eq!(selected.len(), 6, "{selected:?}");
        assert_eq!(selected[0], [configured(0), configured(1)]);
        assert!(selected.contains(&vec![generated(0), generated(7)]));
    }

    #[test]
    fn select_likeliest_changes_first() {
        let mut pairs = Pairs::new((0..4).map(configured).collect(), &origin);
        // The first change after 2 is as likely as a pair of 2 with the likeliest change.
        pairs.add(2, vec![configured(7), configured(3)]);
        (0..4).for_each(|first| pairs.add_others(first));
        let (selected, _) = pairs.select(|_| false);
        let expected = [[0, 1], [2, 7], [0, 2], [2, 3], [0, 3], [1, 2], [1, 3]];
        let expected = expected.map(|pair| pair.map(configured).to_vec());
        assert_eq!(selected, expected);
    }

    #[test]
    fn select_changes_of_one_value_are_no_pair() {
        let to = |network: &str| ProposedChange::ClusterCidr {
            networks: network.to_owned(),
        };
        let all = ["10.1.0.0/16", "10.2.0.0/16"].map(to);
        let candidates = [&all[..], &[ProposedChange::MasqueradeAll]].concat();
        let mut pairs = Pairs::new(candidates, &origin);
        (0..3).for_each(|first| pairs.add_others(first));
        let (selected, _) = pairs.select(|_| false);
        let each = all.map(|network| vec![network, ProposedChange::MasqueradeAll]);
        assert_eq!(selected, each);
    }

    #[test]
    fn select_many_candidates_is_bounded() {
        let candidates: Vec<ProposedChange> = (0..20).map(generated).collect();
        let count = 100;
        let all = candidates
            .into_iter()
            .chain((0..count - 20).map(configured));
        let mut pairs = Pairs::new(all.collect(), &origin);
        (0..count).for_each(|first| pairs.add_others(first));
        let (selected, untried) = pairs.select(|_| false);
        assert_eq!(selected.len(), MAX_PAIRS);
        assert_eq!(untried, count * (count - 1) / 2 - MAX_PAIRS);
        let is_configured = |change: &ProposedChange| origin(change) == Origin::Configured;
        assert!(selected.iter().flatten().all(is_configured));
    }
}
