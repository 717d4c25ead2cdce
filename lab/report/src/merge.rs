//! Merges the results of several runs, such as the shards of a CI job, into those of one run.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use thiserror::Error;

use crate::results::{CaseDocument, Document, FlowDocument};
use crate::text::{join, list_first};
use svclab_runner::results::flows::{FlowOutcome, tables};
use svclab_runner::results::{CaseResult, RunFacts, ShardFacts, Summary};
use svclab_scenario::expectation::ProbeExpectation;

/// Reason why runs cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MergeError {
    /// There is no run.
    #[error("there are no results to merge")]
    Nothing,
    /// The runs are of different versions of svclab.
    #[error("{first} is of svclab {first_version}, but {other} is of {other_version}")]
    Version {
        /// Name of a run.
        first: String,
        /// Its version.
        first_version: String,
        /// Name of a run with another version.
        other: String,
        /// Its version.
        other_version: String,
    },
    /// Only some of the runs are shards, or they are shards of different runs.
    #[error("{first} and {other} are not shards of the same run")]
    OtherRun {
        /// Name of a run.
        first: String,
        /// Name of a run with another selection of cases.
        other: String,
    },
    /// Two runs are the same shard.
    #[error("{first} and {other} are both shard {number}/{count}")]
    SameShard {
        /// Name of a run.
        first: String,
        /// Name of the other run.
        other: String,
        /// Number of the shard.
        number: usize,
        /// Number of all shards.
        count: usize,
    },
    /// Shards are missing.
    #[error("{} of {count}: {}", missing_shards(.missing), join(.missing, ", "))]
    MissingShards {
        /// Numbers of the missing shards.
        missing: Vec<usize>,
        /// Number of all shards.
        count: usize,
    },
    /// Two runs have a result of the same case in the same kernel.
    #[error("{first} and {other} both have a result of {case}{}", on_kernel(.kernel))]
    SameCase {
        /// Name of a run.
        first: String,
        /// Name of the other run.
        other: String,
        /// Name of the case on the command line.
        case: String,
        /// Release of the kernel.
        kernel: String,
    },
    /// No run has a result of a case, although the run is complete.
    #[error("no results contain {}", list_first(.cases))]
    MissingCases {
        /// Names of the cases on the command line.
        cases: Vec<String>,
    },
}

fn missing_shards(missing: &[usize]) -> &'static str {
    match missing {
        [_] => "a shard is missing",
        _ => "shards are missing",
    }
}

fn on_kernel(kernel: &str) -> String {
    match kernel {
        "" => String::new(),
        kernel => format!(" on Linux {kernel}"),
    }
}

/// Run to merge: its name for messages, and its results.
type NamedRun = (String, Document);

/// Merges runs. The result of all shards of a run is that of the run without shards, except for
/// times and the versions of tools that differ. Runs that are not shards must have different cases;
/// their flow tables are kept as they are.
///
/// # Errors
///
/// When the runs contradict each other, or a shard is missing.
pub fn merge(runs: &[NamedRun]) -> Result<Document, MergeError> {
    let [(first_name, first), others @ ..] = runs else {
        return Err(MergeError::Nothing);
    };
    for (name, other) in others {
        let version = |run: &Document| run.tools.get("svclab").cloned().unwrap_or_default();
        if version(first) != version(other) {
            return Err(MergeError::Version {
                first: first_name.clone(),
                first_version: version(first),
                other: name.clone(),
                other_version: version(other),
            });
        }
    }
    let shard = check_shards(runs)?;
    check_cases(runs)?;
    let mut cases: Vec<CaseDocument> = collect(runs, |run| &run.cases);
    let mut not_run = collect(runs, |run| &run.not_run);
    let mut flows = collect(runs, |run| &run.flows);
    if let Some(shard) = shard {
        let places = shard.cases.iter().enumerate();
        let places: HashMap<&str, usize> =
            places.map(|(place, name)| (name.as_str(), place)).collect();
        let place = |name: &str| places.get(name).copied().unwrap_or(usize::MAX);
        cases.sort_by_key(|case| place(case.cli_name()));
        not_run.sort_by_key(|case| {
            place(if case.named.is_empty() {
                &case.case
            } else {
                &case.named
            })
        });
        let with_flows: Vec<(usize, CaseResult)> = cases
            .iter()
            .map(|case| (place(case.cli_name()), with_flows(case)))
            .collect();
        let indexed: Vec<(usize, &CaseResult)> = with_flows
            .iter()
            .map(|(place, case)| (*place, case))
            .collect();
        flows = tables(&shard.flows, &indexed);
        let is_interrupted = runs.iter().any(|(_, run)| run.interrupted);
        let present: BTreeSet<&str> = cases.iter().map(CaseDocument::cli_name).collect();
        let missing: Vec<String> = shard
            .cases
            .iter()
            .filter(|name| !present.contains(name.as_str()))
            .cloned()
            .collect();
        if !missing.is_empty() && !is_interrupted && not_run.is_empty() {
            return Err(MergeError::MissingCases { cases: missing });
        }
    }
    let mut warnings = Vec::new();
    for warning in collect(runs, |run| &run.warnings) {
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    let documents = || runs.iter().map(|(_, run)| run);
    let changed = documents().find(|run| run.has_machine_changed());
    let certified = changed.or_else(|| documents().find(|run| run.certificate.is_some()));
    Ok(Document {
        schema: first.schema.clone(),
        tools: merge_tools(runs),
        summary: Summary::from_statuses(cases.iter().map(|case| case.result)),
        run: merge_facts(runs),
        begun: documents().map(|run| run.begun).sum(),
        warnings,
        flows,
        interrupted: documents().any(|run| run.interrupted),
        stopped: documents().find_map(|run| run.stopped),
        certificate: certified.and_then(|run| run.certificate.clone()),
        cases,
        not_run,
    })
}

/// Returns the items of all runs.
fn collect<T: Clone>(runs: &[NamedRun], items: impl Fn(&Document) -> &Vec<T>) -> Vec<T> {
    runs.iter()
        .flat_map(|(_, run)| items(run).clone())
        .collect()
}

fn shard_of(run: &Document) -> Option<&ShardFacts> {
    run.run.as_ref()?.shard.as_ref()
}

/// Checks that the runs are all shards of one run, or none is a shard. Returns the first shard.
fn check_shards(runs: &[NamedRun]) -> Result<Option<&ShardFacts>, MergeError> {
    let Some((first_name, first)) = runs.first() else {
        return Ok(None);
    };
    let first = shard_of(first);
    let selection = |shard: &ShardFacts| (shard.count, shard.cases.clone(), shard.flows.clone());
    let mut names: BTreeMap<usize, &str> = BTreeMap::new();
    for (name, run) in runs {
        let shard = shard_of(run);
        if shard.map(selection) != first.map(selection) {
            return Err(MergeError::OtherRun {
                first: first_name.clone(),
                other: name.clone(),
            });
        }
        let Some(shard) = shard else { continue };
        if let Some(known) = names.insert(shard.number, name) {
            return Err(MergeError::SameShard {
                first: known.to_owned(),
                other: name.clone(),
                number: shard.number,
                count: shard.count,
            });
        }
    }
    let count = first.map_or(0, |shard| shard.count);
    let missing: Vec<usize> = (1..=count)
        .filter(|number| !names.contains_key(number))
        .collect();
    if missing.is_empty() {
        Ok(first)
    } else {
        Err(MergeError::MissingShards { missing, count })
    }
}

/// Checks that no two runs have a result of the same case in the same kernel.
fn check_cases(runs: &[NamedRun]) -> Result<(), MergeError> {
    let mut known: HashMap<(&str, &str), usize> = HashMap::new();
    for (index, (name, run)) in runs.iter().enumerate() {
        for case in &run.cases {
            let key = (case.cli_name(), case.kernel.as_str());
            let earlier = known.insert(key, index);
            if let Some(earlier) = earlier.filter(|earlier| *earlier != index) {
                return Err(MergeError::SameCase {
                    first: runs[earlier].0.clone(),
                    other: name.clone(),
                    case: case.cli_name().to_owned(),
                    kernel: case.kernel.clone(),
                });
            }
        }
    }
    Ok(())
}

/// Returns the versions of all programs. Different versions of a program are joined.
fn merge_tools(runs: &[NamedRun]) -> BTreeMap<String, String> {
    let mut versions: BTreeMap<&String, BTreeSet<&str>> = BTreeMap::new();
    for (tool, version) in runs.iter().flat_map(|(_, run)| &run.tools) {
        versions.entry(tool).or_default().insert(version);
    }
    let joined = versions.into_iter();
    joined
        .map(|(tool, versions)| (tool.clone(), join(versions, "; ")))
        .collect()
}

/// Returns when and how the runs were made: the first start, the longest duration, and the first
/// command without its shard.
fn merge_facts(runs: &[NamedRun]) -> Option<RunFacts> {
    let facts = || runs.iter().filter_map(|(_, run)| run.run.as_ref());
    let command = &facts().next()?.command;
    let mut words = Vec::new();
    let mut rest = command.split(' ');
    while let Some(word) = rest.next() {
        match word {
            "--shard" => drop(rest.next()),
            word if word.starts_with("--shard=") => {}
            word => words.push(word),
        }
    }
    Some(RunFacts {
        started_at: facts().map(|facts| facts.started_at.clone()).min()?,
        duration_ms: facts().map(|facts| facts.duration_ms).max()?,
        jobs: facts().map(|facts| facts.jobs).max()?,
        command: words.join(" "),
        flaky_fails: facts().any(|facts| facts.flaky_fails),
        shard: None,
    })
}

/// Returns the part of a result that flow tables contain.
fn with_flows(case: &CaseDocument) -> CaseResult {
    let outcome = |flow: &FlowDocument| FlowOutcome {
        flow: flow.flow.clone(),
        from: flow.from.clone(),
        to: flow.to.clone(),
        seen: flow.seen.clone(),
        holds: flow.holds,
        // Tables have no expectations.
        expected: ProbeExpectation::default(),
        location: flow.location.clone(),
        because: flow.because.clone(),
        source: flow.source.clone(),
        covers: flow.covers.clone(),
    };
    CaseResult {
        result: case.result,
        flows: case.flows.iter().map(outcome).collect(),
        ..CaseResult::empty(&case.lab, &case.case)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_runner::results::{Results, fixture};

    /// Returns the results of a shard of a run with the cases `lab/n=0` to `lab/n=3`, of which shard
    /// `number` has every second.
    fn shard(number: usize) -> NamedRun {
        let names: Vec<String> = (0..4).map(|index| format!("lab/n={index}")).collect();
        let own = names.iter().skip(number - 1).step_by(2);
        let cases: Vec<CaseResult> = own.map(|name| fixture::passed(name)).collect();
        let tools = BTreeMap::from([("svclab".to_owned(), "0.1.0".to_owned())]);
        let mut results = Results::new(tools, cases);
        results.begun = Some(2);
        results.run = Some(RunFacts {
            started_at: format!("2026-11-26T09:31:2{number}Z"),
            duration_ms: 10 * number as u64,
            jobs: 16,
            command: format!("svclab run --shard {number}/2 lab"),
            flaky_fails: number == 2,
            shard: Some(ShardFacts {
                number,
                count: 2,
                cases: names,
                flows: Vec::new(),
            }),
        });
        (format!("shard-{number}.json"), Document::from(&results))
    }

    #[test]
    fn merge_shards_in_any_order_is_equal() {
        let merged = merge(&[shard(2), shard(1)]).expect("both shards");
        let names: Vec<&str> = merged.cases.iter().map(CaseDocument::cli_name).collect();
        assert_eq!(names, ["lab/n=0", "lab/n=1", "lab/n=2", "lab/n=3"]);
        assert_eq!((merged.begun, merged.summary.passed), (Some(4), 4));
        let facts = merged.run.as_ref().expect("facts");
        assert_eq!((facts.duration_ms, &*facts.command), (20, "svclab run lab"));
        assert!(facts.flaky_fails);
        assert_eq!(merged.exit_code(), 0);
        let other = merge(&[shard(1), shard(2)]).expect("both shards");
        assert_eq!(other, merged);
    }

    #[test]
    fn merge_contradictory_runs_are_refused() {
        let mut messages = Vec::new();
        let mut refuse = |runs: &[NamedRun]| {
            let error = merge(runs).expect_err("the runs contradict each other");
            messages.push(format!("{error}\n"));
        };
        refuse(&[]);
        refuse(&[shard(1)]);
        refuse(&[shard(1), shard(1)]);
        let mut whole = shard(2);
        whole.1.run.as_mut().expect("facts").shard = None;
        refuse(&[shard(1), whole.clone()]);
        let again = ("again.json".to_owned(), whole.1.clone());
        refuse(&[whole, again]);
        let mut old = shard(2);
        old.1.tools.insert("svclab".to_owned(), "0.0.9".to_owned());
        refuse(&[shard(1), old]);
        let mut incomplete = shard(2);
        incomplete.1.cases.pop();
        refuse(&[shard(1), incomplete]);
        let mut twice = shard(2);
        twice.1.cases.extend(shard(1).1.cases);
        refuse(&[shard(1), twice]);
        insta::assert_snapshot!(messages.concat());
    }
}
