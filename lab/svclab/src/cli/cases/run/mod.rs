//! Implements `svclab run`.

mod changes;
mod last_run;
mod selection;
mod watch;
mod watched_files;
mod writers;

use std::io;
use std::num::NonZero;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::cli::args::RunArguments;
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::interrupt::{Interrupts, block_on, run_interruptible};
use crate::cli::output::{check_output, print_message, print_note};
use crate::cli::progress::ProgressDisplay;
use crate::cli::report_output::command_line;
use last_run::LastRun;
use selection::{select_cases, select_shard};
use svclab_model::plan::EvidenceRequest;
use svclab_report::{MultiWriter, Writer};
use svclab_runner::certify::Certifier;
use svclab_runner::kernel::{KernelChoice, enter};
use svclab_runner::results::Results;
use svclab_runner::run::{Event, KeptCase, RunControl, RunInput, RunOptions, execute};
use writers::create_writers;

/// Number of parallel cases per processor. A case spends most of its time waiting for packets that
/// do not arrive.
const JOBS_PER_CORE: usize = 8;

/// Runs the selected cases and prints their results.
pub(crate) fn run(arguments: &RunArguments) -> CommandResult {
    if arguments.watch {
        return block_on(watch::run_repeatedly(arguments))?;
    }
    let round = Round::prepare(arguments)?;
    let certifier = arguments.certify.then(Certifier::start);
    let withholds = certifier.is_some();
    let mut ended = block_on(async {
        let mut interrupts = Interrupts::listen();
        Box::pin(round.run(withholds, &mut interrupts)).await
    })?;
    // At this point, all resources of the run are released, so the certificate can list leftovers.
    if let (Ok(duration), Some(certifier)) = (&ended.printed, certifier) {
        let certificate = run_interruptible(certifier.finish())?;
        ended.results.certificate = Some(certificate);
        let event = Event::RunEnded {
            results: Box::new(ended.results.clone()),
            duration: duration.unwrap_or_default(),
        };
        ended.printed = ended.writer.event(&event).map(|()| None);
    }
    ended.finish(arguments)
}

/// Prepared run of the selected cases.
struct Round<'a> {
    arguments: &'a RunArguments,
    cases: Vec<RunInput>,
    options: RunOptions,
    writer: MultiWriter<'static>,
}

impl<'a> Round<'a> {
    /// Loads and prepares the cases.
    ///
    /// # Errors
    ///
    /// When no case is selected, or an output cannot be written.
    fn prepare(arguments: &'a RunArguments) -> Result<Self, CliError> {
        let mut cases = select_cases(arguments)?;
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
        Ok(Self {
            writer: MultiWriter(create_writers(arguments)?),
            arguments,
            cases,
            options,
        })
    }

    /// Runs the cases and writes their results. With `withholds_end`, the final event is not
    /// written.
    async fn run(mut self, withholds_end: bool, interrupts: &mut Interrupts) -> EndedRound {
        let (event_sender, events) = mpsc::unbounded_channel();
        let progress = if self.arguments.quiet {
            ProgressDisplay::hidden()
        } else {
            ProgressDisplay::new()
        };
        let printing = print_events(&mut self.writer, events, progress, withholds_end);
        let running = run_cases(self.cases, &self.options, event_sender, interrupts);
        let ((results, kept), printed) = tokio::join!(running, printing);
        if !kept.is_empty() {
            wait_with_kept(&kept, interrupts).await;
        }
        EndedRound {
            results,
            printed,
            writer: self.writer,
        }
    }
}

/// Run that has ended.
struct EndedRound {
    results: Results,
    /// Whether the results were written, with the duration of a run whose end was withheld.
    printed: io::Result<Option<Duration>>,
    writer: MultiWriter<'static>,
}

impl EndedRound {
    /// Stores the names of the failed cases, and returns the outcome.
    fn finish(self, arguments: &RunArguments) -> CommandResult {
        let results = &self.results;
        if let Err(error) = LastRun::store(results, arguments.last_failed) {
            tracing::debug!("cannot store the failed cases: {error}");
        }
        if results.interrupted {
            print_message(format_args!("interrupted"));
        }
        // A failed write of the output is not a success.
        check_output(self.printed.map(drop))?;
        Ok(Outcome::from_code(results.exit_code()))
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
