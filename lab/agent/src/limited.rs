//! Programs that may take so much and no more.

use std::time::Duration;

use tokio::time::{interval, sleep};

use super::child::TooMuch;
use super::netns::NetNs;
use super::program::{self, Started};
use svclab_model::plan::Typed;
use svclab_model::protocol::{Failure, Finished};

/// How often processes are counted.
const COUNTED: Duration = Duration::from_millis(100);

/// How many processes more than its limit the kernel lets a program have, so that a
/// program that has more than its limit is seen to have them.
const MARGIN: u64 = 64;

/// Which limit was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exceeded {
    Time,
    Output,
    Processes,
}

/// Runs a command within its limits and waits for its end. What it leaves running counts
/// as long as further commands run. `others` are processes of the lab that do not count.
///
/// # Errors
///
/// When the program cannot be started; not when it ends with an error of its own. Within,
/// the limit that it exceeded: it has been ended then, with all that runs in the lab.
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
