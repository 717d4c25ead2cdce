//! Implements `svclab why`.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::mpsc;

use super::explain::explain_cases;
use super::labs::load_each_lab;
use super::run::run_options;
use crate::cli::args::{WhyArguments, WhyFormat};
use crate::cli::error::{CliError, CommandResult, Outcome, outcome_of_cases};
use crate::cli::input::dumps::{read_dump_arguments, warn_unread};
use crate::cli::input::nodes::dumps_by_node;
use crate::cli::input::verdict::require_whole_tables;
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::{
    has_colour_on_stdout, print, print_case_error, print_diagnostics, print_json, print_note,
    terminal_width,
};
use crate::cli::progress::ProgressDisplay;
use crate::cli::report_output::{ReportOutput, answer, reported_cases};
use svclab_dump::Gap;
use svclab_experiment::Progress;
use svclab_experiment::why::{self, Finding, WhyRequest};
use svclab_model::plan::MaxWait;
use svclab_report::why::{Document, render_first_fix, render_text};
use svclab_report::{Additions, TerminalWidth};
use svclab_runner::results::{ErrorKind, RunError};
use svclab_runner::run::{
    LabResult, PrepareOptions, Prepared, RunOptions, prepare_case, unknown_probe_error,
};
use svclab_scenario::expectation::ProbeExpectation;

/// Finds changes that fix the selected cases, and prints them.
pub(crate) fn find_fixes(arguments: &WhyArguments) -> CommandResult {
    let places = arguments
        .source
        .labs()
        .with_outside(arguments.allow_outside);
    let labs = load_each_lab(&arguments.names, places)?;
    // Errors of invalid labs are already printed.
    let mut invalid = labs.iter().filter_map(|lab| lab.as_ref().err());
    let mut worst = invalid.next().map(|wrong| wrong.error.kind);
    let requests = prepare_requests(&labs, arguments, &mut worst)?;
    let reports = requests
        .iter()
        .flat_map(|request| &request.prepared.replay_reports);
    // Several cases can have the same dump.
    let unread = reports.flat_map(|report| &report.unread);
    let unread: BTreeSet<String> = unread.map(Gap::describe).collect();
    warn_unread(unread);
    if requests.is_empty() {
        return match worst {
            Some(kind) => Ok(Outcome::from_code(kind.exit_code())),
            None => Err(CliError::nothing_selected()),
        };
    }
    check_wanted(&requests, arguments)?;
    let options = run_options(None, false, arguments.kernels.choice());
    let report = ReportOutput::start(arguments.report.as_deref())?;
    let prepared: Vec<Prepared> = requests
        .iter()
        .filter(|_| report.is_some())
        .map(|request| request.prepared.clone())
        .collect();
    // The answer explains the packets that the report shows.
    let (mut recorded, mut unrecorded) = (Vec::new(), Vec::new());
    for result in explain_cases(prepared, &options)? {
        match result {
            Ok(case) => recorded.push(case),
            Err(error) => unrecorded.push(error),
        }
    }
    let mut cases = Vec::new();
    for result in run_interruptible(search(requests, &options, arguments.timeout))? {
        match result {
            Ok(mut findings) => {
                for finding in &mut findings {
                    for case in &recorded {
                        finding.explain_by(case);
                    }
                }
                cases.extend(findings);
            }
            Err((case, error)) => {
                // One message for a case suffices.
                unrecorded.retain(|(other, _)| *other != case);
                print_case_error(&case, &error);
                worst = worst.max(Some(error.kind));
            }
        }
    }
    for (case, error) in unrecorded {
        print_case_error(&case, &error);
        worst = worst.max(Some(error.kind));
    }
    let outcome = Outcome::passed_if(cases.iter().all(Finding::is_conclusive));
    let text = |width| render_text(&cases, arguments.verbose, has_colour_on_stdout(), width);
    let document = Document::new(cases.clone());
    let printed = match arguments.format {
        WhyFormat::Human => print(&text(terminal_width())),
        WhyFormat::Json => print_json(&document),
    };
    if let Some(report) = report {
        let title = format!("svclab why {}", arguments.names.join(" "));
        let additions = Additions::of_why(
            answer(title, &text(TerminalWidth::default()), &document)?,
            &cases,
        );
        let (reported, _) = reported_cases(recorded, true);
        report.write(additions, reported)?;
    }
    outcome_of_cases(printed, worst, outcome)
}

/// Prepares the selected cases. Problems of a case are printed, and `worst` becomes the worst of
/// their errors.
fn prepare_requests<'l>(
    labs: &'l [LabResult],
    arguments: &WhyArguments,
    worst: &mut Option<ErrorKind>,
) -> Result<Vec<WhyRequest<'l>>, CliError> {
    let dumps = read_dump_arguments(&arguments.dump, arguments.lenient)?;
    let mut requests = Vec::new();
    for lab in labs.iter().flatten() {
        for index in &lab.cases {
            let case = &lab.scenario.cases()[*index];
            let options = PrepareOptions {
                dumps: dumps_by_node(case, dumps.clone())?,
                allow_outside: arguments.allow_outside,
                ..PrepareOptions::from(MaxWait::SETTLED)
            };
            match prepare_case(lab, case, options.clone()) {
                Ok(prepared) => {
                    require_whole_tables(&prepared.replay_reports)?;
                    requests.push(WhyRequest {
                        lab,
                        prepared,
                        wishes: options,
                        probe: arguments.probe.clone(),
                        wanted: wanted_result(arguments),
                    });
                }
                Err(wrong) => {
                    print_diagnostics(&lab.scenario.sources, &wrong.diagnostics);
                    *worst = worst.take().max(wrong.result.error.map(|error| error.kind));
                }
            }
        }
    }
    Ok(requests)
}

/// Checks that the cases have the probe and the source that the arguments name.
fn check_wanted(requests: &[WhyRequest<'_>], arguments: &WhyArguments) -> Result<(), CliError> {
    if let Some(probe_name) = &arguments.probe {
        let probes = || {
            requests
                .iter()
                .flat_map(|request| request.prepared.plan.probes())
        };
        if !probes().any(|probe| probe.name == *probe_name) {
            return Err(unknown_probe_error(probe_name, probes()).into());
        }
    }
    if let Some(name) = &arguments.seen_source {
        for request in requests {
            check_source(request, name)?;
        }
    }
    Ok(())
}

/// Returns the result that the probe should have; `None` if the arguments state none.
fn wanted_result(arguments: &WhyArguments) -> Option<ProbeExpectation> {
    let wanted = ProbeExpectation {
        endpoints: (!arguments.endpoint.is_empty()).then(|| arguments.endpoint.clone()),
        seen_source: arguments.seen_source.clone(),
        ..ProbeExpectation::default()
    };
    (!wanted.is_empty()).then_some(wanted)
}

/// Checks that a source has an address at some stage of a case.
fn check_source(request: &WhyRequest<'_>, name: &str) -> Result<(), CliError> {
    let mut addresses = request.prepared.books().map(|book| book.addresses(name));
    let first = addresses.next().unwrap_or_else(|| Ok(BTreeSet::new()));
    match first {
        Err(error) if !addresses.any(|found| found.is_ok()) => Err(RunError {
            kind: ErrorKind::Input,
            message: error.message,
            remedy: error.help,
        }
        .into()),
        _ => Ok(()),
    }
}

/// Runs the search for all cases, and shows the progress on a terminal.
async fn search(
    requests: Vec<WhyRequest<'_>>,
    options: &RunOptions,
    limit: Duration,
) -> Vec<Result<Vec<Finding>, (String, RunError)>> {
    let (sender, mut stages) = mpsc::unbounded_channel();
    let mut progress = ProgressDisplay::new();
    progress.set_total(requests.len());
    let watching = async {
        loop {
            let stage = tokio::select! {
                stage = stages.recv() => stage,
                () = progress.show() => continue,
            };
            match stage {
                Some(Progress::Started(case)) => progress.on_case_started(&case),
                Some(Progress::Fixed {
                    case,
                    probe,
                    changes,
                }) => {
                    progress.suspend(|| print_note(&render_first_fix(&case, &probe, &changes)));
                }
                Some(Progress::Ended(case)) => progress.on_case_ended(&case),
                None => return,
            }
        }
    };
    let finding = async {
        // Dropping the sender ends the progress loop.
        let found = why::find_fixes(requests, options, limit, |stage| {
            drop(sender.send(stage));
        })
        .await;
        drop(sender);
        found
    };
    tokio::join!(finding, watching).0
}
