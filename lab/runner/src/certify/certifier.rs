//! Reads the state of this machine before and after a run, for the certificate that nothing was
//! left behind.

use std::collections::BTreeSet;
use std::time::Duration;

use nix::sys::prctl;
use tokio::signal::unix::{SignalKind, signal};

use super::{Certificate, MachineState, Section};
use crate::kernel::agent::blocking::run_blocking;
use crate::kernel::agent::cpu_wait;

use super::machine::read_state;
use super::processes::{Process, descendants};

/// Maximum time in which processes of the run may end after the run, without the time in which they
/// wait for a processor. QEMU of a guest frees its memory in this time.
const MAX_PROCESS_END_WAIT: Duration = Duration::from_secs(5);

/// State of the machine before a run.
#[derive(Debug)]
pub struct Certifier {
    before: MachineState,
    /// Processes that already ran below this process, such as the other programs of a shell that
    /// executed svclab.
    preexisting: BTreeSet<Process>,
}

impl Certifier {
    /// Reads the state of the machine. From now on, this process becomes the parent of every
    /// process below it whose own parent ends, so that none can escape.
    #[must_use]
    pub fn start() -> Self {
        // Fails only on kernels older than 3.4.
        let _ = prctl::set_child_subreaper(true);
        Self {
            before: read_state().with(Section::Processes, Ok(Vec::new())),
            preexisting: descendants(),
        }
    }

    /// Waits until the processes of the run have ended, at most for the time limit, and reads the
    /// state of the machine again.
    pub async fn finish(self) -> Certificate {
        let process = Some(std::process::id());
        let wait = self.wait_for_end();
        let remaining = cpu_wait::within_cpu_time(process, MAX_PROCESS_END_WAIT, wait)
            .await
            .unwrap_or_else(|| self.remaining_processes());
        let remaining = remaining.iter().map(ToString::to_string).collect();
        // A second Ctrl-C must not wait until the state has been read.
        let after = run_blocking(read_state)
            .await
            .with(Section::Processes, Ok(remaining));
        Certificate::compare(&self.before, &after)
    }

    /// Waits until the processes of the run have ended. Returns the remaining processes, which are
    /// none unless this process cannot wait for signals.
    async fn wait_for_end(&self) -> Vec<Process> {
        let mut child_signals = signal(SignalKind::child()).ok();
        loop {
            // A signal may arrive before the wait starts, so the processes are read first.
            let remaining = self.remaining_processes();
            match &mut child_signals {
                Some(signals) if !remaining.is_empty() => signals.recv().await,
                _ => return remaining,
            };
        }
    }

    /// Returns the processes below this one that did not run before.
    fn remaining_processes(&self) -> Vec<Process> {
        descendants()
            .difference(&self.preexisting)
            .cloned()
            .collect()
    }
}
