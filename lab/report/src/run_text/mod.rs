//! Renders the results of a run as text: one file for the result of a case, one for the end of the
//! run, and one for what was not as expected.

pub(crate) mod case;
pub(crate) mod recap;
pub(crate) mod unexpected;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::results::Document;
use crate::text::{count, join_and, render_counts};

/// Renders the whole run in a line:
/// `12 passed, 1 failed, 0 errors in 3.2 s on Linux 6.12.43 (iptables v1.8.9, ipset v7.17)`.
pub(crate) fn render_summary(results: &Document, took: Duration) -> String {
    let kernels: BTreeSet<&str> = results
        .cases
        .iter()
        .map(|case| case.kernel.as_str())
        .filter(|kernel| !kernel.is_empty())
        .collect();
    let kernels = kernels.iter().map(|kernel| format!("Linux {kernel}"));
    let on = match join_and(kernels) {
        none if none.is_empty() => none,
        kernels => format!(" on {kernels}"),
    };
    let with = match tool_versions(results).join(", ") {
        none if none.is_empty() => none,
        tools => format!(" ({tools})"),
    };
    let counts = render_counts(results.summary);
    let not_run = match results.not_run.len() {
        0 => String::new(),
        cases => format!(", {cases} not run"),
    };
    let end = match results.stopped {
        _ if results.interrupted => "; interrupted before all cases finished".to_owned(),
        Some(reason) => format!("; {}", reason.description()),
        None => String::new(),
    };
    let lost = describe_lost(results).map_or_else(String::new, |lost| format!("; {lost}"));
    format!(
        "{counts}{not_run} in {:.1} s{on}{with}{end}{lost}",
        took.as_secs_f64()
    )
}

/// Describes the cases without a result. Returns `None` if all have one.
pub(crate) fn describe_lost(results: &Document) -> Option<String> {
    let lost = results.count_missing_results();
    let cases = || count(lost, "case has", "cases have");
    (lost > 0).then(|| format!("{} no result, which is a bug in svclab", cases()))
}

/// Returns the tools that the run used, iptables first. `iptables-nft-restore v1.8.9 (nf_tables)`
/// and `iptables-restore v1.8.9 (legacy)` are from the same package and count as one.
fn tool_versions(results: &Document) -> Vec<String> {
    let mut known = Vec::new();
    for printed in results
        .tools
        .iter()
        .filter(|(name, _)| *name != "svclab")
        .map(|(_, printed)| printed)
    {
        let mut words = printed.split_whitespace();
        let name = words.next().unwrap_or_default();
        let name = if name.starts_with("iptables") {
            "iptables"
        } else {
            name
        };
        let version = words.next().unwrap_or_default().trim_end_matches(',');
        let tool = format!("{name} {version}").trim().to_owned();
        if !tool.is_empty() && !known.contains(&tool) {
            known.push(tool);
        }
    }
    known.sort_by_key(|tool| !tool.starts_with("iptables"));
    known
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use svclab_runner::results::{Results, fixture};

    #[test]
    fn render_summary_kernels_and_tools_are_unique() {
        let took = Duration::from_millis(3_240);
        insta::assert_snapshot!(render_summary(&Document::from(&fixture::results()), took), @"3 passed, 2 failed, 4 errors in 3.2 s on Linux 6.1.0-50-cloud-amd64 and Linux 6.18.44 (iptables v1.8.9, ipset v7.17)");
        let nothing = Results::new(BTreeMap::new(), Vec::new());
        insta::assert_snapshot!(render_summary(&Document::from(&nothing), Duration::ZERO), @"0 passed, 0 failed, 0 errors in 0.0 s");
        let mut interrupted = fixture::results();
        interrupted.interrupted = true;
        insta::assert_snapshot!(render_summary(&Document::from(&interrupted), took), @"3 passed, 2 failed, 4 errors in 3.2 s on Linux 6.1.0-50-cloud-amd64 and Linux 6.18.44 (iptables v1.8.9, ipset v7.17); interrupted before all cases finished");
        insta::assert_snapshot!(render_summary(
            &Document::from(&fixture::stopped_results()),
            took
        ));
        let mut lost = nothing;
        lost.begun = Some(2);
        insta::assert_snapshot!(render_summary(&Document::from(&lost), Duration::ZERO), @"0 passed, 0 failed, 0 errors in 0.0 s; 2 cases have no result, which is a bug in svclab");
    }
}
