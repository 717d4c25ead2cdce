//! Implements `svclab run`.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use tokio::sync::mpsc;

use super::labs::prepare_each_lab;
use super::last_run::LastRun;
use crate::cli::args::{Common, FlakyResult, RunArguments, Shard, shell_word};
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::interrupt::{Interrupts, block_on, run_interruptible};
use crate::cli::output::{
    check_output, has_colour_on_stdout, is_read_by_runner, print_message, print_note,
};
use crate::cli::progress::ProgressDisplay;
use crate::cli::report_output::{command_line, create_output, create_report_writer};
use svclab_model::plan::{EvidenceRequest, MaxWait};
use svclab_report::folder::{PageTarget, StoredRun};
use svclab_report::{Additions, AtomicFileWriter, Format, MultiWriter, Writer};
use svclab_runner::certify::Certifier;
use svclab_runner::kernel::{KernelChoice, enter};
use svclab_runner::results::Results;
use svclab_runner::run::{
    Event, KeptCase, RunControl, RunInput, RunOptions, ShardSelection, execute,
};

/// Number of parallel cases per processor. A case spends most of its time waiting for packets that
/// do not arrive.
const JOBS_PER_CORE: usize = 8;

/// Runs the selected cases and prints their results.
pub(crate) fn run(common: &Common, arguments: &RunArguments) -> CommandResult {
    let mut cases = select_cases(common, arguments)?;
    let mut options = run_options(
        arguments.jobs,
        arguments.keep_on_failure,
        arguments.kernels.choice(),
    );
    options.control = arguments.control.options();
    if arguments.quiet {
        options.notice = None;
    }
    if arguments.report.is_some() {
        options.with_evidence = true;
        for case in cases.iter_mut().flatten() {
            case.plan.evidence = EvidenceRequest::everything(&case.plan);
        }
    }
    options.shard = arguments
        .shard
        .map(|shard| select_shard(shard, arguments.durations.as_deref(), &cases))
        .transpose()?;
    let certifier = arguments.certify.then(Certifier::start);
    let mut writer = MultiWriter(create_writers(arguments)?);
    let (mut results, mut printed) = block_on(async {
        let mut interrupts = Interrupts::listen();
        let (event_sender, events) = mpsc::unbounded_channel();
        let progress = if arguments.quiet {
            ProgressDisplay::hidden()
        } else {
            ProgressDisplay::new()
        };
        let printing = print_events(&mut writer, events, progress, certifier.is_some());
        let running = run_cases(cases, &options, event_sender, &mut interrupts);
        let ((results, kept), printed) = tokio::join!(running, printing);
        if !kept.is_empty() {
            wait_with_kept(&kept, &mut interrupts).await;
        }
        (results, printed)
    })?;
    // At this point, all resources of the run are released, so the certificate can list leftovers.
    if let (Ok(duration), Some(certifier)) = (&printed, certifier) {
        results.certificate = Some(run_interruptible(certifier.finish())?);
        let event = Event::RunEnded {
            results: Box::new(results.clone()),
            duration: duration.unwrap_or_default(),
        };
        printed = writer.event(&event).map(|()| None);
    }
    if let Err(error) = LastRun::store(&results, arguments.last_failed) {
        tracing::debug!("cannot store the failed cases: {error}");
    }
    if results.interrupted {
        print_message(format_args!("interrupted"));
    }
    // A failed write of the output is not a success.
    check_output(printed.map(drop))?;
    Ok(match Outcome::from_code(results.exit_code()) {
        Outcome::SUCCESS if results.summary.flaky > 0 => {
            Outcome::passed_if(arguments.control.flaky == FlakyResult::Pass)
        }
        outcome => outcome,
    })
}

/// Loads and prepares the cases to run.
fn select_cases(common: &Common, arguments: &RunArguments) -> Result<Vec<RunInput>, CliError> {
    let mut selection = arguments.selection.clone();
    let last = arguments.last_failed.then(LastRun::read).transpose()?;
    if let Some(last) = last.as_ref().filter(|_| selection.names.is_empty()) {
        selection.names.clone_from(&last.failed);
    }
    let labs = prepare_each_lab(common, &selection)?;
    let mut cases: Vec<RunInput> = labs.into_iter().flat_map(|lab| lab.cases).collect();
    if let Some(last) = last {
        cases.retain(|case| last.failed.contains(&rerun_name(case)));
        if cases.is_empty() {
            return Err(CliError::NothingSelected {
                message: "none of the selected cases failed in the last run".to_owned(),
                help: Some("omit the names, to run all that failed".to_owned()),
            });
        }
    }
    Ok(cases)
}

/// Selects the cases of a shard, by the durations of an earlier run if there is one.
fn select_shard(
    shard: Shard,
    durations: Option<&Path>,
    cases: &[RunInput],
) -> Result<ShardSelection, CliError> {
    let mut known = BTreeMap::new();
    if let Some(path) = durations {
        let run = StoredRun::read(path).map_err(|error| {
            CliError::refused(
                error.to_string(),
                "give a file of `svclab run --format json`",
            )
        })?;
        // A case that ran in several kernels runs in all of them again.
        for case in &run.document.cases {
            let tries = case.failed_tries.iter().map(|earlier| earlier.duration_ms);
            *known.entry(case.cli_name().to_owned()).or_insert(0) +=
                tries.sum::<u64>() + case.duration_ms;
        }
    }
    let names: Vec<String> = cases.iter().map(rerun_name).collect();
    Ok(ShardSelection {
        number: shard.number,
        count: shard.count,
        is_selected: shard.select(&names, &known),
        names,
    })
}

/// Returns the name that selects a case again.
fn rerun_name(case: &RunInput) -> String {
    match case {
        Ok(prepared) => prepared.rerun_name(),
        Err(result) if result.named.is_empty() => result.case.clone(),
        Err(result) => result.named.clone(),
    }
}

/// Runs the cases until they end or the user interrupts. Dropping the sender ends the receiver.
pub(crate) async fn run_cases(
    cases: Vec<RunInput>,
    options: &RunOptions,
    tell: mpsc::UnboundedSender<Event>,
    interrupts: &mut Interrupts,
) -> (Results, Vec<KeptCase>) {
    execute(cases, options, &tell, interrupts.next()).await
}

/// Writes the events of a run. With `withhold`, the final event is not written: the caller writes
/// it with the returned duration of the run.
pub(crate) async fn print_events(
    writer: &mut dyn Writer,
    mut events: mpsc::UnboundedReceiver<Event>,
    mut progress: ProgressDisplay,
    withhold: bool,
) -> io::Result<Option<Duration>> {
    let mut duration = None;
    let mut printed = Ok(());
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = progress.show() => continue,
        };
        let Some(event) = event else {
            return printed.map(|()| duration);
        };
        let result = progress.on_event(&event, || match &event {
            Event::RunEnded { duration: took, .. } if withhold => {
                duration = Some(*took);
                Ok(())
            }
            event => writer.event(event),
        });
        // An output that fails, such as a closed pipe, must not stop the other outputs.
        printed = printed.and(result);
    }
}

/// Returns the writers to standard output and to files.
fn create_writers(arguments: &RunArguments) -> Result<Vec<Box<dyn Writer>>, CliError> {
    let reported = arguments
        .report
        .iter()
        .filter(|path| matches!(PageTarget::from_path(path), PageTarget::File(_)));
    let written = arguments.write.iter().map(|written| &written.file);
    let mut files = HashSet::new();
    for file in written.chain(reported) {
        // The directory of a file may be missing, or have several paths.
        let location = locate_output(file).map_err(|error| write_error(file, error))?;
        if !files.insert(location) {
            return Err(CliError::refused(
                format!("{} is named twice", file.display()),
                "give each output its own file",
            ));
        }
    }
    let mut writers = vec![
        arguments
            .format
            .writer(io::stdout(), report_options(arguments)),
    ];
    for written in &arguments.write {
        let created = create_output(&written.file);
        let (file, unfinished) = created.map_err(|error| write_error(&written.file, error))?;
        let plain = svclab_report::Options {
            quiet: false,
            colour: false,
            is_read_by_runner: false,
            summary: None,
            ..report_options(arguments)
        };
        let writer = written.format.writer(file, plain);
        writers.push(Box::new(AtomicFileWriter::new(writer, unfinished)));
    }
    if let Some(path) = &arguments.report {
        let again = rerun_command(arguments);
        writers.push(create_report_writer(path, &again, Additions::default())?);
    }
    Ok(writers)
}

fn write_error(file: &Path, source: io::Error) -> CliError {
    CliError::Write {
        target: file.display().to_string(),
        source,
        help: Some("give a writable file"),
    }
}

/// Creates the directory of a file, and returns the only path of the file without links to its
/// directory.
fn locate_output(file: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(file)?;
    let directory = absolute.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory)?;
    let name = file.file_name().unwrap_or_default();
    Ok(std::fs::canonicalize(directory)?.join(name))
}

/// Opens GitHub's step summary file for appending, without following links.
fn open_step_summary() -> Option<File> {
    let file = File::options()
        .append(true)
        .create(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(std::env::var_os("GITHUB_STEP_SUMMARY")?)
        .ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// Returns the options for printing the results.
fn report_options(arguments: &RunArguments) -> svclab_report::Options<'static> {
    let is_github = arguments.format == Format::Github;
    let summary = is_github.then(open_step_summary).flatten();
    svclab_report::Options {
        verbose: arguments.verbose,
        quiet: arguments.quiet,
        colour: has_colour_on_stdout(),
        is_read_by_runner: is_read_by_runner(),
        names_kernels: arguments.kernels.kernel == KernelChoice::All,
        rerun_command: rerun_command(arguments),
        summary: summary.map(|file| Box::new(file) as Box<dyn io::Write>),
    }
}

/// Returns the command that runs a case again with the same options.
fn rerun_command(arguments: &RunArguments) -> String {
    let max_wait = arguments.selection.max_wait;
    let max_wait = if max_wait == MaxWait::SETTLED {
        String::new()
    } else {
        format!(" --max-wait {max_wait}")
    };
    let proxy = arguments.selection.kube_proxy.as_ref();
    let proxy =
        proxy.map(|path| format!(" --kube-proxy {}", shell_word(&path.display().to_string())));
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
    let (proxy, kernel_arguments) = (
        proxy.unwrap_or_default(),
        arguments.kernels.rerun_arguments(),
    );
    let timeout = timeout.unwrap_or_default();
    format!("svclab run{max_wait}{proxy}{timeout}{outside}{kernel_arguments}")
}

/// Prints the commands to enter labs that are kept running, and waits for Ctrl-C.
async fn wait_with_kept(kept: &[KeptCase], interrupts: &mut Interrupts) {
    for lab in kept {
        print_message(format_args!("\n{} is still running:", lab.case));
        for namespace in &lab.namespaces {
            if let Some(command) = enter::enter_command(&lab.session, namespace) {
                print_message(format_args!("  {namespace:<24} {command}"));
            }
        }
    }
    print_message(format_args!("\nCtrl-C stops all labs."));
    interrupts.next().await;
}

/// Returns the options for a run on this machine.
pub(crate) fn run_options(jobs: Option<u16>, keep: bool, kernels: KernelChoice) -> RunOptions {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = jobs.map_or(cores * JOBS_PER_CORE, usize::from);
    RunOptions {
        kernels,
        agent: None,
        jobs,
        agents: cores.min(jobs),
        keep,
        with_evidence: false,
        command: command_line(),
        shard: None,
        control: RunControl::default(),
        notice: Some(print_note),
    }
}
