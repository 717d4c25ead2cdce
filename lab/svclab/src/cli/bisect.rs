//! Implements `svclab bisect`.

use std::io;
use std::path::Path;

use super::args::{BisectArguments, BisectFormat, Common};
use super::exit::Exit;
use super::interrupt::unless_interrupted;
use super::output::{note, print, print_json, refused, told};
use super::progress::Progress;
use super::sides::{Sides, sides, wrong};
use svclab_diagnostic::files;
use svclab_diagnostic::printable::{self, printable};
use svclab_experiment::bisect::Bisection;
use svclab_experiment::bisect::document::Trial;
use svclab_experiment::run::bisect::{BisectError, Task, find, needs, said_by, side_by_side};
use svclab_report::bisect::{human, line, narrowing, told_shortly};
use svclab_runner::kernel::{Choice, Kernels};
use svclab_runner::results::{RunError, Trouble};
use svclab_runner::run::{at_hand, trouble};

/// Finds the differences that separate good from bad, and prints them.
pub fn bisect(common: &Common, arguments: &BisectArguments) -> Exit {
    if arguments.place.choice() == Choice::All {
        return wrong(
            "what is tried stands on one kernel",
            "name one with --kernel: host, or a version such as 6.12",
        );
    }
    let Sides { task, cases } = match sides(common, arguments) {
        Ok(sides) => sides,
        Err(exit) => return exit,
    };
    match unless_interrupted(found(&task, arguments)) {
        Ok(Some(Ok(mut found))) => {
            if let Some((lab, [good, bad])) = &cases {
                found.said_by = said_by(lab, good, bad, &found);
            }
            end(&found, arguments)
        }
        Ok(Some(Err(error))) => told(&error),
        Ok(None) => {
            eprintln!("interrupted");
            Exit::Interrupted
        }
        Err(error) => refused(&error),
    }
}

fn end(found: &Bisection, arguments: &BisectArguments) -> Exit {
    if let Some(directory) = &arguments.report
        && let Err(error) = written(found, directory)
    {
        eprintln!(
            "error: cannot write the report to {}: {error}",
            directory.display()
        );
        return Exit::Of(Trouble::Machine.exit_code());
    }
    match arguments.format {
        BisectFormat::Human => print(&human(found)),
        BisectFormat::Json => print_json(found),
    }
}

fn written(found: &Bisection, directory: &Path) -> io::Result<()> {
    files::make_directory(directory)?;
    let json = serde_json::to_string_pretty(found).map_err(io::Error::other)?;
    for (name, text) in [
        ("answer.txt", printable(&human(found)).into_owned()),
        ("narrowing.txt", printable(&narrowing(found)).into_owned()),
        ("bisection.json", printable::json(&json) + "\n"),
    ] {
        files::write(&directory.join(name), |out| out.write_all(text.as_bytes()))?;
    }
    Ok(())
}

async fn found(task: &Task, arguments: &BisectArguments) -> Result<Bisection, RunError> {
    let needs = needs(task);
    let kernels = at_hand(
        Kernels::new(arguments.place.choice()).with_notice(note),
        &[&needs],
        Vec::new(),
        Vec::new(),
    );
    let kernels = kernels
        .of_plan(&needs)
        .await
        .map_err(|error| trouble(&error))?;
    let Some(kernel) = kernels.into_iter().next() else {
        return Err(RunError::no_kernel());
    };
    let agent = kernel.start().await.map_err(|error| trouble(&error))?;
    let mut number = 0;
    let mut progress = Progress::of_trials();
    let shown = progress.line();
    let mut tell = |trial: &Trial, differences: usize| {
        number += 1;
        let words = told_shortly(number, trial, differences);
        shown.say(&words, || {
            if arguments.verbose {
                eprintln!("{}", line(number, trial, differences));
            }
        });
    };
    let labs = side_by_side(task, kernel.room());
    let found = {
        let mut finding = std::pin::pin!(find(task, &agent, labs, &mut tell));
        tokio::select! {
            found = &mut finding => found,
            () = progress.show() => finding.await,
        }
    };
    drop(progress);
    found.map_err(|error| match &error {
        BisectError::Kernel(kernel) => trouble(kernel),
        BisectError::Unsteady { .. } => run_error(Trouble::Machine, &error),
        _ => run_error(Trouble::Input, &error),
    })
}

fn run_error(trouble: Trouble, error: &BisectError) -> RunError {
    RunError {
        trouble,
        message: error.to_string(),
        remedy: error.remedy(),
    }
}
