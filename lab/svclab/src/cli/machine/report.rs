//! Implements `svclab report`.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::cli::args::ReportArguments;
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::output::{print, print_message};
use svclab_report::compare::compare;
use svclab_report::folder::{PageError, PageTarget, StoredRun, StoredRunError, write_page};

/// Makes one page about finished runs, and compares them with earlier runs.
pub(crate) fn report(arguments: &ReportArguments) -> CommandResult {
    let runs = read_runs(&arguments.runs)?;
    let baselines = read_runs(&arguments.baseline)?;
    let comparison = (!baselines.is_empty()).then(|| {
        let names: Vec<String> = baselines
            .iter()
            .map(|run| run.path.display().to_string())
            .collect();
        let [before, after] = [&baselines, &runs]
            .map(|runs| runs.iter().map(|run| &run.document).collect::<Vec<_>>());
        compare(&names.join(" and "), &before, &after)
    });
    let target = PageTarget::from_path(&arguments.output);
    write_page(&runs, &baselines, comparison.as_ref(), target).map_err(|error| match error {
        PageError::Evidence(error) => unreadable(&error),
        PageError::Write(error) => CliError::Report(error),
    })?;
    if let Some(comparison) = &comparison {
        print(&comparison.render_text())?;
    }
    print_message(format_args!("wrote {}", arguments.output.display()));
    let is_worse = comparison.is_some_and(|comparison| {
        !comparison.new_failures.is_empty() || !comparison.missing.is_empty()
    });
    Ok(Outcome::passed_if(!is_worse))
}

/// Reads runs. Two runs with one path would have the same name.
pub(super) fn read_runs(paths: &[PathBuf]) -> Result<Vec<StoredRun>, CliError> {
    let mut names = HashSet::new();
    for path in paths {
        if !names.insert(path) {
            return Err(CliError::refused(
                format!("{} is named twice", path.display()),
                "name each run once",
            ));
        }
    }
    let runs = paths.iter().map(|path| StoredRun::read(path));
    runs.collect::<Result<_, StoredRunError>>()
        .map_err(|error| unreadable(&error))
}

fn unreadable(error: &StoredRunError) -> CliError {
    CliError::refused(
        error.to_string(),
        "give a directory of `svclab run --report`, or a file of `svclab run --format json`",
    )
}
