//! Implements `svclab verify`.

use std::path::Path;

use tokio::sync::mpsc;

use super::labs::load_each_lab;
use super::run::run_options;
use crate::cli::args::{Common, ReferenceArgument, VerifyArguments, VerifyFormat};
use crate::cli::exit::Exit;
use crate::cli::interrupt::{Interrupts, block_on};
use crate::cli::output::{has_colour_on_stdout, print, print_error, print_json, print_start_error};
use crate::cli::progress::Progress;
use svclab_experiment::run::verify::{
    CasePair, PreparedPairs, Program, Progress as Event, Side, VersionError, prepare_pairs,
    read_version, verify,
};
use svclab_experiment::verify::{FailedCase, SideName, Verification};
use svclab_report::verify::render_text;
use svclab_runner::kernel::Host;
use svclab_runner::results::{ErrorKind, RunError};
use svclab_runner::run::{InvalidLab, LabResult, RunOptions, SelectedLab, to_run_error};

/// Name of the directory with the table of flows, inside the directory of labs.
const FLOW_TABLE: &str = "conformance";

/// Compares two kube-proxies by the results of flows, and prints the differences.
pub fn verify_proxies(common: &Common, arguments: &VerifyArguments) -> Exit {
    let labs = match load_labs_and_flows(common, &arguments.names) {
        Ok(labs) => labs,
        Err(exit) => return exit,
    };
    let wrong = labs.iter().filter_map(|lab| lab.as_ref().err());
    let wrong: Vec<FailedCase> = wrong.map(|lab| failure_entry(lab)).collect();
    let labs: Vec<SelectedLab> = labs.into_iter().flatten().collect();
    let options = run_options(arguments.jobs, false, arguments.kernels.choice());
    let verified = block_on(async {
        let mut interrupts = Interrupts::listen();
        let sides = tokio::select! {
            biased;
            sides = load_sides(arguments) => sides.map(Some),
            () = interrupts.next() => Ok(None),
        };
        let Some((against, new)) = sides? else {
            return Ok(Err(Exit::Interrupted));
        };
        let mut found = prepare_pairs(
            &labs,
            &against,
            &new,
            &arguments.proxy_mode,
            arguments.allow_outside,
        );
        let timeout = arguments.kube_proxy_timeout;
        found.pairs = found
            .pairs
            .into_iter()
            .map(|pair| CasePair {
                against: pair.against.with_sync_timeout(timeout),
                new: pair.new.with_sync_timeout(timeout),
            })
            .collect();
        let is_empty = found.pairs.is_empty() && found.not_compared.is_empty();
        if is_empty && found.failed.is_empty() && wrong.is_empty() {
            eprintln!("error: no selected case uses this proxy mode");
            return Ok(Err(Exit::Nothing));
        }
        Ok(Ok(run_comparison(
            found,
            &against,
            &new,
            &options,
            &mut interrupts,
        )
        .await))
    });
    match verified {
        Ok(Ok(Ok(mut verification))) => {
            verification.failed.extend(wrong);
            print_verification(&verification, arguments)
        }
        Ok(Ok(Err(exit))) => {
            if exit == Exit::Interrupted {
                eprintln!("interrupted");
            }
            exit
        }
        Ok(Err(error)) => print_error(&error),
        Err(error) => print_start_error(&error),
    }
}

fn print_verification(verification: &Verification, arguments: &VerifyArguments) -> Exit {
    let printed = match arguments.format {
        VerifyFormat::Human => print(&render_text(
            verification,
            arguments.verbose,
            has_colour_on_stdout(),
        )),
        VerifyFormat::Json => print_json(verification),
    };
    if verification.interrupted {
        eprintln!("interrupted");
    }
    match printed {
        Exit::Success => Exit::Code(verification.exit_code()),
        other => other,
    }
}

/// Loads the named labs; without names, all labs and the table of flows.
fn load_labs_and_flows(common: &Common, names: &[String]) -> Result<Vec<LabResult>, Exit> {
    let mut labs = load_each_lab(names, &common.topologies)?;
    let table = common.topologies.join(FLOW_TABLE);
    if names.is_empty() && table.is_dir() {
        labs.extend(load_each_lab(&[], &table)?);
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

async fn load_sides(arguments: &VerifyArguments) -> Result<(Side, Side), RunError> {
    let new = program_with_version(&arguments.kube_proxy).await?;
    let against = match &arguments.against {
        None => Side::Rules(new.version),
        Some(ReferenceArgument::Version(version)) => Side::Rules(*version),
        Some(ReferenceArgument::Program(path)) => Side::Program(program_with_version(path).await?),
    };
    Ok((against, Side::Program(new)))
}

async fn program_with_version(path: &Path) -> Result<Program, RunError> {
    read_version(path, Host::new())
        .await
        .map_err(|error| version_error(&error))
}

fn version_error(error: &VersionError) -> RunError {
    let input = |remedy: &str| RunError {
        kind: ErrorKind::Input,
        message: error.to_string(),
        remedy: Some(remedy.to_owned()),
    };
    match error {
        VersionError::Binary(binary) => input(binary.remedy()),
        VersionError::Kernel(error) => to_run_error(error),
        VersionError::TimedOut(_) => input(
            "give the path of a kube-proxy; the version of a program that waits cannot be read",
        ),
        VersionError::NotKubeProxy { .. } => input(
            "give the path of a kube-proxy; your own build reports its version if it is linked \
             with -X k8s.io/component-base/version.gitVersion=v1.36.0",
        ),
    }
}

async fn run_comparison(
    pairs: PreparedPairs,
    against: &Side,
    new: &Side,
    options: &RunOptions,
    interrupts: &mut Interrupts,
) -> Verification {
    let (sender, mut steps) = mpsc::unbounded_channel();
    let mut progress = Progress::new();
    progress.set_total(pairs.pairs.len());
    let watching = async {
        loop {
            let step = tokio::select! {
                step = steps.recv() => step,
                () = progress.show() => continue,
            };
            match step {
                Some(Event::Started(case)) => progress.on_case_started(&case),
                Some(Event::Ended(case)) => progress.on_case_ended(&case),
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
