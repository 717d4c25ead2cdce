//! Renders the cases that confirm a part of a claim and those that refute it, one line each.

use super::Part;
use crate::text::count;
use crate::text::cover::cover;

/// Renders what the confirming and the refuting cases have in common, and the observation of the
/// latter.
pub(super) fn render_short(part: &Part) -> Vec<String> {
    let confirmed: Vec<&str> = part.confirmed.iter().map(String::as_str).collect();
    let refuted: Vec<&str> = part
        .refuted
        .iter()
        .map(|refutation| refutation.case.as_str())
        .collect();
    let mut lines = Vec::new();
    if !confirmed.is_empty() {
        lines.push(format!(
            "confirmed {}",
            describe_cases(&confirmed, &refuted)
        ));
    }
    if !refuted.is_empty() {
        let seen = first_observation(part).unwrap_or_default();
        lines.push(format!(
            "refuted {}{seen}",
            describe_cases(&refuted, &confirmed)
        ));
    }
    lines
}

/// Renders every case by name.
pub(super) fn render_full(part: &Part) -> Vec<String> {
    let confirmed = part
        .confirmed
        .iter()
        .map(|case| format!("confirmed: {case}"));
    let refuted = part.refuted.iter().map(|refutation| {
        let seen = refutation.seen.as_ref().map(|seen| format!(" ({seen})"));
        format!("refuted: {}{}", refutation.case, seen.unwrap_or_default())
    });
    confirmed.chain(refuted).collect()
}

/// Describes `cases` in contrast to `others`, which have results for the same part.
fn describe_cases(cases: &[&str], others: &[&str]) -> String {
    let count = count(cases.len(), "case", "cases");
    match (cases, others) {
        ([only], []) => return format!("by {only}"),
        (_, []) => return format!("in all {count}"),
        _ => {}
    }
    match (cover(cases, others), cases) {
        (Some(terms), _) => format!("in {count}: {}", terms.join(", or ")),
        (None, [only]) => format!("by {only}"),
        // The line of the other cases defines both sets.
        (None, _) if cover(others, cases).is_some() => format!("in the other {count}"),
        (None, _) => format!("in {count}, such as {}", cases[0]),
    }
}

/// Returns the observation of the first case that refutes the part.
fn first_observation(part: &Part) -> Option<String> {
    let first = part.refuted.first()?.seen.as_ref()?;
    let alike = part
        .refuted
        .iter()
        .all(|of| of.seen.as_ref() == Some(first));
    let word = if alike { "" } else { "for example " };
    Some(format!(" ({word}{first})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::claims::Refutation;

    fn part(confirmed: &[&str], refuted: &[(&str, &str)]) -> Part {
        Part {
            incomplete: None,
            part: None,
            confirmed: confirmed.iter().map(|&case| case.to_owned()).collect(),
            refuted: refuted
                .iter()
                .map(|(case, seen)| Refutation {
                    case: (*case).to_owned(),
                    seen: Some((*seen).to_owned()),
                })
                .collect(),
        }
    }

    fn short(confirmed: &[&str], refuted: &[(&str, &str)]) -> String {
        render_short(&part(confirmed, refuted)).join("\n")
    }

    #[test]
    fn render_short_common_values_are_named() {
        insta::assert_snapshot!(short(
            &["l/a=1,b=x", "l/a=1,b=y"],
            &[("l/a=2,b=x", "no"), ("l/a=2,b=y", "no")],
        ), @r"
        confirmed in 2 cases: a=1
        refuted in 2 cases: a=2 (no)
        ");
    }

    #[test]
    fn render_short_complex_side_is_the_other() {
        insta::assert_snapshot!(short(
            &["l/a=0"],
            &[("l/a=1", "no"), ("l/a=2", "no"), ("l/a=3", "never"), ("l/a=4", "no")],
        ), @r"
        confirmed in 1 case: a=0
        refuted in the other 4 cases (for example no)
        ");
    }

    #[test]
    fn render_short_two_complex_sides_have_examples() {
        let even: Vec<String> = (0..8).map(|n| format!("l/a={}", 2 * n)).collect();
        let odd: Vec<String> = (0..8).map(|n| format!("l/a={}", 2 * n + 1)).collect();
        let even: Vec<&str> = even.iter().map(String::as_str).collect();
        let odd: Vec<(&str, &str)> = odd.iter().map(|case| (case.as_str(), "no")).collect();
        insta::assert_snapshot!(short(&even, &odd), @r"
        confirmed in 8 cases, such as l/a=0
        refuted in 8 cases, such as l/a=1 (no)
        ");
    }

    #[test]
    fn render_short_single_case_is_named() {
        insta::assert_snapshot!(short(&["l/a=1", "l/a=2"], &[]), @"confirmed in all 2 cases");
        insta::assert_snapshot!(short(&[], &[("l/a=1", "no")]), @"refuted by l/a=1 (no)");
    }

    #[test]
    fn render_full_every_case_is_named() {
        let part = part(&["l/a=1", "l/a=2"], &[("l/a=3", "no")]);
        insta::assert_snapshot!(render_full(&part).join("\n"), @r"
        confirmed: l/a=1
        confirmed: l/a=2
        refuted: l/a=3 (no)
        ");
    }
}
