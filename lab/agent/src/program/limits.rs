//! Runs programs within limits of time, output and processes.

use std::time::Duration;

use tokio::time::{interval, sleep};

use crate::net::netns::NetNs;
use crate::program::child::TooMuchOutputError;
use crate::program::{self, ProgramStart};
use svclab_model::plan::NodeCommand;
use svclab_model::protocol::{Failure, ProgramOutput};

/// Interval between counts of processes. The kernel has no event for the number of a user's
/// processes.
const COUNT_INTERVAL: Duration = Duration::from_millis(100);

/// Number of processes that the kernel permits beyond the limit, so that the agent can detect a
/// program that exceeds its limit.
const PROCESS_MARGIN: u64 = 64;

/// Limit that a program exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExceededLimit {
    Time,
    Output,
    Processes,
}

/// Runs a command within its limits and waits for its exit. Processes that the command leaves
/// running count for later commands too. `uncounted` is the number of processes of the lab that do
/// not count. An exit status other than 0 is not an error.
///
/// Returns the exceeded limit in the inner result. In that case, all programs of the lab were
/// killed.
pub(crate) async fn run(
    ns: &NetNs,
    typed: &NodeCommand,
    program: &str,
    arguments: &[String],
    uncounted: u64,
) -> Result<Result<ProgramOutput, ExceededLimit>, Failure> {
    let limits = typed.limits;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let max_processes = uncounted.saturating_add(limits.max_processes);
    let command = ProgramStart {
        ns,
        name: &typed.namespace,
        program,
        arguments: &words,
        path: program::PATH,
        max_processes: Some(max_processes.saturating_add(PROCESS_MARGIN)),
    };
    let child = command.start()?;
    let tenant = ns.tenant();
    let too_many_processes = async {
        let mut ticks = interval(COUNT_INTERVAL);
        loop {
            ticks.tick().await;
            if tenant.count_processes() > max_processes {
                return;
            }
        }
    };
    let output = program::finish(
        child,
        &typed.namespace,
        program,
        &typed.input,
        limits.max_output,
    );
    let exceeded = tokio::select! {
        ended = output => match ended? {
            Ok(_) if tenant.count_processes() > max_processes => ExceededLimit::Processes,
            Ok(finished) => return Ok(Ok(finished)),
            Err(TooMuchOutputError) => ExceededLimit::Output,
        },
        () = sleep(limits.max_time) => ExceededLimit::Time,
        () = too_many_processes => ExceededLimit::Processes,
    };
    tenant.kill_programs();
    Ok(Err(exceeded))
}
