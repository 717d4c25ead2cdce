//! Runs the stages of a lab: makes the step of a stage, runs its probes and records the evidence.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use futures_util::future::try_join_all;

use crate::lab::quiesce::{Recorders, UnresolvedNeighbours};
use crate::lab::real_proxy;
use crate::lab::{RunningLab, begin};
use crate::net::netlink::NamespaceNetlink;
use crate::net::netns::NetNs;
use crate::probe::open_connections::{self, OpenConnection};
use crate::probe::prober;
use crate::probe::settle::Settler;
use crate::rules::saved_rules;
use crate::runtime::delay::Delay;
use crate::runtime::profile::Phases;
use crate::runtime::softnet::BacklogQueues;
use crate::watch::capture::{self, Capture, CaptureBuffer};
use crate::watch::reported_drops::ReportedDrops;
use crate::watch::trace::Trace;
use crate::watch::{counters, kernel_state, sysctls};
use svclab_model::evidence::{
    Attempt, Evidence, KernelState, Packet, RelayedConnection, SavedRules, StageEvidence,
    TraceEvent,
};
use svclab_model::plan::{Lifetime, Namespace, Probe, Stage};
use svclab_model::protocol::profile::Phase;
use svclab_model::protocol::{BackendHealthChange, Failure};

impl RunningLab {
    /// Runs stages in sequence.
    pub(super) async fn run_stages(
        &mut self,
        stages: &[Stage],
        drops: &ReportedDrops,
        step: &impl Fn(String),
        on_health_change: &Rc<dyn Fn(BackendHealthChange)>,
    ) -> Result<Evidence, Failure> {
        let mut evidence = Evidence::default();
        let mut open = Vec::new();
        for stage in stages {
            let made = match &stage.step {
                Some(planned) => Some(
                    self.make_step(planned, stage, step, on_health_change)
                        .await?,
                ),
                None => None,
            };
            let mut seen;
            (seen, open) = self.run_probes(stage, open, drops, step).await?;
            if let Some(made) = made {
                seen.step = Some(made.end().await);
            }
            evidence.stages.push(seen);
        }
        evidence.logs.extend(real_proxy::outputs(self)?);
        (evidence.refused, evidence.refused_missed) = self.refused_requests();
        evidence.synced_ms.clone_from(&self.synced_ms);
        Ok(evidence)
    }

    /// Runs the probes of a stage, repeats the exchange on open connections, and opens the
    /// connections for the next stage. Returns the evidence and the connections that are open
    /// afterwards.
    async fn run_probes(
        &self,
        stage: &Stage,
        open: Vec<OpenConnection>,
        drops: &ReportedDrops,
        step: &impl Fn(String),
    ) -> Result<(StageEvidence, Vec<OpenConnection>), Failure> {
        let probes: Vec<Probe> = stage.probes_with(Lifetime::Stage).cloned().collect();
        begin(step, "start its packet captures").await;
        let mut phases = Phases::begin(Phase::StartWatching);
        let watch = &self.plan.evidence;
        let buffer = Rc::new(RefCell::new(CaptureBuffer::default()));
        // The proof of a timeout may be in any namespace.
        let settles = !self.may_change() && probes.iter().any(|probe| probe.settle);
        let captures = self.start_captures(&buffer, |name| {
            settles || watch.packets.iter().any(|own| own == name)
        })?;
        let mut before = HashMap::new();
        for name in &watch.counters {
            let counters = counters::read(self.recorded_namespace(name)?, name)?;
            counters::check(watch.named_counters.get(name), &counters, name)?;
            before.insert(name.clone(), counters);
        }
        let namespaces = if settles {
            self.trace_targets(|_| true)
        } else {
            self.trace_targets(|namespace| watch.trace.contains(&namespace.name))
        };
        let mut trace = Trace::start(namespaces?.into_iter())?;
        begin(step, "run its probes").await;
        phases.enter(Phase::Probes);
        let (delay, queues) = (Delay::start(), BacklogQueues::read());
        let late_timers = self.late_timers();
        // Those of earlier stages belong to no probe of this stage.
        self.take_relayed();
        let settler = trace.as_mut().filter(|_| settles).map(|trace| {
            let (plan, namespaces) = (&self.plan, &self.namespaces);
            Settler::new(
                plan,
                &probes,
                namespaces,
                &captures,
                Rc::clone(&buffer),
                trace,
                drops,
            )
        });
        let mut attempts = prober::run(&probes, &self.namespaces, settler).await?;
        attempts.extend(open_connections::exchange_again(open).await?);
        let opened = stage.probes_with(Lifetime::Opened);
        let (open, opened) = open_connections::open(opened, &self.namespaces).await?;
        attempts.extend(opened);
        check_not_overloaded(&attempts, queues.dropped, BacklogQueues::read().dropped)?;
        if self.late_timers() > late_timers {
            return Err(Failure::too_busy(
                "the probes",
                "a load balancer was delayed while the kernel ended its connection to a backend",
            ));
        }
        phases.enter(Phase::Quiesce);
        let unresolved = if watch.packets.is_empty() {
            captures.iter().for_each(Capture::drain);
            UnresolvedNeighbours::new()
        } else {
            let recorders = Recorders {
                captures: &captures,
                buffer: &buffer,
                trace: trace.as_mut().filter(|_| !watch.trace.is_empty()),
            };
            self.quiesce(recorders).await?
        };
        phases.enter(Phase::EndWatching);
        // The kernel needs time to close the sockets, which runs in parallel with the following
        // reads.
        let closing = capture::end(captures).await;
        begin(step, "read back counters and rules").await;
        phases.enter(Phase::ReadBack);
        let mut evidence = StageEvidence {
            attempts,
            unresolved,
            relayed: self.take_relayed(),
            delay_ms: delay.process_ms(),
            ..StageEvidence::default()
        };
        (evidence.packets, evidence.packets_missed) = buffer.borrow_mut().take();
        let is_requested = |packet: &Packet| watch.packets.contains(&packet.namespace);
        evidence.packets.retain(is_requested);
        phases.enter(Phase::EndWatching);
        let closing_trace = match trace {
            Some(trace) if watch.trace.is_empty() => Some(trace.close()),
            Some(trace) => Some(trace.end(&mut evidence)?),
            None => None,
        };
        phases.enter(Phase::ReadBack);
        self.read_back(&before, &mut evidence).await?;
        phases.enter(Phase::EndWatching);
        closing.wait().await;
        if let Some(traced) = closing_trace {
            traced.wait().await;
        }
        Ok((evidence, open))
    }

    /// Returns the number of waits that a kernel timer ended while this process was delayed.
    fn late_timers(&self) -> u64 {
        self.namespaces.values().map(NetNs::late_timers).sum()
    }

    /// Removes and returns the connections that load balancers made for clients.
    fn take_relayed(&self) -> Vec<RelayedConnection> {
        let namespaces = self.plan.namespaces.iter();
        let relayed = namespaces.filter_map(|namespace| {
            let taken = self.namespaces.get(&namespace.name)?.take_relayed();
            let named = taken
                .into_iter()
                .map(|[client, backend]| RelayedConnection {
                    namespace: namespace.name.clone(),
                    client,
                    backend,
                });
            Some(named.collect::<Vec<_>>())
        });
        relayed.flatten().collect()
    }

    /// Captures the packets of the namespaces for which `is_selected` returns `true`.
    pub(crate) fn start_captures(
        &self,
        buffer: &Rc<RefCell<CaptureBuffer>>,
        is_selected: impl Fn(&str) -> bool,
    ) -> Result<Vec<Capture>, Failure> {
        let namespaces = self.plan.namespaces.iter().zip(&self.netlinks);
        namespaces
            .filter(|(namespace, _)| is_selected(&namespace.name))
            .map(|(namespace, wire)| {
                let ns = self.recorded_namespace(&namespace.name)?;
                Capture::start(ns, &namespace.name, wire.names(), Rc::clone(buffer))
            })
            .collect()
    }

    /// Returns some of the namespaces, each with its interfaces by index.
    #[expect(
        clippy::type_complexity,
        reason = "the type is the argument of `Trace::start`"
    )]
    fn trace_targets(
        &self,
        is_selected: impl Fn(&Namespace) -> bool,
    ) -> Result<Vec<(&NetNs, &Namespace, HashMap<u32, String>)>, Failure> {
        let namespaces = self.plan.namespaces.iter().zip(&self.netlinks);
        namespaces
            .filter(|(namespace, _)| is_selected(namespace))
            .map(|(namespace, wire)| {
                let ns = self.recorded_namespace(&namespace.name)?;
                Ok((ns, namespace, wire.names()))
            })
            .collect()
    }

    /// Reads the changes of counters and the state of the namespaces.
    async fn read_back(
        &self,
        before: &HashMap<String, BTreeMap<String, i64>>,
        evidence: &mut StageEvidence,
    ) -> Result<(), Failure> {
        for (name, before) in before {
            let after = counters::read(self.recorded_namespace(name)?, name)?;
            evidence
                .counters
                .insert(name.clone(), counters::diff(before, &after));
        }
        // Programs of one namespace print its rules while the state of others is read.
        let events = &evidence.trace;
        let namespaces = self.plan.namespaces.iter().zip(&self.netlinks);
        let read = namespaces.map(|(namespace, wire)| self.read_namespace(namespace, wire, events));
        let read = try_join_all(read).await?;
        for (namespace, read) in self.plan.namespaces.iter().zip(read) {
            let name = || namespace.name.clone();
            evidence.rules.extend(read.saved);
            evidence.nft.extend(read.nft.map(|nft| (name(), nft)));
            evidence
                .sysctls
                .extend(read.sysctls.map(|values| (name(), values)));
            evidence
                .kernel_state
                .extend(read.state.map(|state| (name(), state)));
        }
        Ok(())
    }

    /// Reads what the plan requests of a namespace.
    async fn read_namespace(
        &self,
        namespace: &Namespace,
        wire: &NamespaceNetlink,
        events: &[TraceEvent],
    ) -> Result<NamespaceState, Failure> {
        let (watch, name) = (&self.plan.evidence, &namespace.name);
        let ns = self.recorded_namespace(name)?;
        let is_traced = watch.trace.contains(name);
        let mut result = NamespaceState::default();
        if watch.rules.contains(name) {
            result.saved = saved_rules::read_iptables(ns, namespace, events).await?;
            result.nft = saved_rules::read_nft(ns, name, events, &result.saved).await;
            if result.nft.is_none() && is_traced {
                result.nft = saved_rules::read_foreign_tables(ns, namespace).await;
            }
        }
        if is_traced {
            let names = wire.names();
            let names = names.values().map(String::as_str);
            result.sysctls = Some(sysctls::read(ns, namespace, names)?);
        }
        let real = self.real_proxy_mode(namespace);
        let (commands, listed) = (&self.plan.commands, result.nft.as_deref());
        let state = kernel_state::read(ns, wire, namespace, watch, real, commands, listed);
        result.state = state.await?;
        Ok(result)
    }
}

/// State of a namespace after its probes, as far as the plan requests it.
#[derive(Default)]
struct NamespaceState {
    saved: Vec<SavedRules>,
    /// Output of `nft list ruleset`.
    nft: Option<String>,
    sysctls: Option<BTreeMap<String, String>>,
    state: Option<KernelState>,
}

/// Checks that unanswered attempts result from the lab and not from a busy host.
///
/// # Errors
///
/// When the kernel dropped packets from a full queue during the probes: its drop counts `before`
/// and `after` differ.
fn check_not_overloaded(attempts: &[Attempt], before: u64, after: u64) -> Result<(), Failure> {
    let mut unanswered = attempts
        .iter()
        .filter(|attempt| attempt.verdict.is_unanswered());
    let Some(attempt) = unanswered.next() else {
        return Ok(());
    };
    match after.saturating_sub(before) {
        0 => Ok(()),
        dropped => Err(Failure::too_busy(
            &format!("probe {}", attempt.probe),
            format!(
                "the kernel dropped {dropped} packets because the backlog queue of a processor \
                 was full"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::exchange::{ExchangeResult, UnreliableReason};
    use crate::probe::prober;
    use svclab_model::evidence::Verdict;

    fn new_attempt(verdict: Verdict, doubt: Option<UnreliableReason>) -> Result<Attempt, Failure> {
        let outcome = ExchangeResult {
            unreliable: doubt,
            ..ExchangeResult::without_answer(verdict, None, None)
        };
        prober::to_attempt("call", 0, std::time::Duration::ZERO, outcome)
    }

    #[test]
    fn timeout_with_dropped_packets_returns_error() {
        for verdict in [Verdict::Timeout, Verdict::Silent] {
            let attempts = [new_attempt(verdict, None).unwrap()];
            assert_eq!(check_not_overloaded(&attempts, 3, 3), Ok(()));
            let failure = check_not_overloaded(&attempts, 3, 5).unwrap_err();
            assert_eq!(
                failure.message,
                "this machine is too busy for a verdict on probe call: the kernel dropped 2 \
                 packets because the backlog queue of a processor was full"
            );
        }
    }

    #[test]
    fn answer_with_dropped_packets_is_verdict() {
        let attempts = [new_attempt(Verdict::Connected, None).unwrap()];
        assert_eq!(check_not_overloaded(&attempts, 3, 5), Ok(()));
    }

    #[test]
    fn unreliable_verdict_returns_busy_error() {
        let queued = new_attempt(Verdict::Timeout, Some(UnreliableReason::Queued)).unwrap_err();
        assert_eq!(
            queued.message,
            "this machine is too busy for a verdict on probe call: packets were queued for a \
             processor for more than 1 minute"
        );
        assert_eq!(
            queued.remedy.as_deref(),
            Some(
                "run fewer cases in parallel (`--jobs 1`), or end other programs that keep the \
                 processors busy"
            )
        );
        let late = new_attempt(Verdict::Timeout, Some(UnreliableReason::Late)).unwrap_err();
        assert_eq!(
            late.message,
            "this machine is too busy for a verdict on probe call: the answer may belong to a SYN \
             sent after the probe's time limit"
        );
    }
}
