//! `svclab run`

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZero;
use std::path::Path;

use tokio::sync::mpsc;

use super::args::{Common, PATIENCE, RunArguments};
use super::exit::Exit;
use super::interrupt::{interrupted, unless_interrupted};
use super::labs::prepared;
use super::output::{colour, told};
use crate::kernel::{Choice, enter};
use crate::report::{self, Format, Results};
use crate::run::{Kept, Options, Prepared, execute};

/// Cases that stand at once for each processor: most of a case's time is
/// waiting for packets that do not come.
const JOBS_PER_CORE: usize = 8;

/// Runs the chosen cases and prints what became of them.
pub fn run(common: &Common, arguments: &RunArguments) -> Exit {
    let labs = match prepared(common, &arguments.selection) {
        Ok(labs) => labs,
        Err(exit) => return exit,
    };
    let cases = labs.into_iter().flat_map(|(_, cases)| cases).collect();
    let options = options(
        arguments.jobs,
        arguments.keep_on_failure,
        arguments.place.choice(),
    );
    let mut writers = vec![arguments.format.writer(io::stdout(), manner(arguments))];
    for written in &arguments.write {
        match create(&written.file) {
            Ok(file) => writers.push(written.format.writer(file, plain(arguments))),
            Err(error) => {
                let file = written.file.display();
                eprintln!("error: cannot write {file}: {error}");
                eprintln!("what to do: name a file that can be written with --write");
                return Exit::Of(3);
            }
        }
    }
    let ran = unless_interrupted(async {
        let (tell, told) = mpsc::unbounded_channel();
        let printing = print(&mut writers, told);
        let (ran, printed) = tokio::join!(running(cases, &options, tell), printing);
        let (results, kept) = ran;
        if !kept.is_empty() {
            wait_with(&kept).await;
        }
        (results, printed)
    });
    match ran {
        Ok(Some((results, Ok(())))) => Exit::Of(results.exit_code()),
        Ok(Some((_, Err(error)))) => told(Err(error)),
        Ok(None) => {
            eprintln!("interrupted");
            Exit::Interrupted
        }
        Err(error) => {
            eprintln!("error: {error}");
            Exit::Of(3)
        }
    }
}

/// Runs the cases; who listens is told of the end by the channel's.
pub async fn running(
    cases: Vec<Prepared>,
    options: &Options,
    tell: mpsc::UnboundedSender<report::Event>,
) -> (Results, Vec<Kept>) {
    execute(cases, options, &tell).await
}

/// Tells everybody all of it; whoever takes no more keeps none of the others from
/// it.
async fn print(
    writers: &mut [Box<dyn report::Writer + '_>],
    mut events: mpsc::UnboundedReceiver<report::Event>,
) -> io::Result<()> {
    let mut written = Ok(());
    while let Some(event) = events.recv().await {
        for writer in &mut *writers {
            let taken = writer.event(&event);
            written = written.and(taken);
        }
    }
    written
}

/// A file to write results to, and the directory that it is in.
fn create(file: &Path) -> io::Result<File> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    File::create(file)
}

/// How the run is told to a file.
fn plain(arguments: &RunArguments) -> report::Options<'static> {
    report::Options {
        verbose: arguments.verbose,
        colour: false,
        again: again(arguments),
        summary: None,
    }
}

/// How the run is told.
fn manner(arguments: &RunArguments) -> report::Options<'static> {
    let summary =
        std::env::var_os("GITHUB_STEP_SUMMARY").filter(|_| arguments.format == Format::Github);
    let summary =
        summary.and_then(|path| OpenOptions::new().append(true).create(true).open(path).ok());
    report::Options {
        verbose: arguments.verbose,
        colour: colour(),
        again: again(arguments),
        summary: summary.map(|file| Box::new(file) as Box<dyn io::Write>),
    }
}

/// The command that runs a case again, with what it depends on.
fn again(arguments: &RunArguments) -> String {
    let patience = arguments.selection.patience;
    let patience = if patience == PATIENCE {
        String::new()
    } else {
        let patience = humantime::format_duration(patience).to_string();
        format!(" --patience {}", patience.replace(' ', ""))
    };
    format!("svclab run{patience}{}", arguments.place.again())
}

/// Says how to enter what was kept, and waits for Ctrl-C.
async fn wait_with(kept: &[Kept]) {
    for lab in kept {
        eprintln!("\n{} is left standing:", lab.case);
        for namespace in &lab.namespaces {
            if let Some(command) = enter::command(&lab.session, namespace) {
                eprintln!("  {namespace:<24} {command}");
            }
        }
    }
    eprintln!("\nCtrl-C takes it all away.");
    interrupted().await;
}

/// How a run uses this machine.
pub fn options(jobs: Option<u16>, keep: bool, kernels: Choice) -> Options {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = jobs.map_or(cores * JOBS_PER_CORE, usize::from);
    Options {
        kernels,
        jobs,
        agents: cores.min(jobs),
        keep,
    }
}
