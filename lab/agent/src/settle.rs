//! Ends probes early whose timeout the recorded evidence proves.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use super::capture::{Basket, Capture};
use super::lab::Lab;
use super::prober::Waiting;
use super::saved;
use super::trace::Trace;
use svclab_journey::journey::journeys;
use svclab_journey::settled::Proof;
use svclab_model::evidence::{Attempt, Evidence, Met, SavedRules, Verdict};

use svclab_model::protocol::Failure;

/// Initial and maximum time without a new packet before the evidence is examined. The pause itself
/// proves nothing.
const PAUSES: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(256)];

/// Maximum number of packets for which probes are settled. Following more packets takes longer than
/// waiting.
const MOST: usize = 10_000;

/// Table identity: backend, IP version and name.
type Table = (&'static str, u8, String);

/// Rules of a namespace.
struct Rules {
    /// Tables that packets had matched when the rules were read.
    met: BTreeSet<Table>,
    /// Rules printed by iptables.
    saved: Vec<SavedRules>,
    /// Rules printed by `nft` because no iptables prints them; `None` if there are none.
    own: Option<String>,
}

/// Evidence recorded so far. All namespaces of the lab must be captured and traced.
pub struct Settler<'a> {
    lab: &'a Lab,
    captures: &'a [Capture],
    basket: Rc<RefCell<Basket>>,
    trace: &'a mut Trace,
    /// Rules of the namespaces whose rules packets matched.
    rules: BTreeMap<String, Rules>,
    /// Number of packets at the last examination, and at the last attempt to prove a timeout.
    seen: usize,
    tried: usize,
    pause: Duration,
}

impl<'a> Settler<'a> {
    pub fn new(
        lab: &'a Lab,
        captures: &'a [Capture],
        basket: Rc<RefCell<Basket>>,
        trace: &'a mut Trace,
    ) -> Self {
        Self {
            lab,
            captures,
            basket,
            trace,
            rules: BTreeMap::new(),
            seen: 0,
            tried: 0,
            pause: PAUSES[0],
        }
    }

    /// Waits for a moment without new packets. Returns the indexes of the pending connections that
    /// are proven to time out; none if nothing can be proven yet.
    ///
    /// # Errors
    ///
    /// When the kernel does not list its conntrack entries.
    pub async fn settled(&mut self, waiting: &[Waiting]) -> Result<Vec<usize>, Failure> {
        sleep(self.pause).await;
        let seen = self.drain();
        let quiet = std::mem::replace(&mut self.seen, seen) == seen;
        if !quiet {
            self.pause = PAUSES[0];
            return Ok(Vec::new());
        }
        self.pause = (2 * self.pause).min(PAUSES[1]);
        if seen > MOST || std::mem::replace(&mut self.tried, seen) == seen {
            return Ok(Vec::new());
        }
        let mut evidence = Evidence {
            attempts: waiting.iter().map(|one| self.attempt(one)).collect(),
            ..Evidence::default()
        };
        (evidence.packets, evidence.packets_left_out) = self.basket.borrow().so_far();
        self.trace.so_far(&mut evidence)?;
        self.read(&evidence.met).await?;
        // A packet that arrived meanwhile is only partly recorded.
        if self.drain() != seen {
            self.tried = 0;
            return Ok(Vec::new());
        }
        for (name, rules) in &self.rules {
            evidence.rules.extend(rules.saved.iter().cloned());
            let own = rules.own.clone().map(|own| (name.clone(), own));
            evidence.nft.extend(own);
        }
        let proof = Proof::new(&self.lab.plan, &evidence);
        let journeys = journeys(&self.lab.plan, &evidence);
        Ok(journeys
            .iter()
            .enumerate()
            .filter(|(_, journey)| proof.timeout(journey).is_ok())
            .map(|(at, _)| at)
            .collect())
    }

    /// Reads all captured packets and returns their number.
    fn drain(&self) -> usize {
        for capture in self.captures {
            capture.drain();
        }
        self.basket.borrow().len()
    }

    /// Reads the rules of namespaces whose rules packets matched, and reads them again when packets
    /// matched another table.
    async fn read(&mut self, all: &[Met]) -> Result<(), Failure> {
        let mut tables: BTreeMap<&str, BTreeSet<Table>> = BTreeMap::new();
        for met in all {
            let table = (met.by.word(), met.ip, met.table.clone());
            tables.entry(&met.namespace).or_default().insert(table);
        }
        for (name, tables) in tables {
            let known = self.rules.get(name);
            if known.is_some_and(|known| known.met == tables) {
                continue;
            }
            let Some(namespace) = self.lab.plan.namespace(name) else {
                continue;
            };
            let ns = self.lab.namespace(name)?;
            let saved = saved::iptables(ns, namespace, all).await?;
            let own = saved::nft(ns, name, all, &saved).await;
            let rules = Rules {
                met: tables,
                saved,
                own,
            };
            self.rules.insert(name.to_owned(), rules);
        }
        Ok(())
    }

    fn attempt(&self, waiting: &Waiting) -> Attempt {
        Attempt {
            probe: self.lab.plan.probes[waiting.at].name.clone(),
            number: waiting.number,
            verdict: Verdict::Timeout,
            endpoint: None,
            seen_source: None,
            local: Some(waiting.local),
            took: Duration::ZERO,
            settled: false,
            error: None,
        }
    }
}
