//! Selects the cases of a run: named ones, those that failed in the last run, or a shard.

use std::collections::BTreeMap;
use std::path::Path;

use super::last_run::LastRun;
use crate::cli::args::{RunArguments, Shard};
use crate::cli::cases::labs::prepare_each_lab;
use crate::cli::error::CliError;
use svclab_report::folder::StoredRun;
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
    let mut known = BTreeMap::new();
    if let Some(path) = durations {
        let run = StoredRun::read(path).map_err(|error| {
            CliError::refused(
                error.to_string(),
                "give a file of `svclab run --format json`",
            )
        })?;
        // A case that ran in several kernels runs in all of them again.
        for case in &run.document.cases {
            let tries = case.failed_tries.iter().map(|earlier| earlier.duration_ms);
            *known.entry(case.cli_name().to_owned()).or_insert(0) +=
                tries.sum::<u64>() + case.duration_ms;
        }
    }
    let names: Vec<String> = cases.iter().map(rerun_name).collect();
    Ok(ShardSelection {
        number: shard.number,
        count: shard.count,
        is_selected: shard.select(&names, &known),
        names,
    })
}

/// Returns the name that selects a case again.
fn rerun_name(case: &RunInput) -> String {
    match case {
        Ok(prepared) => prepared.rerun_name(),
        Err(result) if result.named.is_empty() => result.case.clone(),
        Err(result) => result.named.clone(),
    }
}
