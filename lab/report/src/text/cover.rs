//! Describes a set of cases by axis values that other cases do not have: `underlay=drops` or
//! `rpFilter=1` instead of twelve names.

use std::collections::HashSet;

/// Maximum number of terms. With more, an example is easier to read.
const MAX_TERMS: usize = 3;

/// Maximum number of axis values per term.
const MAX_VALUES: usize = 3;

/// Maximum number of terms to try before giving up. Sets that a few terms cover need only dozens.
const MAX_TRIES: usize = 20_000;

/// Parts of a case name: the lab, with an empty axis, and the value of each axis.
type Values<'a> = Vec<(&'a str, &'a str)>;

/// Returns the fewest terms that together match all of `cases` and none of `others`. A term is
/// written as a case selection, `axis=value,axis=value`, with the lab before it if needed. Returns
/// `None` if more than 3 terms are needed, or if a case is on both sides.
///
/// The terms may or may not match cases that are on neither side.
pub(crate) fn cover(cases: &[&str], others: &[&str]) -> Option<Vec<String>> {
    let cases: Vec<Values<'_>> = cases.iter().map(|case| values(case)).collect();
    let others: Vec<Values<'_>> = others.iter().map(|case| values(case)).collect();
    let mut terms: Vec<Term<'_>> = minimal_terms(&cases, &others)
        .into_iter()
        .map(|values| Term {
            covers: cases.iter().map(|case| matches(case, &values)).collect(),
            values,
        })
        .collect();
    // The first solution is returned: short terms come first, and of these the widest.
    terms.sort_by_key(|term| {
        let wide = term.covers.iter().filter(|covered| **covered).count();
        (term.values.len(), usize::MAX - wide)
    });
    let mut tries = MAX_TRIES;
    (1..=MAX_TERMS).find_map(|limit| {
        let mut chosen = Vec::new();
        let found = choose(&terms, cases.len(), limit, &mut chosen, &mut tries);
        found.then(|| chosen.iter().map(|term| term.render()).collect())
    })
}

/// Axis values that a case must have to match.
struct Term<'a> {
    values: Values<'a>,
    /// Whether each of the cases matches.
    covers: Vec<bool>,
}

impl Term<'_> {
    fn render(&self) -> String {
        let mut lab = "";
        let mut values = Vec::new();
        for (axis, value) in &self.values {
            if axis.is_empty() {
                lab = value;
            } else {
                values.push(format!("{axis}={value}"));
            }
        }
        match (lab, values.join(",")) {
            ("", values) => values,
            (lab, none) if none.is_empty() => lab.to_owned(),
            (lab, values) => format!("{lab}/{values}"),
        }
    }
}

fn values(case: &str) -> Values<'_> {
    // Axes and values do not contain the separators; the lab parser checks this.
    let (lab, rest) = case.split_once('/').unwrap_or((case, ""));
    let axes = rest.split(',').filter_map(|pair| pair.split_once('='));
    std::iter::once(("", lab)).chain(axes).collect()
}

fn matches(case: &Values<'_>, term: &Values<'_>) -> bool {
    term.iter().all(|value| case.contains(value))
}

/// Returns every minimal term that matches some of `cases` and none of `others`.
fn minimal_terms<'a>(cases: &[Values<'a>], others: &[Values<'a>]) -> Vec<Values<'a>> {
    let mut found: Vec<Values<'a>> = Vec::new();
    let mut seen = HashSet::new();
    for length in 1..=MAX_VALUES {
        let shorter = found.len();
        for case in cases {
            for term in combinations(case, length) {
                if seen.insert(term.clone())
                    && !found[..shorter].iter().any(|short| matches(&term, short))
                    && !others.iter().any(|other| matches(other, &term))
                {
                    found.push(term);
                }
            }
        }
    }
    found
}

/// Returns all combinations of `length` values, in their order.
fn combinations<'a>(values: &[(&'a str, &'a str)], length: usize) -> Vec<Values<'a>> {
    if length == 0 {
        return vec![Vec::new()];
    }
    let mut result = Vec::new();
    for (index, first) in values.iter().enumerate() {
        for rest in combinations(&values[index + 1..], length - 1) {
            let mut choice = vec![*first];
            choice.extend(rest);
            result.push(choice);
        }
    }
    result
}

/// Chooses up to `limit` terms that cover all cases. Returns whether they exist.
fn choose<'t, 'a>(
    terms: &'t [Term<'a>],
    cases: usize,
    limit: usize,
    chosen: &mut Vec<&'t Term<'a>>,
    tries: &mut usize,
) -> bool {
    let uncovered = (0..cases).find(|case| !chosen.iter().any(|term| term.covers[*case]));
    let Some(bare) = uncovered else {
        return true;
    };
    if chosen.len() == limit {
        return false;
    }
    for term in terms.iter().filter(|term| term.covers[bare]) {
        if *tries == 0 {
            return false;
        }
        *tries -= 1;
        chosen.push(term);
        if choose(terms, cases, limit, chosen, tries) {
            return true;
        }
        chosen.pop();
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn product(lab: &str, axes: &[(&str, &[&str])]) -> Vec<String> {
        let mut names = vec![String::new()];
        for (axis, values) in axes {
            names = names
                .iter()
                .flat_map(|name| values.iter().map(move |value| (name, value)))
                .map(|(name, value)| match name.as_str() {
                    "" => format!("{axis}={value}"),
                    name => format!("{name},{axis}={value}"),
                })
                .collect();
        }
        names.iter().map(|name| format!("{lab}/{name}")).collect()
    }

    /// Covers the names for which `inside` holds.
    fn covered(names: &[String], inside: impl Fn(&str) -> bool) -> Option<Vec<String>> {
        let (cases, others): (Vec<&str>, Vec<&str>) = names
            .iter()
            .map(String::as_str)
            .partition(|name| inside(name));
        cover(&cases, &others)
    }

    fn lab() -> Vec<String> {
        product(
            "l",
            &[
                ("stale", &["present", "missed"]),
                ("rpFilter", &["0", "1", "2"]),
                ("underlay", &["passes", "drops"]),
            ],
        )
    }

    #[test]
    fn cover_fewest_and_shortest_terms_are_found() {
        let breaks = |name: &str| name.contains("rpFilter=1") || name.contains("underlay=drops");
        assert_eq!(
            covered(&lab(), breaks).unwrap(),
            ["underlay=drops", "rpFilter=1"]
        );
        assert_eq!(
            covered(&lab(), |name| !breaks(name)).unwrap(),
            ["rpFilter=0,underlay=passes", "rpFilter=2,underlay=passes"]
        );
    }

    #[test]
    fn cover_too_many_terms_is_none() {
        let names = product("l", &[("v", &["1", "2", "3", "4", "5"])]);
        let up_to = |last: char| covered(&names, |name| name <= format!("l/v={last}").as_str());
        assert_eq!(up_to('3').unwrap(), ["v=1", "v=2", "v=3"]);
        assert_eq!(up_to('4'), None);
    }

    #[test]
    fn cover_ambiguous_lab_is_named() {
        let mut names = product("a", &[("x", &["1", "2"])]);
        names.extend(product("b", &[("x", &["1", "2"])]));
        names.push("c".to_owned());
        let covered_by = |cases: &[&str]| covered(&names, |name| cases.contains(&name)).unwrap();
        assert_eq!(covered_by(&["a/x=1", "a/x=2"]), ["a"]);
        assert_eq!(covered_by(&["a/x=1", "b/x=1"]), ["x=1"]);
        assert_eq!(covered_by(&["b/x=2", "c"]), ["b/x=2", "c"]);
    }

    #[test]
    fn cover_case_on_both_sides_is_none() {
        assert_eq!(cover(&["l/a=1", "l/a=2"], &["l/a=2"]), None);
    }

    #[test]
    fn cover_largest_lab_terminates() {
        let values: Vec<String> = (0..16).map(|value| value.to_string()).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let names = product("l", &[("x", &values), ("y", &values), ("z", &values)]);
        assert_eq!(names.len(), 4096);
        let odd = |name: &str| name.bytes().map(usize::from).sum::<usize>() % 2 == 1;
        assert_eq!(covered(&names, odd), None);
    }

    proptest! {
        /// For any two sets of cases, the terms match all of one set and none of the other.
        #[test]
        fn cover_terms_match_exactly(sides in prop::collection::vec(any::<Option<bool>>(), 12)) {
            let names = lab();
            let on = |side| -> Vec<&str> {
                names.iter().zip(&sides)
                    .filter(|(_, is)| **is == Some(side))
                    .map(|(name, _)| name.as_str())
                    .collect()
            };
            let (cases, others) = (on(true), on(false));
            if let Some(terms) = cover(&cases, &others) {
                // Applies the terms like a case selection of a user.
                let terms: Vec<String> = terms.into_iter().map(|term| {
                    if term.starts_with('l') { term } else { format!("l/{term}") }
                }).collect();
                let met = |name: &str| {
                    terms.iter().any(|term| matches(&values(name), &values(term)))
                };
                prop_assert!(terms.len() <= MAX_TERMS);
                for name in &cases {
                    prop_assert!(met(name), "{} {:?}", name, terms);
                }
                for name in &others {
                    prop_assert!(!met(name), "{} {:?}", name, terms);
                }
            }
        }
    }
}
