//! Implements `svclab run --watch`: runs again when a file of the labs changes.

use std::time::Duration;

use super::changes::{Statuses, render_changes, statuses};
use super::watched_files::{Watcher, files_of};
use super::{EndedRound, Round};
use crate::cli::args::RunArguments;
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::interrupt::Interrupts;
use crate::cli::output::{print, print_error, print_message};
use svclab_report::Format;

/// Time without a further change after which a run starts. Editors write a file in several steps,
/// and version control changes several files.
const QUIET_TIME: Duration = Duration::from_millis(100);

/// Runs the cases, and again after each change of their files, until the user interrupts. The
/// outcome is that of the last run.
pub(super) async fn run_repeatedly(arguments: &RunArguments) -> CommandResult {
    check_arguments(arguments)?;
    let mut interrupts = Interrupts::listen();
    let mut watcher = Watcher::new().map_err(|error| watch_error(&error))?;
    let mut before: Option<Statuses> = None;
    let mut outcome = None;
    loop {
        // Files are watched before they are read, so that no change is missed.
        watcher
            .add(files_of(arguments))
            .map_err(|error| watch_error(&error))?;
        let round = Round::prepare(arguments);
        if round.is_ok() && watcher.is_empty() {
            return Err(CliError::refused(
                "the embedded labs cannot change",
                "copy one with `svclab labs show NAME > my-lab.yaml`, and watch the copy",
            ));
        }
        let ended = match round {
            Ok(round) => Ok(Box::pin(round.run(false, &mut interrupts)).await),
            Err(error) => Err(error),
        };
        match ended.and_then(|round| finish(round, arguments, &mut before)) {
            Ok((ended, is_interrupted)) => {
                outcome = Some(ended);
                if is_interrupted {
                    return Ok(ended);
                }
            }
            // Nothing is known about the labs that the user names.
            Err(error) if outcome.is_none() => return Err(error),
            Err(error) => {
                print_error(&error);
                outcome = Some(Outcome::from_code(error.exit_code()));
            }
        }
        if !arguments.quiet {
            print_message(format_args!(
                "waiting for changes of {}; Ctrl-C ends",
                watcher.describe()
            ));
        }
        let changed = tokio::select! {
            biased;
            () = interrupts.next() => return Ok(outcome.unwrap_or(Outcome::SUCCESS)),
            changed = watcher.changed(QUIET_TIME) => changed.map_err(|error| watch_error(&error))?,
        };
        if !arguments.quiet {
            print_message(format_args!("\nchanged: {}", changed.join(", ")));
        }
    }
}

/// Prints what changed since the previous run. Also returns whether the run was interrupted.
fn finish(
    round: EndedRound,
    arguments: &RunArguments,
    before: &mut Option<Statuses>,
) -> Result<(Outcome, bool), CliError> {
    let is_interrupted = round.results.interrupted;
    let now = statuses(&round.results);
    let outcome = round.finish(arguments)?;
    if !is_interrupted {
        let earlier = before.replace(now.clone());
        print(&earlier.map_or_else(String::new, |earlier| render_changes(&earlier, &now)))?;
    }
    Ok((outcome, is_interrupted))
}

/// Refuses arguments that have no meaning for repeated runs.
fn check_arguments(arguments: &RunArguments) -> Result<(), CliError> {
    let names = &arguments.selection.names;
    if names
        .iter()
        .any(|name| name == "-" || name.starts_with("-/"))
    {
        return Err(CliError::refused(
            "standard input cannot be watched",
            "give the path of a lab's file",
        ));
    }
    if arguments.format != Format::Human {
        return Err(CliError::refused(
            "--watch prints text",
            "write other formats to files: --write FORMAT=FILE; each run replaces them",
        ));
    }
    Ok(())
}

fn watch_error(error: &std::io::Error) -> CliError {
    CliError::refused(
        format!("cannot watch the files of the labs: {error}"),
        "end other programs that watch files, or raise fs.inotify.max_user_instances",
    )
}
