//! Compares the results of a run with those of the previous one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use svclab_runner::results::{CaseStatus, Results};

/// Status of each case. A case that ran in several kernels has its worst status.
pub(super) type Statuses = BTreeMap<String, CaseStatus>;

/// Returns the status of each case of a run.
pub(super) fn statuses(results: &Results) -> Statuses {
    let mut statuses = Statuses::new();
    for case in &results.cases {
        let status = statuses.entry(case.case.clone()).or_insert(case.result);
        if !case.result.has_passed() {
            *status = case.result;
        }
    }
    statuses
}

/// Renders the cases that fail now but did not before, those that are fixed, and the number of those
/// that still fail. Empty if no case fails or failed.
pub(super) fn render_changes(before: &Statuses, now: &Statuses) -> String {
    let fails = |statuses: &Statuses, case: &String| {
        statuses
            .get(case)
            .is_some_and(|status| !status.has_passed())
    };
    let mut text = String::new();
    let failing = now.keys().filter(|case| fails(now, case));
    let (still, new): (Vec<&String>, Vec<&String>) = failing.partition(|case| fails(before, case));
    for case in new {
        let _ = writeln!(text, "NEW FAILURE {case}");
    }
    for case in now
        .keys()
        .filter(|case| fails(before, case) && !fails(now, case))
    {
        let _ = writeln!(text, "FIXED {case}");
    }
    for case in before
        .keys()
        .filter(|case| fails(before, case) && !now.contains_key(*case))
    {
        let _ = writeln!(text, "NOT RUN ANY MORE {case}");
    }
    match still.len() {
        0 => {}
        1 => text += "1 case still fails\n",
        many => {
            let _ = writeln!(text, "{many} cases still fail");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use CaseStatus::{Error, Fail, Flaky, Pass};

    fn render(before: &[(&str, CaseStatus)], now: &[(&str, CaseStatus)]) -> String {
        let statuses = |cases: &[(&str, CaseStatus)]| {
            let cases = cases.iter();
            cases
                .map(|(name, status)| ((*name).to_owned(), *status))
                .collect()
        };
        render_changes(&statuses(before), &statuses(now))
    }

    #[test]
    fn changes_name_new_and_fixed_failures() {
        let before = [
            ("a", Pass),
            ("b", Fail),
            ("c", Error),
            ("d", Fail),
            ("f", Flaky),
        ];
        let now = [
            ("a", Error),
            ("b", Pass),
            ("c", Fail),
            ("e", Fail),
            ("f", Pass),
        ];
        insta::assert_snapshot!(render(&before, &now), @r"
        NEW FAILURE a
        NEW FAILURE e
        FIXED b
        NOT RUN ANY MORE d
        1 case still fails
        ");
        assert_eq!(render(&[("a", Pass)], &[("a", Flaky), ("b", Pass)]), "");
        assert_eq!(
            render(&[("a", Fail), ("b", Fail)], &[("a", Fail), ("b", Fail)]),
            "2 cases still fail\n"
        );
    }
}
