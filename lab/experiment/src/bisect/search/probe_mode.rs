//! Connections and waiting time of the probes of a trial.

use std::time::Duration;

use svclab_model::plan::{MaxWait, Probe};

/// Minimum time to wait for an answer in a narrowing trial.
const MIN_WAIT: Duration = Duration::from_millis(150);

/// Time to wait for an answer that does not arrive in a trial that verifies a result, and the maximum
/// in a narrowing trial.
const FULL_WAIT: Duration = MaxWait::SETTLED.limit;

/// Factor between the slowest answer seen and the time to wait for an answer.
const WAIT_FACTOR: u32 = 20;

/// Connections and waiting time of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeMode {
    /// Number of connections from the lab. A timeout must elapse or be proven by the evidence.
    Full,
    /// This number of connections, with this maximum wait for each.
    Quick {
        connections: u32,
        max_wait: Duration,
    },
}

impl ProbeMode {
    pub(super) fn apply(self, probe: &Probe) -> Probe {
        let mut probe = Probe {
            after: None,
            ..probe.clone()
        };
        match self {
            Self::Full => {
                probe.settle = true;
                probe.max_wait = probe.max_wait.max(FULL_WAIT);
            }
            Self::Quick {
                connections,
                max_wait,
            } => {
                probe.settle = false;
                probe.connections = connections;
                probe.max_wait = max_wait.min(probe.max_wait.max(FULL_WAIT));
            }
        }
        probe
    }

    /// Returns the maximum wait of quick trials that is sufficient for the slowest answer.
    pub(super) fn sufficient_wait(slowest_answer: Duration) -> Duration {
        (slowest_answer * WAIT_FACTOR).clamp(MIN_WAIT, FULL_WAIT)
    }
}
