//! Trying probes again and again while rules are waited for, to see when traffic moves.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::exchange::Outcome;
use super::netns::NetNs;
use super::prober::told;
use super::{patience, start};
use svclab_model::evidence::{Attempt, Verdict};
use svclab_model::plan::Probe;
use svclab_model::protocol::Failure;

/// How long between two rounds, and for how many: what comes soon is told to a hundredth
/// of a second, and what comes late does not fill the memory.
const PAUSES: [(u32, Duration); 3] = [
    (50, Duration::from_millis(10)),
    (50, Duration::from_millis(50)),
    (u32::MAX, Duration::from_secs(1)),
];

/// How many connections a round makes of all probes together, at least one of each: which
/// endpoint one comes to may be drawn.
const IN_A_ROUND: usize = 4;

/// How long the last of them are waited for. Whoever lives answers sooner; what is lost is
/// not sent again so soon.
const GRACE: Duration = Duration::from_millis(100);

/// The probes that are tried, round by round.
pub struct Scouts<'a> {
    probes: &'a [Probe],
    namespaces: &'a HashMap<String, NetNs>,
    tasks: JoinSet<Attempt>,
    /// Those that have not ended, as they are told if they do not.
    waiting: Vec<Attempt>,
    ended: Vec<Attempt>,
    rounds: u32,
    sent: u32,
}

impl<'a> Scouts<'a> {
    pub fn of(probes: &'a [Probe], namespaces: &'a HashMap<String, NetNs>) -> Self {
        Self {
            probes,
            namespaces,
            tasks: JoinSet::new(),
            waiting: Vec::new(),
            ended: Vec::new(),
            rounds: 0,
            sent: 0,
        }
    }

    /// Tries each probe, then waits until it is time for the next round.
    ///
    /// # Errors
    ///
    /// When a socket cannot be had.
    pub async fn send(&mut self) -> Result<(), Failure> {
        let each = (IN_A_ROUND / self.probes.len().max(1)).max(1);
        for probe in self.probes {
            for _ in 0..each {
                self.send_one(probe)?;
            }
        }
        self.rounds += 1;
        let mut passed = 0_u32;
        for (rounds, pause) in PAUSES {
            passed = passed.saturating_add(rounds);
            if self.rounds <= passed {
                sleep(pause).await;
                break;
            }
        }
        Ok(())
    }

    fn send_one(&mut self, probe: &Probe) -> Result<(), Failure> {
        let ns = start::place(probe, self.namespaces)?;
        let begun = Instant::now();
        let exchange = start::exchange(probe, ns)?;
        let number = self.sent;
        self.sent += 1;
        let lost = Outcome::ended(Verdict::Timeout, exchange.local, None);
        self.waiting
            .push(told(&probe.name, number, Duration::ZERO, lost));
        let name = probe.name.clone();
        self.tasks.spawn_local(async move {
            let outcome = exchange.outcome.await;
            told(&name, number, begun.elapsed(), outcome)
        });
        Ok(())
    }

    /// What became of them, in the order in which they were sent. Those that have not been
    /// answered by then are told as timeouts: their packets went where nobody answers.
    pub async fn end(mut self) -> Vec<Attempt> {
        let all = async {
            while let Some(attempt) = self.tasks.join_next().await {
                self.ended.extend(attempt.ok());
            }
        };
        tokio::select! {
            biased;
            () = all => {}
            _ = patience::over(GRACE) => {}
        }
        self.tasks.shutdown().await;
        let mut told = self.ended;
        let known: HashSet<(String, u32)> = told
            .iter()
            .map(|attempt| (attempt.probe.clone(), attempt.number))
            .collect();
        let lost = self.waiting.into_iter();
        told.extend(lost.filter(|one| !known.contains(&(one.probe.clone(), one.number))));
        told.sort_by_key(|attempt| attempt.number);
        told
    }
}
