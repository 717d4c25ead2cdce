//! Labs that speak of one claim and do not say the same of it.

use indexmap::IndexMap;

use super::Declared;

/// Two labs that declare a claim with different texts. What is told of the claim
/// is the first one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Differing<'a> {
    /// As the first lab declares it.
    pub first: Declared<'a>,
    /// As another one does.
    pub other: Declared<'a>,
}

/// Every declaration whose text is not that of the first one with its identifier.
#[must_use]
pub fn differing<'a>(declared: &[Declared<'a>]) -> Vec<Differing<'a>> {
    let mut known: IndexMap<&str, Declared<'a>> = IndexMap::new();
    let mut found = Vec::new();
    for &other in declared {
        let first = *known.entry(other.id).or_insert(other);
        if first.says != other.says {
            found.push(Differing { first, other });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared<'a>(lab: &'a str, id: &'a str, says: &'a str) -> Declared<'a> {
        Declared {
            lab,
            id,
            says,
            not_checkable: None,
        }
    }

    #[test]
    fn each_lab_that_departs_from_the_first_is_named() {
        let all = [
            declared("a", "S1-1", "up"),
            declared("b", "S1-1", "up"),
            declared("c", "S1-1", "down"),
            declared("c", "S1-2", "left"),
            declared("d", "S1-1", "sideways"),
        ];
        let found = differing(&all);
        assert_eq!(
            found,
            [
                Differing {
                    first: all[0],
                    other: all[2]
                },
                Differing {
                    first: all[0],
                    other: all[4]
                },
            ]
        );
    }
}
