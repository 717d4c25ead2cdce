//! Runs the probes of a plan in order.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::net::netns::NetNs;
use crate::probe::exchange::ExchangeResult;
use crate::probe::settle::{PendingConnection, Settler};
use crate::probe::start;
use crate::runtime::failure;
use svclab_model::evidence::{Attempt, Verdict};
use svclab_model::plan::Probe;
use svclab_model::protocol::Failure;

/// Maximum number of recent connections. With more, a kernel on a shared processor drops packets
/// from its backlog, and connections succeed only after a retransmission.
const MAX_RECENT: usize = 64;

/// Age after which a running connection no longer counts as recent. Connections that time out do
/// not delay later ones.
const RECENT_AGE: Duration = Duration::from_millis(250);

/// Runs all probes and returns the attempts in the order of the plan. The first packets of probes
/// without `after` leave in the same order. Therefore a round robin assigns backends in a
/// predictable order. Connections that the settler reports as settled end at once.
///
/// # Errors
///
/// When a socket cannot be opened, a probe is bound to an address that its namespace lacks, or the
/// host is too busy for a verdict. Network errors are verdicts, not errors.
pub(crate) async fn run(
    probes: &[Probe],
    namespaces: &HashMap<String, NetNs>,
    mut settler: Option<Settler<'_>>,
) -> Result<Vec<Attempt>, Failure> {
    let mut running = StartedConnections::default();
    let mut remaining: Vec<u32> = probes.iter().map(|probe| probe.connections).collect();
    let mut done: Vec<(usize, Attempt)> = Vec::new();
    // The connections that may start when the probe starts. Each that ends makes place for another.
    let each = |index: usize| {
        let probe = &probes[index];
        let concurrency = probe.concurrency.map_or(u32::MAX, NonZeroU32::get);
        (0..probe.connections.min(concurrency)).map(move |number| (index, number))
    };
    let at_once = (0..probes.len()).filter(|at| probes[*at].after.is_none());
    let mut next: VecDeque<(usize, u32)> = at_once.flat_map(each).collect();
    loop {
        while running.recent.len() < MAX_RECENT
            && let Some((at, number)) = next.pop_front()
        {
            running.start(at, number, &probes[at], namespaces)?;
        }
        let finished = match (&mut settler, running.recent.front()) {
            (_, Some((begun, ..))) if !next.is_empty() => tokio::select! {
                biased;
                finished = running.tasks.join_next() => finished,
                () = sleep_until(*begun + RECENT_AGE) => {
                    running.recent.pop_front();
                    continue;
                }
            },
            (Some(settler), _) if running.can_settle() => tokio::select! {
                biased;
                finished = running.tasks.join_next() => finished,
                settled = settler.find_settled(&running.pending) => {
                    running.settle(&settled?);
                    continue;
                }
            },
            _ => running.tasks.join_next().await,
        };
        let Some(finished) = finished else {
            break;
        };
        let (index, attempt) = finished
            .map_err(|error| failure::bug(format!("the task of a probe failed: {error}")))?;
        let attempt = attempt?;
        running
            .pending
            .retain(|one| one.probe_index != index || one.number != attempt.index);
        running
            .recent
            .retain(|(_, of, number)| *of != index || *number != attempt.index);
        if let Some(concurrency) = probes[index].concurrency {
            let started = probes[index].connections - remaining[index] + concurrency.get();
            next.extend((started < probes[index].connections).then_some((index, started)));
        }
        remaining[index] -= 1;
        done.push((index, attempt));
        if remaining[index] == 0 {
            let finished_probe = probes[index].name.as_str();
            let after = |at: &usize| probes[*at].after.as_deref() == Some(finished_probe);
            next.extend((0..probes.len()).filter(after).flat_map(each));
        }
    }
    if let Some(index) = remaining.iter().position(|left| *left > 0) {
        return Err(failure::bug(format!(
            "probe {} waits for a probe that never ends",
            probes[index].name
        )));
    }
    done.sort_by_key(|(at, attempt)| (*at, attempt.index));
    Ok(done.into_iter().map(|(_, attempt)| attempt).collect())
}

/// Started connections.
#[derive(Default)]
struct StartedConnections {
    tasks: JoinSet<(usize, Result<Attempt, Failure>)>,
    pending: Vec<PendingConnection>,
    /// Recent connections that have not ended: start time, index of the probe, index of the
    /// connection.
    recent: VecDeque<(Instant, usize, u32)>,
}

impl StartedConnections {
    /// Whether any connection may be settled.
    fn can_settle(&self) -> bool {
        self.pending.iter().any(|one| one.settle.is_some())
    }

    /// Ends the connections at these indexes as timeouts.
    fn settle(&mut self, settled: &[usize]) {
        for index in settled {
            if let Some(settle) = self.pending[*index].settle.take() {
                // The connection may have ended at the same moment.
                let _ = settle.send(());
            }
        }
    }

    fn start(
        &mut self,
        probe_index: usize,
        number: u32,
        probe: &Probe,
        namespaces: &HashMap<String, NetNs>,
    ) -> Result<(), Failure> {
        let ns = start::source_namespace(probe, namespaces)?;
        let started = Instant::now();
        let exchange = start::start_exchange(probe, number, ns)?;
        self.recent.push_back((started, probe_index, number));
        let (settle, settled) = oneshot::channel();
        let local = exchange.local;
        if let Some(local) = local.filter(|_| probe.settle) {
            self.pending.push(PendingConnection {
                probe_index,
                number,
                local,
                settle: Some(settle),
            });
        }
        let name = probe.name.clone();
        self.tasks.spawn_local(async move {
            let (outcome, settled) = tokio::select! {
                biased;
                outcome = exchange.outcome => (outcome, false),
                Ok(()) = settled => (ExchangeResult::without_answer(Verdict::Timeout, local, None), true),
            };
            let attempt = to_attempt(&name, number, started.elapsed(), outcome);
            (probe_index, attempt.map(|attempt| Attempt { settled, ..attempt }))
        });
        Ok(())
    }
}

/// Converts the result of an exchange to an attempt of a probe.
///
/// # Errors
///
/// When the host was too busy for a verdict.
pub(crate) fn to_attempt(
    probe: &str,
    number: u32,
    elapsed: Duration,
    outcome: ExchangeResult,
) -> Result<Attempt, Failure> {
    match outcome.unreliable {
        Some(reason) => Err(Failure::too_busy(&format!("probe {probe}"), reason)),
        None => Ok(to_attempt_unchecked(probe, number, elapsed, outcome)),
    }
}

/// Converts the result of an exchange to an attempt of a probe, even if the host was too busy for a
/// verdict.
pub(crate) fn to_attempt_unchecked(
    probe: &str,
    number: u32,
    elapsed: Duration,
    outcome: ExchangeResult,
) -> Attempt {
    let mut answers = outcome.answers.into_iter();
    let (endpoint, seen_source) = answers
        .next()
        .map(|answer| (answer.endpoint, answer.seen_source))
        .unzip();
    Attempt {
        idle: None,
        probe: probe.to_owned(),
        index: number,
        verdict: outcome.verdict,
        endpoint,
        seen_source,
        further_answers: answers.collect(),
        progress: outcome.progress,
        local_address: outcome.local,
        duration: elapsed,
        settled: false,
        error: outcome.error.map(|error| error.to_string()),
    }
}
