//! Implements `svclab verify`.

use std::path::Path;

use tokio::sync::mpsc;

use super::args::{AgainstWord, Common, VerifyArguments, VerifyFormat};
use super::exit::Exit;
use super::interrupt::{Interrupts, drive};
use super::labs::chosen_each;
use super::output::{colour, print, print_json, refused, told};
use super::progress::Progress;
use super::run::options;
use svclab_experiment::run::verify::{
    Pair, Pairs, Program, SaysNothing, Side, Step, pairs, verify, version_of,
};
use svclab_experiment::verify::{Failed, SideOf, Verification};
use svclab_report::verify::human;
use svclab_runner::kernel::Host;
use svclab_runner::results::{RunError, Trouble};
use svclab_runner::run::{Chosen, Found, Options, WrongLab, trouble};

/// Name of the directory with the table of flows, inside the directory of labs.
const TABLE: &str = "conformance";

/// Compares two kube-proxies by the results of flows, and prints the differences.
pub fn compare(common: &Common, arguments: &VerifyArguments) -> Exit {
    let labs = match labs(common, &arguments.names) {
        Ok(labs) => labs,
        Err(exit) => return exit,
    };
    let wrong = labs.iter().filter_map(|lab| lab.as_ref().err());
    let wrong: Vec<Failed> = wrong.map(|lab| failed(lab)).collect();
    let labs: Vec<Chosen> = labs.into_iter().flatten().collect();
    let options = options(arguments.jobs, false, arguments.place.choice());
    let verified = drive(async {
        let mut interrupts = Interrupts::listen();
        let sides = tokio::select! {
            biased;
            sides = sides(arguments) => sides.map(Some),
            () = interrupts.next() => Ok(None),
        };
        let Some((against, new)) = sides? else {
            return Ok(Err(Exit::Interrupted));
        };
        let mut found = pairs(
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
            .map(|pair| Pair {
                against: pair.against.with_sync_timeout(timeout),
                new: pair.new.with_sync_timeout(timeout),
            })
            .collect();
        let is_empty = found.pairs.is_empty() && found.not_compared.is_empty();
        if is_empty && found.failed.is_empty() && wrong.is_empty() {
            eprintln!("error: no case that was selected is of that mode");
            return Ok(Err(Exit::Nothing));
        }
        Ok(Ok(compared(
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
            end(&verification, arguments)
        }
        Ok(Ok(Err(exit))) => {
            if exit == Exit::Interrupted {
                eprintln!("interrupted");
            }
            exit
        }
        Ok(Err(error)) => told(&error),
        Err(error) => refused(&error),
    }
}

fn end(verification: &Verification, arguments: &VerifyArguments) -> Exit {
    let printed = match arguments.format {
        VerifyFormat::Human => print(&human(verification, arguments.verbose, colour())),
        VerifyFormat::Json => print_json(verification),
    };
    if verification.interrupted {
        eprintln!("interrupted");
    }
    match printed {
        Exit::Success => Exit::Of(verification.exit_code()),
        other => other,
    }
}

/// Loads the named labs; without names, all labs and the table of flows.
fn labs(common: &Common, names: &[String]) -> Result<Vec<Found>, Exit> {
    let mut labs = chosen_each(names, &common.topologies)?;
    let table = common.topologies.join(TABLE);
    if names.is_empty() && table.is_dir() {
        labs.extend(chosen_each(&[], &table)?);
    }
    Ok(labs)
}

/// Returns the failure entry of an invalid lab, none of whose cases is compared.
fn failed(lab: &WrongLab) -> Failed {
    Failed {
        case: lab.name.clone(),
        side: SideOf::New,
        error: lab.error.clone(),
    }
}

async fn sides(arguments: &VerifyArguments) -> Result<(Side, Side), RunError> {
    let new = known(&arguments.kube_proxy).await?;
    let against = match &arguments.against {
        None => Side::Rules(new.version),
        Some(AgainstWord::Version(version)) => Side::Rules(*version),
        Some(AgainstWord::Program(path)) => Side::Program(known(path).await?),
    };
    Ok((against, Side::Program(new)))
}

async fn known(path: &Path) -> Result<Program, RunError> {
    version_of(path, Host::new())
        .await
        .map_err(|error| unknown(&error))
}

fn unknown(error: &SaysNothing) -> RunError {
    let input = |remedy: &str| RunError {
        trouble: Trouble::Input,
        message: error.to_string(),
        remedy: Some(remedy.to_owned()),
    };
    match error {
        SaysNothing::Binary(binary) => input(binary.remedy()),
        SaysNothing::Kernel(error) => trouble(error),
        SaysNothing::Endless(_) => {
            input("give the path of a kube-proxy; a program that waits for something cannot be run")
        }
        SaysNothing::Otherwise { .. } => input(
            "give the path of a kube-proxy; one that you build says its version when it is \
             linked with -X k8s.io/component-base/version.gitVersion=v1.36.0",
        ),
    }
}

async fn compared(
    found: Pairs,
    against: &Side,
    new: &Side,
    options: &Options,
    interrupts: &mut Interrupts,
) -> Verification {
    let (tell, mut steps) = mpsc::unbounded_channel();
    let mut progress = Progress::begin();
    progress.all(found.pairs.len());
    let watching = async {
        loop {
            let step = tokio::select! {
                step = steps.recv() => step,
                () = progress.show() => continue,
            };
            match step {
                Some(Step::Begun(case)) => progress.begun(&case),
                Some(Step::Ended(case)) => progress.ended(&case),
                None => return,
            }
        }
    };
    let verifying = async {
        let ended = verify(found, against, new, options, &tell, interrupts.next()).await;
        drop(tell);
        ended
    };
    let (verification, ()) = tokio::join!(verifying, watching);
    verification
}
