//! Implements `svclab bisect`.

use std::io;
use std::path::Path;

use super::sides::{Sides, input_error, load_sides};
use crate::cli::args::{BisectArguments, BisectFormat, Common};
use crate::cli::exit::Exit;
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::{print, print_error, print_json, print_note, print_start_error};
use crate::cli::progress::Progress;
use svclab_diagnostic::files;
use svclab_diagnostic::printable::{self, printable};
use svclab_experiment::bisect::Bisection;
use svclab_experiment::bisect::document::Trial;
use svclab_experiment::run::bisect::{
    BisectError, Task, find, find_declarations, parallel_labs, requirements,
};
use svclab_report::bisect::{render_progress, render_text, render_trial, render_trials};
use svclab_runner::kernel::{KernelChoice, KernelSelector};
use svclab_runner::results::{ErrorKind, RunError};
use svclab_runner::run::{to_run_error, with_plan_programs};

/// Finds the differences that separate good from bad, and prints them.
pub fn bisect(common: &Common, arguments: &BisectArguments) -> Exit {
    if arguments.kernels.choice() == KernelChoice::All {
        return input_error(
            "a bisection runs on one kernel",
            "select one with --kernel: host, or a version such as 6.12",
        );
    }
    let Sides { task, cases } = match load_sides(common, arguments) {
        Ok(sides) => sides,
        Err(exit) => return exit,
    };
    match run_interruptible(search(&task, arguments)) {
        Ok(Some(Ok(mut found))) => {
            if let Some((lab, [good, bad])) = &cases {
                found.declared_by = find_declarations(lab, good, bad, &found);
            }
            print_result(&found, arguments)
        }
        Ok(Some(Err(error))) => print_error(&error),
        Ok(None) => {
            eprintln!("interrupted");
            Exit::Interrupted
        }
        Err(error) => print_start_error(&error),
    }
}

fn print_result(bisection: &Bisection, arguments: &BisectArguments) -> Exit {
    if let Some(directory) = &arguments.report
        && let Err(error) = write_report(bisection, directory)
    {
        eprintln!(
            "error: cannot write the report to {}: {error}",
            directory.display()
        );
        return Exit::Code(ErrorKind::Machine.exit_code());
    }
    match arguments.format {
        BisectFormat::Human => print(&render_text(bisection)),
        BisectFormat::Json => print_json(bisection),
    }
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

async fn search(task: &Task, arguments: &BisectArguments) -> Result<Bisection, RunError> {
    let needs = requirements(task);
    let kernels = with_plan_programs(
        KernelSelector::new(arguments.kernels.choice()).with_notice(print_note),
        &[&needs],
        Vec::new(),
        Vec::new(),
    );
    let kernels = kernels
        .for_plan(&needs)
        .await
        .map_err(|error| to_run_error(&error))?;
    let Some(kernel) = kernels.into_iter().next() else {
        return Err(RunError::no_kernel());
    };
    let agent = kernel.start().await.map_err(|error| to_run_error(&error))?;
    let mut number = 0;
    let mut progress = Progress::for_trials();
    let shown = progress.handle();
    let mut report_trial = |trial: &Trial, differences: usize| {
        number += 1;
        let words = render_progress(number, trial, differences);
        shown.set_message(&words, || {
            if arguments.verbose {
                eprintln!("{}", render_trial(number, trial, differences));
            }
        });
    };
    let labs = parallel_labs(task, kernel.lab_memory());
    let result = {
        let mut finding = std::pin::pin!(find(task, &agent, labs, &mut report_trial));
        tokio::select! {
            found = &mut finding => found,
            () = progress.show() => finding.await,
        }
    };
    drop(progress);
    result.map_err(|error| match &error {
        BisectError::Kernel(kernel) => to_run_error(kernel),
        BisectError::Unstable { .. } => bisect_error(ErrorKind::Machine, &error),
        _ => bisect_error(ErrorKind::Input, &error),
    })
}

fn bisect_error(trouble: ErrorKind, error: &BisectError) -> RunError {
    RunError {
        kind: trouble,
        message: error.to_string(),
        remedy: error.help(),
    }
}
