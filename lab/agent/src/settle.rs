//! Ending probes whose timeout is proven by what was seen so far.

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

/// How long nothing must have been seen before it is looked at, at first and at most.
/// Nothing is concluded from the pause itself.
const PAUSES: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(256)];

/// Of more packets nothing is settled: to follow them takes longer than to wait.
const MOST: usize = 10_000;

/// A table: by which iptables, of which family, and its name.
type Table = (&'static str, u8, String);

/// The rules of a namespace.
struct Rules {
    /// The tables that packets met when they were read.
    met: BTreeSet<Table>,
    /// Those of iptables.
    saved: Vec<SavedRules>,
    /// Those that no iptables knows, as `nft` lists them.
    own: Option<String>,
}

/// What was seen so far of a lab whose every namespace is watched and traced.
pub struct Settler<'a> {
    lab: &'a Lab,
    captures: &'a [Capture],
    basket: Rc<RefCell<Basket>>,
    trace: &'a mut Trace,
    /// The rules of the namespaces that packets met rules in, and of which tables.
    rules: BTreeMap<String, Rules>,
    /// How many packets there were at the last look, and when it was last tried to
    /// prove something.
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

    /// Waits for a moment in which nothing happens and says which of the connections
    /// that have not ended, by their places, never will; none when it cannot tell.
    ///
    /// # Errors
    ///
    /// When a kernel does not say what it remembers.
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
        // What a packet did that came meanwhile is known in part only.
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

    /// Reads what was captured, and says how many packets there are.
    fn drain(&self) -> usize {
        for capture in self.captures {
            capture.drain();
        }
        self.basket.borrow().len()
    }

    /// Reads the rules of namespaces that packets met rules in; again when they met
    /// those of another table.
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
