//! Runs the probes of a plan in order.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::exchange::Outcome;
use super::failure;
use super::netns::NetNs;
use super::settle::Settler;
use super::start;
use svclab_model::evidence::{Attempt, Verdict};
use svclab_model::plan::Probe;
use svclab_model::protocol::Failure;

/// Maximum number of recent connections. With more, a kernel on a shared processor drops packets
/// from its backlog, and connections succeed only after a retransmission.
const YOUNG: usize = 64;

/// Age after which a running connection no longer counts as recent. Connections that time out do
/// not delay later ones.
const YOUTH: Duration = Duration::from_millis(250);

/// Runs all probes and returns the attempts in the order of the plan. The first packets of probes
/// without `after` leave in the same order. Therefore a round robin assigns backends in a
/// predictable order. Connections that the settler reports as settled end at once.
///
/// # Errors
///
/// When a socket cannot be opened, a probe is bound to an address that its namespace lacks, or the
/// host is too busy for a verdict. Network errors are verdicts, not errors.
pub async fn run(
    probes: &[Probe],
    namespaces: &HashMap<String, NetNs>,
    mut settler: Option<Settler<'_>>,
) -> Result<Vec<Attempt>, Failure> {
    let mut running = Running::default();
    let mut left: Vec<u32> = probes.iter().map(|probe| probe.connections).collect();
    let mut done: Vec<(usize, Attempt)> = Vec::new();
    let each = |at: usize| (0..probes[at].connections).map(move |number| (at, number));
    let at_once = (0..probes.len()).filter(|at| probes[*at].after.is_none());
    let mut next: VecDeque<(usize, u32)> = at_once.flat_map(each).collect();
    loop {
        while running.young.len() < YOUNG
            && let Some((at, number)) = next.pop_front()
        {
            running.begin(at, number, &probes[at], namespaces)?;
        }
        let finished = match (&mut settler, running.young.front()) {
            (_, Some((begun, ..))) if !next.is_empty() => tokio::select! {
                biased;
                finished = running.tasks.join_next() => finished,
                () = sleep_until(*begun + YOUTH) => {
                    running.young.pop_front();
                    continue;
                }
            },
            (Some(settler), _) if running.waits() => tokio::select! {
                biased;
                finished = running.tasks.join_next() => finished,
                settled = settler.settled(&running.waiting) => {
                    running.settle(&settled?);
                    continue;
                }
            },
            _ => running.tasks.join_next().await,
        };
        let Some(finished) = finished else {
            break;
        };
        let (at, attempt) = finished
            .map_err(|error| failure::bug(format!("a probe did not come to its end: {error}")))?;
        let attempt = attempt?;
        running
            .waiting
            .retain(|one| one.at != at || one.number != attempt.number);
        running
            .young
            .retain(|(_, of, number)| *of != at || *number != attempt.number);
        left[at] -= 1;
        done.push((at, attempt));
        if left[at] == 0 {
            let over = probes[at].name.as_str();
            let after = |at: &usize| probes[*at].after.as_deref() == Some(over);
            next.extend((0..probes.len()).filter(after).flat_map(each));
        }
    }
    if let Some(at) = left.iter().position(|left| *left > 0) {
        return Err(failure::bug(format!(
            "the probe {} waits for one that never ends",
            probes[at].name
        )));
    }
    done.sort_by_key(|(at, attempt)| (*at, attempt.number));
    Ok(done.into_iter().map(|(_, attempt)| attempt).collect())
}

/// Running connection that may be settled.
pub struct Waiting {
    /// Index of its probe in the plan.
    pub at: usize,
    /// Index of the connection in its probe, from 0.
    pub number: u32,
    /// Local address of its socket.
    pub local: SocketAddr,
    settle: Option<oneshot::Sender<()>>,
}

/// Started connections.
#[derive(Default)]
struct Running {
    tasks: JoinSet<(usize, Result<Attempt, Failure>)>,
    waiting: Vec<Waiting>,
    /// Recent connections that have not ended: start time, index of the probe, index of the
    /// connection.
    young: VecDeque<(Instant, usize, u32)>,
}

impl Running {
    /// Whether any connection may be settled.
    fn waits(&self) -> bool {
        self.waiting.iter().any(|one| one.settle.is_some())
    }

    /// Ends the connections at these indexes as timeouts.
    fn settle(&mut self, settled: &[usize]) {
        for at in settled {
            if let Some(settle) = self.waiting[*at].settle.take() {
                // The connection may have ended at the same moment.
                let _ = settle.send(());
            }
        }
    }

    fn begin(
        &mut self,
        at: usize,
        number: u32,
        probe: &Probe,
        namespaces: &HashMap<String, NetNs>,
    ) -> Result<(), Failure> {
        let ns = start::place(probe, namespaces)?;
        let started = Instant::now();
        let exchange = start::exchange(probe, ns)?;
        self.young.push_back((started, at, number));
        let (settle, settled) = oneshot::channel();
        let local = exchange.local;
        if let Some(local) = local.filter(|_| probe.settle) {
            self.waiting.push(Waiting {
                at,
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
                Ok(()) = settled => (Outcome::ended(Verdict::Timeout, local, None), true),
            };
            let attempt = certain(&name, number, started.elapsed(), outcome);
            (at, attempt.map(|attempt| Attempt { settled, ..attempt }))
        });
        Ok(())
    }
}

/// Converts the result of an exchange to an attempt of a probe.
///
/// # Errors
///
/// When the host was too busy for a verdict.
pub fn certain(
    probe: &str,
    number: u32,
    took: Duration,
    outcome: Outcome,
) -> Result<Attempt, Failure> {
    match outcome.doubt {
        Some(doubt) => Err(Failure::slow(&format!("the probe {probe}"), doubt)),
        None => Ok(told(probe, number, took, outcome)),
    }
}

/// Converts the result of an exchange to an attempt of a probe, even if the host was too busy for a
/// verdict.
pub fn told(probe: &str, number: u32, took: Duration, outcome: Outcome) -> Attempt {
    let (endpoint, seen_source) = outcome.answer.unzip();
    Attempt {
        probe: probe.to_owned(),
        number,
        verdict: outcome.verdict,
        endpoint,
        seen_source,
        local: outcome.local,
        took,
        settled: false,
        error: outcome.error.map(|error| error.to_string()),
    }
}
