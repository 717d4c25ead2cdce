//! Repeats probes while a step waits for rules, to record when traffic moves.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::net::netns::NetNs;
use crate::probe::exchange::ExchangeResult;
use crate::probe::prober::to_attempt_unchecked;
use crate::probe::start;
use crate::runtime::max_wait;
use svclab_model::evidence::{Attempt, Verdict};
use svclab_model::plan::Probe;
use svclab_model::protocol::Failure;

/// Number of rounds and the interval between them. Early changes are measured with a resolution of
/// 0.01 s; late rounds are rare enough to save memory.
const ROUND_INTERVALS: [(u32, Duration); 3] = [
    (50, Duration::from_millis(10)),
    (50, Duration::from_millis(50)),
    (u32::MAX, Duration::from_secs(1)),
];

/// Number of connections per round of all probes together, at least 1 per probe. Several
/// connections are needed where the rules select an endpoint at random.
const CONNECTIONS_PER_ROUND: usize = 4;

/// Time limit for the answers to the last connections. Endpoints answer earlier, and a lost packet
/// is retransmitted later.
const MAX_LAST_WAIT: Duration = Duration::from_millis(100);

/// Probes that are repeated in rounds.
pub(crate) struct ConvergenceProbes<'a> {
    probes: &'a [&'a Probe],
    namespaces: &'a HashMap<String, NetNs>,
    tasks: JoinSet<Attempt>,
    /// Timeout attempts for connections that have not ended, used if they do not.
    pending: Vec<Attempt>,
    finished: Vec<Attempt>,
    rounds: u32,
    sent: u32,
}

impl<'a> ConvergenceProbes<'a> {
    pub(crate) fn new(probes: &'a [&'a Probe], namespaces: &'a HashMap<String, NetNs>) -> Self {
        Self {
            probes,
            namespaces,
            tasks: JoinSet::new(),
            pending: Vec::new(),
            finished: Vec::new(),
            rounds: 0,
            sent: 0,
        }
    }

    /// Runs each probe, then waits until the next round is due.
    pub(crate) async fn run_round(&mut self) -> Result<(), Failure> {
        let connections_per_probe = (CONNECTIONS_PER_ROUND / self.probes.len().max(1)).max(1);
        for probe in self.probes {
            for _ in 0..connections_per_probe {
                self.start_attempt(probe)?;
            }
        }
        self.rounds += 1;
        let mut passed = 0_u32;
        for (rounds, pause) in ROUND_INTERVALS {
            passed = passed.saturating_add(rounds);
            if self.rounds <= passed {
                sleep(pause).await;
                break;
            }
        }
        Ok(())
    }

    fn start_attempt(&mut self, probe: &Probe) -> Result<(), Failure> {
        let ns = start::source_namespace(probe, self.namespaces)?;
        let begun = Instant::now();
        let number = self.sent;
        let exchange = start::start_exchange(probe, number, ns)?;
        self.sent += 1;
        let timeout = ExchangeResult::without_answer(Verdict::Timeout, exchange.local, None);
        self.pending.push(to_attempt_unchecked(
            &probe.name,
            number,
            Duration::ZERO,
            timeout,
        ));
        let name = probe.name.clone();
        self.tasks.spawn_local(async move {
            let outcome = exchange.outcome.await;
            to_attempt_unchecked(&name, number, begun.elapsed(), outcome)
        });
        Ok(())
    }

    /// Returns all attempts in the order in which they were sent. An attempt without an answer by
    /// now is a timeout: no endpoint receives its packets.
    pub(crate) async fn into_attempts(mut self) -> Vec<Attempt> {
        let remaining = async {
            while let Some(attempt) = self.tasks.join_next().await {
                self.finished.extend(attempt.ok());
            }
        };
        tokio::select! {
            biased;
            () = remaining => {}
            _ = max_wait::expired(MAX_LAST_WAIT) => {}
        }
        self.tasks.shutdown().await;
        let mut attempts = self.finished;
        let finished_ids: HashSet<(String, u32)> = attempts
            .iter()
            .map(|attempt| (attempt.probe.clone(), attempt.index))
            .collect();
        let pending = self.pending.into_iter();
        attempts.extend(
            pending
                .filter(|attempt| !finished_ids.contains(&(attempt.probe.clone(), attempt.index))),
        );
        attempts.sort_by_key(|attempt| attempt.index);
        attempts
    }
}
