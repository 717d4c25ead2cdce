//! Implements `svclab merge`.

use std::io;
use std::time::Duration;

use super::report::read_runs;
use crate::cli::args::MergeArguments;
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::output::{check_output, has_colour_on_stdout, is_read_by_runner, terminal_width};
use svclab_diagnostic::files::write_file;
use svclab_report::results::Document;
use svclab_report::{Format, Options, merge as report_merge};

/// Merges the results of several runs and prints them, or writes them to a file.
pub(crate) fn merge(arguments: &MergeArguments) -> CommandResult {
    let runs = read_runs(&arguments.runs)?.into_iter();
    let runs: Vec<(String, Document)> = runs
        .map(|run| (run.path.display().to_string(), run.document))
        .collect();
    let merged = report_merge::merge(&runs).map_err(|error| {
        CliError::refused(
            format!("cannot merge the results: {error}"),
            "give the results of each shard of one run, each once",
        )
    })?;
    let duration = merged.run.as_ref().map_or(0, |run| run.duration_ms);
    let duration = Duration::from_millis(duration);
    let format = Format::from(arguments.format);
    let write =
        |out: &mut dyn io::Write, options| format.writer(out, options).document(&merged, duration);
    if let Some(file) = &arguments.output {
        let written = write_file(file, |out| write(out, Options::default()));
        written.map_err(|source| CliError::Write {
            target: file.display().to_string(),
            source,
            help: Some("give a writable file"),
        })?;
    } else {
        let options = Options {
            colour: has_colour_on_stdout(),
            width: terminal_width(),
            is_read_by_runner: is_read_by_runner(),
            ..Options::default()
        };
        check_output(write(&mut io::stdout(), options))?;
    }
    Ok(Outcome::from_code(merged.exit_code()))
}
