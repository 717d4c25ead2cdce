//! Implements `svclab bisect`.

use std::io;
use std::path::Path;

use super::sides::{Sides, load_sides};
use crate::cli::args::{BisectArguments, BisectFormat, Common};
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::{print, print_json, print_message, print_note};
use crate::cli::progress::ProgressDisplay;
use svclab_diagnostic::files;
use svclab_diagnostic::printable::{self, printable};
use svclab_experiment::bisect::document::Trial;
use svclab_experiment::bisect::{
    Bisection, Task, find, find_declarations, parallel_labs, requirements,
};
use svclab_report::bisect::{render_progress, render_text, render_trial, render_trials};
use svclab_runner::kernel::{KernelChoice, KernelSelector};
use svclab_runner::results::RunError;

/// Finds the differences that separate good from bad, and prints them.
pub(crate) fn bisect(common: &Common, arguments: &BisectArguments) -> CommandResult {
    if arguments.kernels.choice() == KernelChoice::All {
        return Err(CliError::refused(
            "a bisection runs on one kernel",
            "select one with --kernel: host, or a version such as 6.12",
        ));
    }
    let Sides { task, cases } = load_sides(common, arguments)?;
    let mut found = run_interruptible(search(&task, arguments))??;
    if let Some((lab, [good, bad])) = &cases {
        found.declared_by = find_declarations(lab, good, bad, &found);
    }
    if let Some(directory) = &arguments.report {
        write_report(&found, directory).map_err(|source| CliError::Write {
            target: format!("the report to {}", directory.display()),
            source,
            help: None,
        })?;
    }
    match arguments.format {
        BisectFormat::Human => print(&render_text(&found))?,
        BisectFormat::Json => print_json(&found)?,
    }
    Ok(Outcome::SUCCESS)
}

fn write_report(bisection: &Bisection, directory: &Path) -> io::Result<()> {
    files::create_output_directory(directory)?;
    let json = serde_json::to_string_pretty(bisection).map_err(io::Error::other)?;
    for (name, text) in [
        (
            "answer.txt",
            printable(&render_text(bisection)).into_owned(),
        ),
        (
            "narrowing.txt",
            printable(&render_trials(bisection)).into_owned(),
        ),
        ("bisection.json", printable::escape_json(&json) + "\n"),
    ] {
        files::write_file(&directory.join(name), |out| out.write_all(text.as_bytes()))?;
    }
    Ok(())
}

async fn search(task: &Task, arguments: &BisectArguments) -> Result<Bisection, CliError> {
    let needs = requirements(task);
    let kernels = KernelSelector::new(arguments.kernels.choice())
        .with_notice(print_note)
        .with_plans([&needs]);
    let kernels = kernels.for_plan(&needs).await?;
    let Some(kernel) = kernels.into_iter().next() else {
        return Err(RunError::no_kernel().into());
    };
    let agent = kernel.start().await?;
    let mut number = 0;
    let mut progress = ProgressDisplay::for_trials();
    let line = progress.handle();
    let mut report_trial = |trial: &Trial, differences: usize| {
        number += 1;
        line.set_message(&render_progress(number, trial, differences), || {
            if arguments.verbose {
                let text = render_trial(number, trial, differences);
                print_message(format_args!("{text}"));
            }
        });
    };
    let labs = parallel_labs(task, kernel.lab_memory());
    let mut finding = std::pin::pin!(find(task, &agent, labs, &mut report_trial));
    let found = tokio::select! {
        found = &mut finding => found,
        () = progress.show() => finding.await,
    };
    Ok(found?)
}
