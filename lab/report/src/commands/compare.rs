//! Compares the results of a run with those of an earlier run.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::results::{CaseDocument, Document};
use crate::text::{count, join, render_seconds};
use svclab_model::evidence::Verdict;
use svclab_runner::results::CaseStatus;

/// A case is slower if it takes at least this many times as long as before, in percent, and at least
/// [`MIN_SLOWER_MS`] longer. Repeated runs on a busy machine differ by less.
const MIN_SLOWER_PERCENT: u64 = 150;

/// Minimum difference of a slower case in milliseconds.
const MIN_SLOWER_MS: u64 = 500;

/// Differences between two runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// Name of the earlier run.
    pub baseline: String,
    /// Cases that passed before, or did not run, and do not pass now.
    pub new_failures: Vec<CaseChange>,
    /// Cases that pass now, and did not pass before.
    pub fixed: Vec<CaseChange>,
    /// Cases that pass in neither run.
    pub still_failing: Vec<CaseChange>,
    /// Cases with the same result and other verdicts of probes.
    pub other_verdicts: Vec<CaseChange>,
    /// Cases that take much longer.
    pub slower: Vec<CaseChange>,
    /// Cases that ran only before.
    pub missing: Vec<CaseChange>,
    /// Cases that ran only now, and pass.
    pub added: Vec<CaseChange>,
    /// Number of cases with a result in both runs.
    pub compared: usize,
}

/// Case that differs between two runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseChange {
    /// Full name of the case.
    pub case: String,
    /// Version of the kernel, without its patch level.
    pub kernel: String,
    /// Result before. Absent if the case did not run.
    pub before: Option<CaseOutcome>,
    /// Result now. Absent if the case did not run.
    pub after: Option<CaseOutcome>,
}

/// Result of a case in one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseOutcome {
    /// Status of the case.
    pub result: CaseStatus,
    /// Duration of the case in milliseconds.
    pub duration_ms: u64,
    /// Verdicts of the probes, or the error.
    pub observed: String,
}

/// Name on the command line, and kernel version. A run may have a case once for each kernel.
type CaseKey<'d> = (&'d str, String);

/// Compares the runs `after` with the runs `before`. `baseline` names the earlier run.
#[must_use]
pub fn compare(baseline: &str, before: &[&Document], after: &[&Document]) -> Comparison {
    let (mut before, after) = (cases_by_key(before), cases_by_key(after));
    let mut comparison = Comparison {
        baseline: baseline.to_owned(),
        new_failures: Vec::new(),
        fixed: Vec::new(),
        still_failing: Vec::new(),
        other_verdicts: Vec::new(),
        slower: Vec::new(),
        missing: Vec::new(),
        added: Vec::new(),
        compared: 0,
    };
    let mut unpaired = Vec::new();
    for (key, new) in after {
        match before.remove(&key) {
            Some(old) => comparison.add(&key, Some(old), new),
            None => unpaired.push((key, new)),
        }
    }
    for (key, new) in unpaired {
        // A case that reached no agent has no kernel. It is that of any kernel.
        let (name, kernel) = &key;
        let mut others = before.keys();
        let same = others.find(|(other_name, other_kernel)| {
            other_name == name && (other_kernel.is_empty() || kernel.is_empty())
        });
        let old = same.cloned().and_then(|same| before.remove(&same));
        comparison.add(&key, old, new);
    }
    let missing = before.iter();
    let missing = missing.map(|(key, old)| CaseChange::new(key, Some(old), None));
    comparison.missing = missing.collect();
    comparison
}

/// Returns the cases of runs. If a case ran several times, the worst result counts.
fn cases_by_key<'d>(documents: &[&'d Document]) -> BTreeMap<CaseKey<'d>, &'d CaseDocument> {
    let mut cases = BTreeMap::new();
    for case in documents.iter().flat_map(|document| &document.cases) {
        let known = cases.entry((case.cli_name(), short_kernel(&case.kernel)));
        known
            .and_modify(|known: &mut &CaseDocument| {
                if case.result > known.result {
                    *known = case;
                }
            })
            .or_insert(case);
    }
    cases
}

/// Returns the version of a kernel without patch level: `6.12` of `6.12.57+deb13-cloud-amd64`.
pub(crate) fn short_kernel(release: &str) -> String {
    join(release.split('.').take(2), ".")
}

impl Comparison {
    fn add(&mut self, key: &CaseKey<'_>, old: Option<&CaseDocument>, new: &CaseDocument) {
        let change = CaseChange::new(key, old, Some(new));
        let passes = |case: &CaseDocument| case.result.has_passed();
        let Some(old) = old else {
            let list = if passes(new) {
                &mut self.added
            } else {
                &mut self.new_failures
            };
            list.push(change);
            return;
        };
        self.compared += 1;
        if is_slower(old, new) && passes(new) {
            self.slower.push(change.clone());
        }
        match (passes(old), passes(new)) {
            (true, false) => self.new_failures.push(change),
            (false, true) => self.fixed.push(change),
            (false, false) => self.still_failing.push(change),
            (true, true) if verdicts(old) != verdicts(new) => self.other_verdicts.push(change),
            (true, true) => {}
        }
    }

    /// Returns the lists of changed cases with their titles.
    pub(crate) fn lists(&self) -> [(&'static str, &[CaseChange]); 7] {
        [
            ("New failures", &self.new_failures),
            ("Not run any more", &self.missing),
            ("Fixed", &self.fixed),
            ("Failing in both runs", &self.still_failing),
            ("Other verdicts with the same result", &self.other_verdicts),
            ("Slower", &self.slower),
            ("Only in the new run", &self.added),
        ]
    }

    /// Returns the comparison in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let lists = self.lists();
        let parts = lists.iter().filter(|(_, changes)| !changes.is_empty());
        let parts = parts.map(|(title, changes)| {
            let title = title.to_ascii_lowercase();
            format!("{title}: {}", changes.len())
        });
        let compared = count(self.compared, "case", "cases");
        match join(parts, ", ") {
            none if none.is_empty() => format!("{compared} compared, no difference"),
            parts => format!("{compared} compared; {parts}"),
        }
    }

    /// Renders the comparison as text.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut text = format!("compared with {}: {}\n", self.baseline, self.summary());
        for (title, changes) in self.lists() {
            if changes.is_empty() {
                continue;
            }
            let _ = writeln!(text, "\n{title}:");
            for change in changes {
                let _ = writeln!(text, "  {}", change.describe());
            }
        }
        text
    }
}

impl CaseChange {
    fn new(
        (_, kernel): &CaseKey<'_>,
        before: Option<&CaseDocument>,
        after: Option<&CaseDocument>,
    ) -> Self {
        let case = after.or(before).map_or("", CaseDocument::cli_name);
        Self {
            case: case.to_owned(),
            kernel: kernel.clone(),
            before: before.map(CaseOutcome::from),
            after: after.map(CaseOutcome::from),
        }
    }

    fn describe(&self) -> String {
        let kernel = match self.kernel.as_str() {
            "" => String::new(),
            kernel => format!(" on {kernel}"),
        };
        let outcomes = [&self.before, &self.after].map(|outcome| {
            outcome.as_ref().map_or_else(
                || "not run".to_owned(),
                |outcome| {
                    let name = outcome.result.upper_case_name();
                    let seconds = render_seconds(outcome.duration_ms);
                    match outcome.observed.as_str() {
                        "" => format!("{name} in {seconds}"),
                        observed => format!("{name} in {seconds}, {observed}"),
                    }
                },
            )
        });
        format!(
            "{}{kernel}: {}; now {}",
            self.case, outcomes[0], outcomes[1]
        )
    }
}

impl From<&CaseDocument> for CaseOutcome {
    fn from(case: &CaseDocument) -> Self {
        let observed = match &case.error {
            Some(error) => error.message.lines().next().unwrap_or_default().to_owned(),
            None => join(
                verdicts(case)
                    .into_iter()
                    .map(|(probe, verdicts)| match join(verdicts, " and ") {
                        none if none.is_empty() => format!("{probe} nothing"),
                        verdicts => format!("{probe} {verdicts}"),
                    }),
                ", ",
            ),
        };
        Self {
            result: case.result,
            duration_ms: case.duration_ms,
            observed,
        }
    }
}

/// Returns the verdicts of each probe, without their numbers: endpoints are chosen at random.
fn verdicts(case: &CaseDocument) -> Vec<(&str, Vec<Verdict>)> {
    let probes = case.probes.iter();
    let probes = probes.map(|probe| {
        let verdicts = probe.observed.verdicts.keys().copied();
        (probe.name.as_str(), verdicts.collect())
    });
    probes.collect()
}

const fn is_slower(before: &CaseDocument, after: &CaseDocument) -> bool {
    let (before, after) = (before.duration_ms, after.duration_ms);
    after >= before.saturating_add(MIN_SLOWER_MS)
        && after.saturating_mul(100) >= before.saturating_mul(MIN_SLOWER_PERCENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_runner::results::fixture;

    fn document() -> Document {
        Document::from(&fixture::results())
    }

    #[test]
    fn compare_equal_runs_have_no_new_failures() {
        let document = document();
        let comparison = compare("before", &[&document], &[&document]);
        assert_eq!(comparison.new_failures, []);
        assert_eq!((comparison.fixed, comparison.missing), (vec![], vec![]));
        assert_eq!(comparison.compared, document.cases.len());
    }

    #[test]
    fn compare_changed_run_matches_snapshot() {
        let (mut before, mut after) = (document(), document());
        let failed = before
            .cases
            .iter()
            .position(|case| case.result == CaseStatus::Fail);
        let passed = after
            .cases
            .iter()
            .position(|case| case.result == CaseStatus::Pass);
        before.cases[failed.unwrap()].result = CaseStatus::Pass;
        after.cases[passed.unwrap()].result = CaseStatus::Fail;
        // Another patch level of the same kernel.
        for case in &mut after.cases {
            if !case.kernel.is_empty() {
                case.kernel.push_str("-1");
            }
            case.duration_ms += 5000;
        }
        let last = after.cases.pop().unwrap();
        after.cases[0].kernel.clear();
        let fixed = after
            .cases
            .iter_mut()
            .find(|case| case.result == CaseStatus::Error);
        fixed.unwrap().result = CaseStatus::Pass;
        let comparison = compare("before", &[&before], &[&after]);
        assert_eq!(comparison.missing[0].case, last.case);
        insta::assert_snapshot!(comparison.render_text());
    }

    #[test]
    fn compare_case_of_several_runs_worst_result_counts() {
        let (good, mut bad) = (document(), document());
        for case in &mut bad.cases {
            case.result = CaseStatus::Error;
        }
        let comparison = compare("before", &[&good], &[&good, &bad]);
        let passing = good
            .cases
            .iter()
            .filter(|case| case.result == CaseStatus::Pass);
        assert_eq!(comparison.new_failures.len(), passing.count());
    }
}
