//! Implements `svclab bisect`.

use super::sides::load_sides;
use crate::cli::args::{BisectArguments, BisectFormat};
use crate::cli::cases::explain::explain_sides;
use crate::cli::cases::run::run_options;
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::{print, print_json, print_message, print_note, terminal_width};
use crate::cli::progress::ProgressDisplay;
use crate::cli::report_output::{ReportOutput, answer};
use svclab_experiment::bisect::document::Trial;
use svclab_experiment::bisect::{
    BisectError, Bisection, Task, find, find_declarations, parallel_labs, requirements,
};
use svclab_report::bisect::{render_progress, render_text, render_trial, render_trials};
use svclab_report::{Additions, TerminalWidth};
use svclab_runner::kernel::{KernelChoice, KernelSelector};
use svclab_runner::results::RunError;

/// Finds the differences that separate good from bad, and prints them.
pub(crate) fn bisect(arguments: &BisectArguments) -> CommandResult {
    if arguments.kernels.choice() == KernelChoice::All {
        return Err(CliError::refused(
            "a bisection runs on one kernel",
            "select one with --kernel: host, or a version such as 6.12",
        ));
    }
    let report = ReportOutput::start(arguments.report.as_deref())?;
    let sides = load_sides(arguments)?;
    let [good, mut bad] = sides.cases;
    let mut found = run_interruptible(search(&sides.task, arguments))?;
    // Silent next hops can be the only cause, or one of several.
    let is_explained = found.is_ok() || is_indistinguishable(&found);
    if let Some(silent) = sides.if_silent.filter(|_| is_explained) {
        let (task, silent_bad) = *silent;
        let again = run_interruptible(search(&task, arguments));
        // An interruption of the second search must not cost the answer of the first.
        let again = if found.is_ok() {
            again.unwrap_or_else(Err)
        } else {
            again?
        };
        let names_more = match (&found, &again) {
            (Ok(found), Ok(again)) => again.names_more_than(found) && !found.names_more_than(again),
            _ => !is_indistinguishable(&again) && found.is_err(),
        };
        if names_more {
            (found, bad) = (again, silent_bad);
        }
    }
    let mut found = found?;
    if let Some(lab) = &sides.lab {
        found.declared_by = find_declarations(lab, &good, &bad, &found);
    }
    // An interruption while the report is made must not cost the answer.
    let printed = match arguments.format {
        BisectFormat::Human => print(&render_text(&found, terminal_width())),
        BisectFormat::Json => print_json(&found),
    };
    if let Some(report) = report {
        let found_text = render_text(&found, TerminalWidth::default());
        let text = format!("{found_text}\n{}", render_trials(&found));
        let answer = answer("svclab bisect".to_owned(), &text, &found)?;
        let options = run_options(None, false, arguments.kernels.choice());
        let both = vec![(good, "good"), (bad, "bad")];
        let (cases, additions) = explain_sides(both, sides.lab.is_some(), &options)?;
        let additions = Additions {
            answer: Some(answer),
            cases: additions,
        };
        report.write(additions, cases)?;
    }
    printed?;
    Ok(Outcome::SUCCESS)
}

fn is_indistinguishable(found: &Result<Bisection, CliError>) -> bool {
    matches!(
        found,
        Err(CliError::Bisect(BisectError::Indistinguishable { .. }))
    )
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
    let mut report_trial = |trial: &Trial| {
        number += 1;
        line.set_message(&render_progress(number, trial), || {
            if arguments.verbose {
                let text = render_trial(number, trial);
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
