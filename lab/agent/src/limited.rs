//! Runs programs within limits of time, output and processes.

use std::time::Duration;

use tokio::time::{interval, sleep};

use super::child::TooMuch;
use super::netns::NetNs;
use super::program::{self, Started};
use svclab_model::plan::Typed;
use svclab_model::protocol::{Failure, Finished};

/// Interval between counts of processes.
const COUNTED: Duration = Duration::from_millis(100);

/// Number of processes that the kernel permits beyond the limit, so that the agent can detect a
/// program that exceeds its limit.
const MARGIN: u64 = 64;

/// Limit that a program exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exceeded {
    Time,
    Output,
    Processes,
}

/// Runs a command within its limits and waits for its exit. Processes that the command leaves
/// running count for later commands too. `others` is the number of processes of the lab that do not
/// count. An exit status other than 0 is not an error.
///
/// Returns the exceeded limit in the inner result. In that case, all programs of the lab were
/// killed.
///
/// # Errors
///
/// When the program cannot be started.
pub async fn run(
    ns: &NetNs,
    typed: &Typed,
    program: &str,
    words: &[String],
    others: u64,
) -> Result<Result<Finished, Exceeded>, Failure> {
    let limits = typed.limits;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let most = others.saturating_add(limits.processes);
    let started = Started {
        ns,
        name: &typed.namespace,
        program,
        arguments: &words,
        path: program::PATH,
        processes: Some(most.saturating_add(MARGIN)),
    };
    let child = started.start()?;
    let tenant = ns.tenant();
    let many = async {
        let mut ticks = interval(COUNTED);
        loop {
            ticks.tick().await;
            if tenant.processes() > most {
                return;
            }
        }
    };
    let ended = program::finish(
        child,
        &typed.namespace,
        program,
        &typed.input,
        limits.output,
    );
    let exceeded = tokio::select! {
        ended = ended => match ended? {
            Ok(_) if tenant.processes() > most => Exceeded::Processes,
            Ok(finished) => return Ok(Ok(finished)),
            Err(TooMuch) => Exceeded::Output,
        },
        () = sleep(limits.time) => Exceeded::Time,
        () = many => Exceeded::Processes,
    };
    tenant.end_programs();
    Ok(Err(exceeded))
}
