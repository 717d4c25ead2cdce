//! `svclab run`

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::OFlag;
use tokio::sync::mpsc;

use super::args::{Common, RunArguments, word};
use super::exit::Exit;
use super::interrupt::{Interrupts, drive, unless_interrupted};
use super::labs::selected;
use super::output::{colour, note, refused, written};
use super::progress::Progress;
use svclab_diagnostic::files::{self, Unfinished};
use svclab_model::plan::{Patience, Watch};
use svclab_report::folder::Folder;
use svclab_report::{Format, Several, Whole, Writer};
use svclab_runner::kernel::{Choice, Witness, enter};
use svclab_runner::results::{Event, Results};
use svclab_runner::run::{Given, Kept, Options, execute};

/// Cases that stand at once for each processor: most of a case's time is
/// waiting for packets that do not come.
const JOBS_PER_CORE: usize = 8;

/// Runs the chosen cases and prints what became of them.
pub fn run(common: &Common, arguments: &RunArguments) -> Exit {
    let labs = match selected(common, &arguments.selection) {
        Ok(labs) => labs,
        Err(exit) => return exit,
    };
    let mut cases: Vec<Given> = labs.into_iter().flat_map(|lab| lab.cases).collect();
    let mut options = options(
        arguments.jobs,
        arguments.keep_on_failure,
        arguments.place.choice(),
    );
    if arguments.report.is_some() {
        options.see = true;
        for case in cases.iter_mut().flatten() {
            case.plan.watch = Watch::everything(&case.plan);
        }
    }
    let witness = arguments.certify.then(Witness::begin);
    let mut writer = match writers(arguments) {
        Ok(writers) => Several(writers),
        Err(exit) => return exit,
    };
    let ran = drive(async {
        let mut interrupts = Interrupts::listen();
        let (tell, told) = mpsc::unbounded_channel();
        let printing = print(&mut writer, told, witness.is_some());
        let running = running(cases, &options, tell, &mut interrupts);
        let (ran, printed) = tokio::join!(running, printing);
        let (results, kept) = ran;
        if !kept.is_empty() {
            wait_with(&kept, &mut interrupts).await;
        }
        (results, printed)
    });
    // All that the run held is let go of: now it can be said what is left.
    let ran = match (ran, witness) {
        (Ok((results, Ok(took))), Some(witness)) => {
            certified(results, took.unwrap_or_default(), witness, &mut writer)
        }
        (ran, _) => ran.map(|(results, printed)| Some((results, printed.map(drop)))),
    };
    match ran {
        Ok(Some((results, printed))) => {
            if results.interrupted {
                eprintln!("interrupted");
            }
            // An output that could not be written is no success.
            match written(printed) {
                Exit::Success => Exit::Of(results.exit_code()),
                other => other,
            }
        }
        Ok(None) => {
            eprintln!("interrupted");
            Exit::Interrupted
        }
        Err(error) => refused(&error),
    }
}

/// Results with their certificate, and the end of the run told with it; none if
/// the user does not wait for the certificate either.
fn certified(
    mut results: Results,
    took: Duration,
    witness: Witness,
    writer: &mut dyn Writer,
) -> io::Result<Option<(Results, io::Result<()>)>> {
    Ok(unless_interrupted(witness.end())?.map(|certificate| {
        results.certificate = Some(certificate);
        let over = Event::Over {
            results: Box::new(results.clone()),
            took,
        };
        (results, writer.event(&over))
    }))
}

/// Runs the cases until the user wants it to end; who listens is told of the end
/// by the channel's.
pub async fn running(
    cases: Vec<Given>,
    options: &Options,
    tell: mpsc::UnboundedSender<Event>,
    interrupts: &mut Interrupts,
) -> (Results, Vec<Kept>) {
    execute(cases, options, &tell, interrupts.next()).await
}

/// Prints what happens. The end, if it is withheld, is for the caller to tell,
/// with the time that the run took.
pub async fn print(
    writer: &mut dyn Writer,
    mut events: mpsc::UnboundedReceiver<Event>,
    withhold: bool,
) -> io::Result<Option<Duration>> {
    let mut over = None;
    let mut printed = Ok(());
    let mut progress = Progress::begin();
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = progress.show() => continue,
        };
        let Some(event) = event else {
            return printed.map(|()| over);
        };
        let told = progress.event(&event, || match &event {
            Event::Over { took, .. } if withhold => {
                over = Some(*took);
                Ok(())
            }
            event => writer.event(event),
        });
        // One that takes no more, such as a closed pipe, keeps no file from being whole.
        printed = printed.and(told);
    }
}

/// What writes to standard output and to files.
///
/// # Errors
///
/// What the command ends with where a file cannot be written, after telling on
/// standard error why.
fn writers(arguments: &RunArguments) -> Result<Vec<Box<dyn Writer>>, Exit> {
    let mut files = HashSet::new();
    for written in &arguments.write {
        let file = &written.file;
        if !files.insert(std::path::absolute(file).unwrap_or_else(|_| file.clone())) {
            eprintln!("error: --write names {} twice", file.display());
            eprintln!("what to do: give each format a file of its own");
            return Err(Exit::Input);
        }
    }
    let mut writers = vec![arguments.format.writer(io::stdout(), manner(arguments))];
    for written in &arguments.write {
        let (file, unfinished) = create(&written.file).map_err(|error| {
            eprintln!("error: cannot write {}: {error}", written.file.display());
            eprintln!("what to do: name a file that can be written with --write");
            Exit::Machine
        })?;
        let plain = svclab_report::Options {
            colour: false,
            summary: None,
            ..manner(arguments)
        };
        let writer = written.format.writer(file, plain);
        writers.push(Box::new(Whole::new(writer, unfinished)));
    }
    if let Some(at) = &arguments.report {
        let folder = Folder::make(at, &again(arguments)).map_err(|error| {
            eprintln!("error: cannot write {error}");
            eprintln!("what to do: name a directory that can be written with --report");
            Exit::Machine
        })?;
        writers.push(Box::new(folder));
    }
    Ok(writers)
}

/// A file to write results to, and the directory that it is in. What an earlier run
/// wrote is removed at once: it is not this run's, however this one ends.
fn create(file: &Path) -> io::Result<(File, Unfinished)> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let begun = files::begin(file)?;
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(begun),
    }
}

/// The file that GitHub shows as a step's summary, for appending; no link is followed.
fn summary() -> Option<File> {
    let file = File::options()
        .append(true)
        .create(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(std::env::var_os("GITHUB_STEP_SUMMARY")?)
        .ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// How the run is told.
fn manner(arguments: &RunArguments) -> svclab_report::Options<'static> {
    let is_github = arguments.format == Format::Github;
    let summary = is_github.then(summary).flatten();
    svclab_report::Options {
        verbose: arguments.verbose,
        colour: colour(),
        again: again(arguments),
        summary: summary.map(|file| Box::new(file) as Box<dyn io::Write>),
    }
}

/// The command that runs a case again, with what it depends on.
fn again(arguments: &RunArguments) -> String {
    let patience = arguments.selection.patience;
    let patience = if patience == Patience::SETTLED {
        String::new()
    } else {
        format!(" --patience {patience}")
    };
    let proxy = arguments.selection.kube_proxy.as_ref();
    let proxy = proxy.map(|path| format!(" --kube-proxy {}", word(&path.display().to_string())));
    let timeout = arguments.selection.kube_proxy_timeout;
    let timeout = timeout.map(|time| {
        let time = humantime::format_duration(time).to_string();
        format!(" --kube-proxy-timeout {}", time.replace(' ', ""))
    });
    let outside = if arguments.selection.allow_outside {
        " --allow-outside"
    } else {
        ""
    };
    let (proxy, place) = (proxy.unwrap_or_default(), arguments.place.again());
    let timeout = timeout.unwrap_or_default();
    format!("svclab run{patience}{proxy}{timeout}{outside}{place}")
}

/// Says how to enter what was kept, and waits for Ctrl-C.
async fn wait_with(kept: &[Kept], interrupts: &mut Interrupts) {
    for lab in kept {
        eprintln!("\n{} is left standing:", lab.case);
        for namespace in &lab.namespaces {
            if let Some(command) = enter::command(&lab.session, namespace) {
                eprintln!("  {namespace:<24} {command}");
            }
        }
    }
    eprintln!("\nCtrl-C takes it all away.");
    interrupts.next().await;
}

/// How a run uses this machine.
pub fn options(jobs: Option<u16>, keep: bool, kernels: Choice) -> Options {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = jobs.map_or(cores * JOBS_PER_CORE, usize::from);
    Options {
        kernels,
        agent: None,
        jobs,
        agents: cores.min(jobs),
        keep,
        see: false,
        notice: Some(note),
    }
}
