//! `svclab run`

use std::num::NonZero;

use tokio::sync::mpsc;

use super::args::{Common, RunArguments};
use super::exit::Exit;
use super::interrupt::unless_interrupted;
use super::labs::prepared;
use crate::kernel::Host;
use crate::run::{Options, execute};

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
    let options = options(arguments.jobs, arguments.keep_on_failure);
    let ran = unless_interrupted(async {
        let (tell, mut told) = mpsc::unbounded_channel();
        let printing = async { while let Some(_event) = told.recv().await {} };
        let running = async {
            let ran = execute(cases, &options, &tell).await;
            drop(tell);
            ran
        };
        let (ran, ()) = tokio::join!(running, printing);
        ran
    });
    match ran {
        Ok(Some((results, _kept))) => {
            println!(
                "{}",
                serde_json::to_string_pretty(&results).unwrap_or_default()
            );
            Exit::Of(results.exit_code())
        }
        Ok(None) => Exit::Interrupted,
        Err(error) => {
            eprintln!("error: {error}");
            Exit::Of(3)
        }
    }
}

/// How a run uses this machine.
pub fn options(jobs: Option<u16>, keep: bool) -> Options {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = jobs.map_or(cores * JOBS_PER_CORE, usize::from);
    Options {
        host: Host::new(),
        jobs,
        agents: cores.min(jobs),
        keep,
    }
}
