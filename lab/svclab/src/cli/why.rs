//! Implements `svclab why`.

use tokio::sync::mpsc;

use super::args::{Common, WhyArguments, WhyFormat};
use super::exit::Exit;
use super::interrupt::unless_interrupted;
use super::labs::{chosen_each, tell};
use super::output::{colour, print, print_json, refused, told};
use super::progress::Progress;
use super::replay::{by_node, read_all};
use super::run::options;
use svclab_experiment::run::why::{Asked, Stage, why};
use svclab_experiment::why::{Document, Finding};
use svclab_model::plan::Patience;
use svclab_report::why::human;
use svclab_runner::results::RunError;
use svclab_runner::run::{Options, Wishes, no_such_probe, prepare_or_tell};

/// Finds changes that fix the selected cases, and prints them.
pub fn find(common: &Common, arguments: &WhyArguments) -> Exit {
    let labs = match chosen_each(&arguments.names, &common.topologies) {
        Ok(labs) => labs,
        Err(exit) => return exit,
    };
    // Errors of invalid labs are already printed.
    let mut worst = labs.iter().filter_map(|lab| lab.as_ref().err());
    let mut worst = worst.next().map(|wrong| wrong.error.trouble);
    let dumps = match read_all(&arguments.dump, arguments.lenient) {
        Ok(dumps) => dumps,
        Err(exit) => return exit,
    };
    let mut asked = Vec::new();
    for lab in labs.iter().flatten() {
        for at in &lab.cases {
            let case = &lab.scenario.cases()[*at];
            let wishes = match by_node(case, dumps.clone()) {
                Ok(dumps) => Wishes {
                    dumps,
                    allow_outside: arguments.allow_outside,
                    ..Wishes::from(Patience::SETTLED)
                },
                Err(exit) => return exit,
            };
            match prepare_or_tell(lab, case, wishes.clone()) {
                Ok(prepared) => asked.push(Asked {
                    lab,
                    prepared,
                    wishes,
                    probe: arguments.probe.clone(),
                }),
                Err(wrong) => {
                    tell(&lab.scenario.sources, &wrong.diagnostics);
                    worst = worst.max(wrong.result.error.map(|error| error.trouble));
                }
            }
        }
    }
    if asked.is_empty() {
        if let Some(trouble) = worst {
            return Exit::Of(trouble.exit_code());
        }
        eprintln!("error: nothing was selected");
        return Exit::Nothing;
    }
    if let Some(wanted) = &arguments.probe {
        let probes = || asked.iter().flat_map(|asked| &asked.prepared.plan.probes);
        if !probes().any(|probe| probe.name == *wanted) {
            return told(&no_such_probe(wanted, probes()));
        }
    }
    let options = options(None, false, arguments.place.choice());
    let found = match unless_interrupted(found(asked, &options)) {
        Ok(Some(found)) => found,
        Ok(_) => {
            eprintln!("interrupted");
            return Exit::Interrupted;
        }
        Err(error) => return refused(&error),
    };
    let mut cases = Vec::new();
    for one in found {
        match one {
            Ok(findings) => cases.extend(findings),
            Err((case, error)) => {
                eprintln!("error: {case}: {}", error.message);
                if let Some(remedy) = &error.remedy {
                    eprintln!("  what to do: {remedy}");
                }
                worst = worst.max(Some(error.trouble));
            }
        }
    }
    let answered = cases.iter().all(Finding::is_answered);
    let printed = match arguments.format {
        WhyFormat::Human => print(&human(&cases, arguments.verbose, colour())),
        WhyFormat::Json => print_json(&Document::of(cases)),
    };
    match (worst, printed) {
        (Some(trouble), _) => Exit::Of(trouble.exit_code()),
        (None, Exit::Success) if !answered => Exit::Failed,
        (None, printed) => printed,
    }
}

/// Runs the search for all cases, and shows the progress on a terminal.
async fn found(
    asked: Vec<Asked<'_>>,
    options: &Options,
) -> Vec<Result<Vec<Finding>, (String, RunError)>> {
    let (tell, mut stages) = mpsc::unbounded_channel();
    let mut progress = Progress::begin();
    progress.all(asked.len());
    let watching = async {
        loop {
            let stage = tokio::select! {
                stage = stages.recv() => stage,
                () = progress.show() => continue,
            };
            match stage {
                Some(Stage::Begun(case)) => progress.begun(&case),
                Some(Stage::Ended(case)) => progress.ended(&case),
                None => return,
            }
        }
    };
    let finding = async {
        // Dropping the sender ends the progress loop.
        let found = why(asked, options, |stage| drop(tell.send(stage))).await;
        drop(tell);
        found
    };
    tokio::join!(finding, watching).0
}
