//! Finds claims that labs declare with different texts.

use indexmap::IndexMap;

use super::Declared;

/// Two labs that declare a claim with different texts. Output contains the first text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DifferingClaim<'a> {
    /// First declaration of the claim.
    pub first: Declared<'a>,
    /// Later declaration with another text.
    pub other: Declared<'a>,
}

/// Returns every declaration whose text differs from the first one with the same identifier.
#[must_use]
pub fn find_differing<'a>(declared: &[Declared<'a>]) -> Vec<DifferingClaim<'a>> {
    let mut first_declarations: IndexMap<&str, Declared<'a>> = IndexMap::new();
    let mut found = Vec::new();
    for &other in declared {
        let first = *first_declarations.entry(other.id).or_insert(other);
        if first.says != other.says {
            found.push(DifferingClaim { first, other });
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
    fn differing_each_later_text_is_listed() {
        let declarations = [
            declared("a", "S1-1", "up"),
            declared("b", "S1-1", "up"),
            declared("c", "S1-1", "down"),
            declared("c", "S1-2", "left"),
            declared("d", "S1-1", "sideways"),
        ];
        let found = find_differing(&declarations);
        assert_eq!(
            found,
            [
                DifferingClaim {
                    first: declarations[0],
                    other: declarations[2]
                },
                DifferingClaim {
                    first: declarations[0],
                    other: declarations[4]
                },
            ]
        );
    }
}
