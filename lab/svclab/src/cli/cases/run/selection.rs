//! Selects the cases of a run: named ones, those that failed in the last run, or a shard.

use std::collections::BTreeMap;
use std::path::Path;

use super::last_run::LastRun;
use crate::cli::args::{RunArguments, Shard};
use crate::cli::cases::labs::prepare_each_lab;
use crate::cli::error::CliError;
use crate::cli::output::print_diagnostics;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Sources;
use svclab_report::folder::{StoredRun, StoredRunError};
use svclab_runner::run::{RunInput, ShardSelection};

/// Loads and prepares the cases to run.
pub(super) fn select_cases(arguments: &RunArguments) -> Result<Vec<RunInput>, CliError> {
    let mut selection = arguments.selection.clone();
    let last = arguments.last_failed.then(LastRun::read).transpose()?;
    if let Some(last) = last.as_ref().filter(|_| selection.names.is_empty()) {
        selection.names.clone_from(&last.failed);
    }
    let labs = prepare_each_lab(&selection)?;
    let mut cases: Vec<RunInput> = labs.into_iter().flat_map(|lab| lab.cases).collect();
    if let Some(last) = last {
        cases.retain(|case| last.failed.contains(&rerun_name(case)));
        if cases.is_empty() {
            return Err(CliError::NothingSelected {
                message: "none of the selected cases failed in the last run".to_owned(),
                help: Some("omit the names, to run all that failed".to_owned()),
            });
        }
    }
    Ok(cases)
}

/// Selects the cases of a shard, by the durations of an earlier run if there is one.
pub(super) fn select_shard(
    shard: Shard,
    durations: Option<&Path>,
    cases: &[RunInput],
) -> Result<ShardSelection, CliError> {
    let known = durations.map(read_durations).transpose()?;
    let known = known.unwrap_or_default();
    let names: Vec<String> = cases.iter().map(rerun_name).collect();
    Ok(ShardSelection {
        number: shard.number,
        count: shard.count,
        is_selected: shard.select(&names, &known),
        names,
    })
}

/// Returns the durations of cases in an earlier run, in milliseconds. Those of another version of
/// svclab are unknown: a CI cache may contain them, and all shards get the same file.
fn read_durations(path: &Path) -> Result<BTreeMap<String, u64>, CliError> {
    let run = match StoredRun::read(path) {
        Ok(run) => run,
        Err(error @ StoredRunError::Schema { .. }) => {
            let help = "the parts have equal numbers of cases, as without `--durations`";
            let warning = Diagnostic::warning(error.to_string()).with_help(help);
            print_diagnostics(&Sources::default(), &[warning]);
            return Ok(BTreeMap::new());
        }
        Err(error) => {
            let help = "give a file of `svclab run --format json`";
            return Err(CliError::refused(error.to_string(), help));
        }
    };
    let mut known = BTreeMap::new();
    // A case that ran in several kernels runs in all of them again.
    for case in &run.document.cases {
        let tries = case.failed_tries.iter().map(|earlier| earlier.duration_ms);
        *known.entry(case.cli_name().to_owned()).or_insert(0) +=
            tries.sum::<u64>() + case.duration_ms;
    }
    Ok(known)
}

/// Returns the name that selects a case again.
fn rerun_name(case: &RunInput) -> String {
    match case {
        Ok(prepared) => prepared.rerun_name(),
        Err(result) if result.named.is_empty() => result.case.clone(),
        Err(result) => result.named.clone(),
    }
}
