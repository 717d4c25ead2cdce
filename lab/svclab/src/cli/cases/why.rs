//! Implements `svclab why`.

use tokio::sync::mpsc;

use super::labs::{load_each_lab, print_diagnostics};
use super::run::run_options;
use crate::cli::args::{Common, WhyArguments, WhyFormat};
use crate::cli::dumps::replay::{dumps_by_node, read_dump_arguments};
use crate::cli::exit::Exit;
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::{has_colour_on_stdout, print, print_error, print_json, print_start_error};
use crate::cli::progress::Progress;
use svclab_experiment::run::why::{self, WhyRequest};
use svclab_experiment::why::{Document, Finding};
use svclab_model::plan::MaxWait;
use svclab_report::why::render_text;
use svclab_runner::results::RunError;
use svclab_runner::run::{PrepareOptions, RunOptions, prepare_case, unknown_probe_error};

/// Finds changes that fix the selected cases, and prints them.
pub fn find_fixes(common: &Common, arguments: &WhyArguments) -> Exit {
    let labs = match load_each_lab(&arguments.names, &common.topologies) {
        Ok(labs) => labs,
        Err(exit) => return exit,
    };
    // Errors of invalid labs are already printed.
    let mut worst = labs.iter().filter_map(|lab| lab.as_ref().err());
    let mut worst = worst.next().map(|wrong| wrong.error.kind);
    let dumps = match read_dump_arguments(&arguments.dump, arguments.lenient) {
        Ok(dumps) => dumps,
        Err(exit) => return exit,
    };
    let mut requests = Vec::new();
    for lab in labs.iter().flatten() {
        for at in &lab.cases {
            let case = &lab.scenario.cases()[*at];
            let wishes = match dumps_by_node(case, dumps.clone()) {
                Ok(dumps) => PrepareOptions {
                    dumps,
                    allow_outside: arguments.allow_outside,
                    ..PrepareOptions::from(MaxWait::SETTLED)
                },
                Err(exit) => return exit,
            };
            match prepare_case(lab, case, wishes.clone()) {
                Ok(prepared) => requests.push(WhyRequest {
                    lab,
                    prepared,
                    wishes,
                    probe: arguments.probe.clone(),
                }),
                Err(wrong) => {
                    print_diagnostics(&lab.scenario.sources, &wrong.diagnostics);
                    worst = worst.max(wrong.result.error.map(|error| error.kind));
                }
            }
        }
    }
    if requests.is_empty() {
        if let Some(trouble) = worst {
            return Exit::Code(trouble.exit_code());
        }
        eprintln!("error: nothing was selected");
        return Exit::Nothing;
    }
    if let Some(probe_name) = &arguments.probe {
        let probes = || {
            requests
                .iter()
                .flat_map(|request| &request.prepared.plan.probes)
        };
        if !probes().any(|probe| probe.name == *probe_name) {
            return print_error(&unknown_probe_error(probe_name, probes()));
        }
    }
    let options = run_options(None, false, arguments.kernels.choice());
    let results = match run_interruptible(search(requests, &options)) {
        Ok(Some(found)) => found,
        Ok(_) => {
            eprintln!("interrupted");
            return Exit::Interrupted;
        }
        Err(error) => return print_start_error(&error),
    };
    let mut cases = Vec::new();
    for result in results {
        match result {
            Ok(findings) => cases.extend(findings),
            Err((case, error)) => {
                eprintln!("error: {case}: {}", error.message);
                if let Some(remedy) = &error.remedy {
                    eprintln!("  help: {remedy}");
                }
                worst = worst.max(Some(error.kind));
            }
        }
    }
    let answered = cases.iter().all(Finding::is_answered);
    let printed = match arguments.format {
        WhyFormat::Human => print(&render_text(
            &cases,
            arguments.verbose,
            has_colour_on_stdout(),
        )),
        WhyFormat::Json => print_json(&Document::new(cases)),
    };
    match (worst, printed) {
        (Some(trouble), _) => Exit::Code(trouble.exit_code()),
        (None, Exit::Success) if !answered => Exit::Failed,
        (None, printed) => printed,
    }
}

/// Runs the search for all cases, and shows the progress on a terminal.
async fn search(
    requests: Vec<WhyRequest<'_>>,
    options: &RunOptions,
) -> Vec<Result<Vec<Finding>, (String, RunError)>> {
    let (sender, mut stages) = mpsc::unbounded_channel();
    let mut progress = Progress::new();
    progress.set_total(requests.len());
    let watching = async {
        loop {
            let stage = tokio::select! {
                stage = stages.recv() => stage,
                () = progress.show() => continue,
            };
            match stage {
                Some(why::Progress::Started(case)) => progress.on_case_started(&case),
                Some(why::Progress::Ended(case)) => progress.on_case_ended(&case),
                None => return,
            }
        }
    };
    let finding = async {
        // Dropping the sender ends the progress loop.
        let found = why::find_fixes(requests, options, |stage| drop(sender.send(stage))).await;
        drop(sender);
        found
    };
    tokio::join!(finding, watching).0
}
