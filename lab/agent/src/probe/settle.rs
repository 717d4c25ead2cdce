//! Ends probes early whose timeout the recorded evidence proves.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::net::netns::NetNs;
use crate::rules::saved_rules;
use crate::watch::capture::{Capture, CaptureBuffer};
use crate::watch::kernel_state;
use crate::watch::reported_drops::ReportedDrops;
use crate::watch::trace::Trace;
use svclab_journey::journey::journeys;
use svclab_journey::settled::TimeoutProof;
use svclab_model::evidence::{
    Attempt, KernelState, SavedRules, StageEvidence, TraceEvent, Verdict,
};
use svclab_model::plan::{Plan, Probe};
use svclab_model::protocol::Failure;

/// Initial and maximum time without a new packet before the evidence is examined. The kernel has no
/// event for the absence of packets. The pause itself proves nothing.
const MIN_AND_MAX_PAUSE: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(256)];

/// Maximum number of packets for which probes are settled. Following more packets takes longer than
/// waiting.
const MAX_PACKETS: usize = 10_000;

/// Examinations take at most one of so many parts of the time that the probes wait. In a guest, one may
/// take a second, in which no connection can end.
const PARTS_OF_WAIT: u32 = 10;

/// Table identity: backend, IP version and name.
type TableKey = (&'static str, u8, String);

/// Rules of a namespace.
struct NamespaceRules {
    /// Tables that packets had matched when the rules were read.
    matched_tables: BTreeSet<TableKey>,
    /// Rules printed by iptables.
    saved: Vec<SavedRules>,
    /// Rules printed by `nft` because no iptables prints them; `None` if there are none.
    native: Option<String>,
    /// Output of `ipset save`. Empty if no rule of iptables matches on a set.
    sets: String,
}

/// Running connection that may be settled.
pub(crate) struct PendingConnection {
    /// Index of its probe in the plan.
    pub probe_index: usize,
    /// Index of the connection in its probe, from 0.
    pub number: u32,
    /// Local address of its socket.
    pub local: SocketAddr,
    /// Ends the wait of the connection.
    pub settle: Option<oneshot::Sender<()>>,
}

/// Evidence recorded so far. All namespaces of the lab must be captured and traced.
pub(crate) struct Settler<'a> {
    plan: &'a Plan,
    /// Probes that run.
    probes: &'a [Probe],
    namespaces: &'a HashMap<String, NetNs>,
    captures: &'a [Capture],
    buffer: Rc<RefCell<CaptureBuffer>>,
    trace: &'a mut Trace,
    reported: &'a ReportedDrops,
    /// Rules of the namespaces whose rules packets matched.
    rules: BTreeMap<String, NamespaceRules>,
    /// Number of packets at the last examination.
    packets_seen: usize,
    /// Number of packets and of reported drops at the last attempt to prove a timeout.
    tried: Option<(usize, usize)>,
    begin: Instant,
    /// Time that examinations took.
    spent: Duration,
    pause: Duration,
}

impl<'a> Settler<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        probes: &'a [Probe],
        namespaces: &'a HashMap<String, NetNs>,
        captures: &'a [Capture],
        buffer: Rc<RefCell<CaptureBuffer>>,
        trace: &'a mut Trace,
        reported: &'a ReportedDrops,
    ) -> Self {
        Self {
            plan,
            probes,
            namespaces,
            captures,
            buffer,
            trace,
            reported,
            rules: BTreeMap::new(),
            packets_seen: 0,
            tried: None,
            begin: Instant::now(),
            spent: Duration::ZERO,
            pause: MIN_AND_MAX_PAUSE[0],
        }
    }

    /// Waits for a moment without new packets. Returns the indexes of the pending connections that
    /// are proven to time out; none if nothing can be proven yet.
    pub(crate) async fn find_settled(
        &mut self,
        pending: &[PendingConnection],
    ) -> Result<Vec<usize>, Failure> {
        sleep(self.pause).await;
        let seen = self.drain();
        let quiet = std::mem::replace(&mut self.packets_seen, seen) == seen;
        if !quiet {
            self.pause = MIN_AND_MAX_PAUSE[0];
            return Ok(Vec::new());
        }
        self.pause = (2 * self.pause).min(MIN_AND_MAX_PAUSE[1]);
        let now = Some((seen, self.reported.len()));
        let is_over_budget = self.spent * PARTS_OF_WAIT > self.begin.elapsed();
        if seen > MAX_PACKETS || is_over_budget || std::mem::replace(&mut self.tried, now) == now {
            return Ok(Vec::new());
        }
        let examining = Instant::now();
        let settled = self.examine(pending, seen).await;
        self.spent += examining.elapsed();
        settled
    }

    /// Returns the indexes of the connections that the packets until now prove to time out.
    async fn examine(
        &mut self,
        pending: &[PendingConnection],
        seen: usize,
    ) -> Result<Vec<usize>, Failure> {
        let mut evidence = StageEvidence {
            attempts: pending
                .iter()
                .map(|one| self.pending_attempt(one))
                .collect(),
            ..StageEvidence::default()
        };
        (evidence.packets, evidence.packets_missed) = self.buffer.borrow().snapshot();
        self.trace.snapshot(&mut evidence)?;
        self.reported.complete(&mut evidence);
        self.read_rules(&evidence.trace).await?;
        // A packet that arrived meanwhile is only partly recorded.
        if self.drain() != seen {
            self.tried = None;
            return Ok(Vec::new());
        }
        for (name, rules) in &self.rules {
            evidence.rules.extend(rules.saved.iter().cloned());
            let native = rules.native.clone().map(|own| (name.clone(), own));
            evidence.nft.extend(native);
            let state = KernelState {
                sets: rules.sets.clone(),
                ..KernelState::default()
            };
            evidence.kernel_state.insert(name.clone(), state);
        }
        let proof = TimeoutProof::new(self.plan, &evidence);
        let journeys = journeys(self.plan, self.probes, &evidence);
        Ok(journeys
            .iter()
            .enumerate()
            .filter(|(_, journey)| proof.check_timeout(journey).is_ok())
            .map(|(index, _)| index)
            .collect())
    }

    /// Reads all captured packets and returns their number.
    fn drain(&self) -> usize {
        for capture in self.captures {
            capture.drain();
        }
        self.buffer.borrow().len()
    }

    /// Reads the rules of namespaces whose rules packets matched, and reads them again when packets
    /// matched another table.
    async fn read_rules(&mut self, events: &[TraceEvent]) -> Result<(), Failure> {
        let mut tables: BTreeMap<&str, BTreeSet<TableKey>> = BTreeMap::new();
        for met in events {
            let table = (met.backend.name(), met.ip_version, met.table.clone());
            tables.entry(&met.namespace).or_default().insert(table);
        }
        for (name, tables) in tables {
            let current = self.rules.get(name);
            if current.is_some_and(|known| known.matched_tables == tables) {
                continue;
            }
            let (Some(namespace), Some(ns)) =
                (self.plan.namespace(name), self.namespaces.get(name))
            else {
                continue;
            };
            let saved = saved_rules::read_iptables(ns, namespace, events).await?;
            let native = saved_rules::read_nft(ns, name, events, &saved).await;
            let sets = if saved.iter().any(|own| own.text.contains("--match-set")) {
                kernel_state::read_sets(ns, name).await?
            } else {
                String::new()
            };
            let rules = NamespaceRules {
                matched_tables: tables,
                saved,
                native,
                sets,
            };
            self.rules.insert(name.to_owned(), rules);
        }
        Ok(())
    }

    fn pending_attempt(&self, pending: &PendingConnection) -> Attempt {
        Attempt {
            idle: None,
            probe: self.probes[pending.probe_index].name.clone(),
            index: pending.number,
            verdict: Verdict::Timeout,
            endpoint: None,
            seen_source: None,
            further_answers: Vec::new(),
            progress: None,
            local_address: Some(pending.local),
            duration: Duration::ZERO,
            settled: false,
            error: None,
        }
    }
}
