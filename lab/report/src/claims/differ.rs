//! Finds claims that labs declare with different texts.

use indexmap::IndexMap;

use super::Declared;

/// Two labs that declare a claim with different texts. Output contains the first text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Differing<'a> {
    /// First declaration of the claim.
    pub first: Declared<'a>,
    /// Later declaration with another text.
    pub other: Declared<'a>,
}

/// Returns every declaration whose text differs from the first one with the same identifier.
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
