//! Trying probes again and again while rules are waited for, to see when traffic moves.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::netns::NetNs;
use super::prober::{told, unbegun};
use super::{failure, ping, tcp, udp};
use crate::evidence::Attempt;
use crate::plan::{Probe, Protocol};
use crate::protocol::Failure;

/// How long between two tries of each probe, and for how many tries: what comes soon is
/// told to a hundredth of a second, and what comes late does not fill the memory.
const PAUSES: [(usize, Duration); 3] = [
    (100, Duration::from_millis(10)),
    (90, Duration::from_millis(100)),
    (usize::MAX, Duration::from_secs(1)),
];

/// The probes that are tried, one connection at a time.
pub struct Scouts<'a> {
    probes: &'a [Probe],
    namespaces: &'a HashMap<String, NetNs>,
    tasks: JoinSet<Attempt>,
    sent: usize,
}

impl<'a> Scouts<'a> {
    pub fn of(probes: &'a [Probe], namespaces: &'a HashMap<String, NetNs>) -> Self {
        Self {
            probes,
            namespaces,
            tasks: JoinSet::new(),
            sent: 0,
        }
    }

    /// Tries each probe once, then waits until it is time for the next try.
    ///
    /// # Errors
    ///
    /// When a socket cannot be had.
    pub async fn send(&mut self) -> Result<(), Failure> {
        for probe in self.probes {
            self.send_one(probe)?;
        }
        self.sent += 1;
        let mut passed = 0_usize;
        for (tries, pause) in PAUSES {
            passed = passed.saturating_add(tries);
            if self.sent <= passed {
                sleep(pause).await;
                break;
            }
        }
        Ok(())
    }

    fn send_one(&mut self, probe: &Probe) -> Result<(), Failure> {
        let ns = self.namespaces.get(&probe.from).ok_or_else(|| {
            failure::bug(format!(
                "the probe {} starts in {}, which the plan has not got",
                probe.name, probe.from
            ))
        })?;
        let begun = Instant::now();
        let exchange = ns
            .enter(|| match probe.protocol {
                Protocol::Tcp => tcp::begin(probe),
                Protocol::Udp => udp::begin(probe),
                Protocol::Ping => ping::begin(probe),
            })
            .and_then(|begun| begun)
            .map_err(|error| unbegun(probe, &error))?;
        let (name, number) = (probe.name.clone(), self.sent);
        self.tasks.spawn_local(async move {
            let outcome = exchange.outcome.await;
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            told(&name, number, begun.elapsed(), outcome)
        });
        Ok(())
    }

    /// What became of those that have ended, in the order in which they were sent. Those
    /// that still wait are given up.
    pub async fn end(mut self) -> Vec<Attempt> {
        let mut ended = Vec::new();
        // Answers that are there already are taken.
        tokio::task::yield_now().await;
        while let Some(attempt) = self.tasks.try_join_next() {
            ended.extend(attempt.ok());
        }
        self.tasks.shutdown().await;
        ended.sort_by_key(|attempt| attempt.number);
        ended
    }
}
