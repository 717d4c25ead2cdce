//! Implements `svclab verify`.

use std::collections::HashSet;

use tokio::sync::mpsc;

use super::explain::explain_sides;
use super::labs::load_each_lab;
use super::run::run_options;
use crate::cli::args::{ReferenceArgument, VerifyArguments, VerifyFormat};
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::interrupt::{Interrupts, block_on};
use crate::cli::output::{has_colour_on_stdout, print, print_json, print_message, terminal_width};
use crate::cli::progress::ProgressDisplay;
use crate::cli::report_output::{ReportOutput, answer};
use svclab_experiment::Progress;
use svclab_experiment::verify::{
    CasePair, FailedCase, PreparedPairs, Side, SideName, Verification, VersionError, prepare_pairs,
    read_version, verify,
};
use svclab_report::verify::{compared_flows, render_text};
use svclab_report::{Additions, Answer, TerminalWidth};
use svclab_runner::kernel::Host;
use svclab_runner::run::{InvalidLab, LabResult, LabSearch, Prepared, RunOptions, SelectedLab};

/// Name of the directory with the table of flows, inside the directory of labs.
const FLOW_TABLE: &str = "conformance";

/// Maximum number of cases with changed flows of which a report shows the packets.
const MAX_REPORTED_CASES: usize = 8;

/// Compares two kube-proxies by the results of flows, and prints the differences.
pub(crate) fn verify_proxies(arguments: &VerifyArguments) -> CommandResult {
    let search = arguments
        .source
        .labs()
        .with_outside(arguments.allow_outside);
    let labs = load_labs_and_flows(&arguments.names, search)?;
    let wrong = labs.iter().filter_map(|lab| lab.as_ref().err());
    let wrong: Vec<FailedCase> = wrong.map(|lab| failure_entry(lab)).collect();
    let labs: Vec<SelectedLab> = labs.into_iter().flatten().collect();
    let options = run_options(arguments.jobs, false, arguments.kernels.choice());
    let report = ReportOutput::start(arguments.report.as_deref())?;
    let (mut verification, pairs) = block_on(async {
        let mut interrupts = Interrupts::listen();
        let (against, new) = tokio::select! {
            biased;
            sides = load_sides(arguments) => sides?,
            () = interrupts.next() => return Err(CliError::Interrupted),
        };
        let pairs = select_pairs(arguments, &labs, &against, &new);
        let is_empty = pairs.pairs.is_empty() && pairs.not_compared.is_empty();
        if is_empty && pairs.failed.is_empty() && wrong.is_empty() {
            return Err(CliError::NothingSelected {
                message: "no selected case uses this proxy mode".to_owned(),
                help: None,
            });
        }
        let shown = report.as_ref().map(|_| pairs.pairs.clone());
        let compared = run_comparison(pairs, &against, &new, &options, &mut interrupts).await;
        Ok((compared, shown.unwrap_or_default()))
    })??;
    verification.failed.extend(wrong);
    let verbose = arguments.verbose;
    let text = |width| render_text(&verification, verbose, has_colour_on_stdout(), width);
    // An interruption while the report is made must not cost the answer.
    let printed = match arguments.format {
        VerifyFormat::Human => print(&text(terminal_width())),
        VerifyFormat::Json => print_json(&verification),
    };
    if let Some(report) = report {
        let answer = Answer {
            flows: compared_flows(&verification),
            ..answer(
                "svclab verify".to_owned(),
                &text(TerminalWidth::default()),
                &verification,
            )?
        };
        // Who interrupts does not wait for further runs.
        let pairs = if verification.interrupted {
            Vec::new()
        } else {
            pairs
        };
        let sides = changed_sides(pairs, &verification);
        let (cases, additions) = explain_sides(sides, true, &options)?;
        let additions = Additions {
            answer: Some(answer),
            cases: additions,
        };
        report.write(additions, cases)?;
    }
    if verification.interrupted {
        print_message(format_args!("interrupted"));
    }
    printed?;
    Ok(Outcome::from_code(verification.exit_code()))
}

/// Returns both sides of the first cases with changed flows, for a report about their packets.
fn changed_sides(
    pairs: Vec<CasePair>,
    verification: &Verification,
) -> Vec<(Prepared, &'static str)> {
    let changed = verification
        .changed
        .iter()
        .map(|changed| &changed.flow.case);
    let changed: HashSet<&String> = changed.collect();
    let changed = pairs
        .into_iter()
        .filter(|pair| changed.contains(&pair.new.case.id));
    let sides = changed
        .take(MAX_REPORTED_CASES)
        .flat_map(|pair| [(pair.against, "against"), (pair.new, "new")]);
    sides.collect()
}

/// Prepares the selected cases of both sides.
fn select_pairs(
    arguments: &VerifyArguments,
    labs: &[SelectedLab],
    against: &Side,
    new: &Side,
) -> PreparedPairs {
    let mut prepared = prepare_pairs(
        labs,
        against,
        new,
        &arguments.proxy_mode,
        arguments.allow_outside,
    );
    let timeout = arguments.kube_proxy_timeout;
    let pairs = prepared.pairs.into_iter().map(|pair| CasePair {
        against: pair.against.with_sync_timeout(timeout),
        new: pair.new.with_sync_timeout(timeout),
    });
    prepared.pairs = pairs.collect();
    prepared
}

/// Loads the named labs; without names, all labs and the table of flows.
fn load_labs_and_flows(
    names: &[String],
    search: LabSearch<'_>,
) -> Result<Vec<LabResult>, CliError> {
    let mut labs = load_each_lab(names, search)?;
    if names.is_empty() && search.directory.has_group(FLOW_TABLE) {
        labs.extend(load_each_lab(&[FLOW_TABLE.to_owned()], search)?);
    }
    Ok(labs)
}

/// Returns the failure entry of an invalid lab, none of whose cases is compared.
fn failure_entry(lab: &InvalidLab) -> FailedCase {
    FailedCase {
        case: lab.name.clone(),
        side: SideName::New,
        error: lab.error.clone(),
    }
}

async fn load_sides(arguments: &VerifyArguments) -> Result<(Side, Side), VersionError> {
    let program = |path| read_version(path, Host::new());
    let new = program(&arguments.kube_proxy).await?;
    let against = match &arguments.against {
        None => Side::Rules(new.version),
        Some(ReferenceArgument::Version(version)) => Side::Rules(*version),
        Some(ReferenceArgument::Program(path)) => Side::Program(program(path).await?),
    };
    Ok((against, Side::Program(new)))
}

async fn run_comparison(
    pairs: PreparedPairs,
    against: &Side,
    new: &Side,
    options: &RunOptions,
    interrupts: &mut Interrupts,
) -> Verification {
    let (sender, mut events) = mpsc::unbounded_channel();
    let mut progress = ProgressDisplay::new();
    progress.set_total(pairs.pairs.len());
    let watching = async {
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = progress.show() => continue,
            };
            match event {
                Some(Progress::Started(case)) => progress.on_case_started(&case),
                Some(Progress::Ended(case)) => progress.on_case_ended(&case),
                Some(Progress::Fixed { .. }) => {}
                None => return,
            }
        }
    };
    let verifying = async {
        let ended = verify(pairs, against, new, options, &sender, interrupts.next()).await;
        drop(sender);
        ended
    };
    let (verification, ()) = tokio::join!(verifying, watching);
    verification
}
