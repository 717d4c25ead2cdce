//! Reads the state of this machine before and after a run, for the certificate that nothing was
//! left behind.

mod machine;
mod processes;

use std::collections::BTreeSet;
use std::time::Duration;

use nix::sys::prctl;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout_at};

use super::session::beside;
use crate::certify::{Certificate, Part, State};

pub use machine::look;
use processes::{Process, below_this};

/// Maximum time in which processes of the run may end after the run. QEMU of a guest frees its
/// memory in this time.
const ENDING: Duration = Duration::from_secs(5);

/// State of the machine before a run.
#[derive(Debug)]
pub struct Witness {
    before: State,
    /// Processes that already ran below this process, such as the other programs of a shell that
    /// executed svclab.
    others: BTreeSet<Process>,
}

impl Witness {
    /// Reads the state of the machine. From now on, this process becomes the parent of every
    /// process below it whose own parent ends, so that none can escape.
    #[must_use]
    pub fn begin() -> Self {
        // Fails only on kernels older than 3.4.
        let _ = prctl::set_child_subreaper(true);
        Self {
            before: look().with(Part::Processes, Ok(Vec::new())),
            others: below_this(),
        }
    }

    /// Waits until the processes of the run have ended, at most for the time limit, and reads the
    /// state of the machine again.
    pub async fn end(self) -> Certificate {
        let deadline = Instant::now() + ENDING;
        let mut ends = signal(SignalKind::child()).ok();
        loop {
            // The signal may arrive before the wait starts, so the processes are read first.
            let left = self.left();
            let Some(ends) = ends.as_mut().filter(|_| !left.is_empty()) else {
                break;
            };
            if timeout_at(deadline, ends.recv()).await.is_err() {
                break;
            }
        }
        let left = self.left().iter().map(ToString::to_string).collect();
        // A second Ctrl-C must not wait until the state has been read.
        let after = beside(look).await.with(Part::Processes, Ok(left));
        Certificate::of(&self.before, &after)
    }

    /// Returns the processes below this one that did not run before.
    fn left(&self) -> Vec<Process> {
        below_this().difference(&self.others).cloned().collect()
    }
}
