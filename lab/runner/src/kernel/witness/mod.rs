//! Looking at this machine before and after a run, for the certificate that
//! nothing was left behind.

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

/// How long what a run started may take to end once nobody needs it. A guest's
/// QEMU frees its memory in this time.
const ENDING: Duration = Duration::from_secs(5);

/// Somebody who saw the machine before a run.
#[derive(Debug)]
pub struct Witness {
    before: State,
    /// What was below this process already, such as the other programs of a
    /// shell that became svclab.
    others: BTreeSet<Process>,
}

impl Witness {
    /// Looks at the machine. From here on this process is the parent of every
    /// process below it whose own parent ends, so that none can get away.
    #[must_use]
    pub fn begin() -> Self {
        // Refused by kernels older than 3.4 only.
        let _ = prctl::set_child_subreaper(true);
        Self {
            before: look().with(Part::Processes, Ok(Vec::new())),
            others: below_this(),
        }
    }

    /// Waits until what the run started has ended, as far as it does, and looks
    /// at the machine again.
    pub async fn end(self) -> Certificate {
        let deadline = Instant::now() + ENDING;
        let mut ends = signal(SignalKind::child()).ok();
        loop {
            // The signal may have come before it was waited for: look first.
            let left = self.left();
            let Some(ends) = ends.as_mut().filter(|_| !left.is_empty()) else {
                break;
            };
            if timeout_at(deadline, ends.recv()).await.is_err() {
                break;
            }
        }
        let left = self.left().iter().map(ToString::to_string).collect();
        // A second Ctrl-C must not wait until the machine has been read.
        let after = beside(look).await.with(Part::Processes, Ok(left));
        Certificate::of(&self.before, &after)
    }

    /// What runs below this process and did not before.
    fn left(&self) -> Vec<Process> {
        below_this().difference(&self.others).cloned().collect()
    }
}
