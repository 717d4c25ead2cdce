//! Compares names in natural order: `S0-2` before `S0-10`.

use std::cmp::Ordering;

/// Name that is ordered by its text pieces and by the values of its numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct NaturalKey<'a>(pub(super) &'a str);

impl Ord for NaturalKey<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut left, mut right) = (self.0, other.0);
        while !left.is_empty() && !right.is_empty() {
            let (left_piece, right_piece) = (piece(left), piece(right));
            let order = match (number(left_piece), number(right_piece)) {
                // Without leading zeros, the longer number is greater.
                (Some(left_number), Some(right_number)) => left_number
                    .len()
                    .cmp(&right_number.len())
                    .then(left_number.cmp(right_number)),
                _ => left_piece.cmp(right_piece),
            };
            if order != Ordering::Equal {
                return order;
            }
            (left, right) = (&left[left_piece.len()..], &right[right_piece.len()..]);
        }
        // Names that differ only in leading zeros are not equal.
        left.len().cmp(&right.len()).then(self.0.cmp(other.0))
    }
}

impl PartialOrd for NaturalKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for NaturalKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for NaturalKey<'_> {}

/// Returns the longest prefix that consists of only digits or has no digits.
fn piece(text: &str) -> &str {
    let digits = text.starts_with(|first: char| first.is_ascii_digit());
    let end = text.find(|next: char| next.is_ascii_digit() != digits);
    &text[..end.unwrap_or(text.len())]
}

fn number(piece: &str) -> Option<&str> {
    piece
        .starts_with(|first: char| first.is_ascii_digit())
        .then(|| piece.trim_start_matches('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn natural_key_numbers_compare_by_value() {
        let mut names = ["S1-1", "S0-10", "S0-2", "S", "S0-2a", "S10-1", "S0-02", ""];
        names.sort_by_key(|name| NaturalKey(name));
        assert_eq!(
            names,
            ["", "S", "S0-02", "S0-2", "S0-2a", "S0-10", "S1-1", "S10-1"]
        );
    }

    proptest! {
        #[test]
        fn natural_key_order_is_total(a in "[Sé0-2-]{0,6}", b in "[Sé0-2-]{0,6}", c in "[Sé0-2-]{0,6}") {
            let (a, b, c) = (NaturalKey(&a), NaturalKey(&b), NaturalKey(&c));
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            prop_assert_eq!(a.cmp(&b) == Ordering::Equal, a == b);
            if a <= b && b <= c {
                prop_assert!(a <= c);
            }
        }
    }
}
