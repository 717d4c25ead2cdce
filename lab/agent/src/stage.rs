//! Runs the probes of one stage of a lab and records the evidence.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use futures_util::future::try_join_all;

use super::capture::{self, Basket, Capture};
use super::delay::Delay;
use super::dialogue::{self, Open};
use super::lab::Lab;
use super::netns::NetNs;
use super::rest::{Unresolved, Watched};
use super::settle::Settler;
use super::softnet::Queues;
use super::trace::Trace;
use super::{counters, held, prober, real_proxy, saved, settings};
use svclab_model::evidence::{Attempt, Evidence, Packet, Verdict};
use svclab_model::plan::{Namespace, Probe};
use svclab_model::protocol::Failure;

impl Lab {
    /// Runs the plan's probes, repeats the exchange on open connections, and opens the connections
    /// of `next`. Returns the evidence and the connections that are open afterwards.
    ///
    /// # Errors
    ///
    /// When a probe cannot run or evidence cannot be recorded.
    pub(super) async fn stage(
        &self,
        open: Vec<Open>,
        next: Option<&[Probe]>,
        step: &impl Fn(String),
    ) -> Result<(Evidence, Vec<Open>), Failure> {
        step("watch its packets".to_owned());
        let watch = &self.plan.watch;
        let basket = Rc::new(RefCell::new(Basket::default()));
        // The proof of a timeout may be in any namespace.
        let settles = self.plan.probes.iter().any(|probe| probe.settle);
        let captures = self.capture(&basket, |name| {
            settles || watch.packets.iter().any(|own| own == name)
        })?;
        let mut before = HashMap::new();
        for name in &watch.counters {
            let counters = counters::read(self.namespace(name)?, name)?;
            counters::check(watch.named_counters.get(name), &counters, name)?;
            before.insert(name.clone(), counters);
        }
        let traced = if settles {
            self.places_of(|_| true)
        } else {
            self.places_of(|namespace| watch.trace.contains(&namespace.name))
        };
        let mut trace = Trace::begin(traced?.into_iter())?;
        step("run its probes".to_owned());
        let (delay, queues) = (Delay::begin(), Queues::read());
        let late_timers = self.late_timers();
        let settler = trace
            .as_mut()
            .filter(|_| settles)
            .map(|trace| Settler::new(self, &captures, Rc::clone(&basket), trace));
        let mut attempts = prober::run(&self.plan.probes, &self.namespaces, settler).await?;
        attempts.extend(dialogue::speak(open).await?);
        let (open, opened) = dialogue::open(next.unwrap_or_default(), &self.namespaces).await?;
        attempts.extend(opened);
        certain(&attempts, queues.dropped, Queues::read().dropped)?;
        if self.late_timers() > late_timers {
            return Err(Failure::slow(
                "the probes",
                "a balancer was late when the kernel gave up a backend",
            ));
        }
        let unresolved = if watch.packets.is_empty() {
            captures.iter().for_each(Capture::drain);
            Unresolved::new()
        } else {
            let watched = Watched {
                captures: &captures,
                basket: &basket,
                trace: trace.as_mut().filter(|_| !watch.trace.is_empty()),
            };
            self.rest(watched).await?
        };
        // The kernel needs time to close the sockets, which runs in parallel with the following
        // reads.
        let closing = capture::end(captures).await;
        step("read back counters and rules".to_owned());
        let mut evidence = Evidence {
            attempts,
            unresolved,
            late_ms: delay.of_this(),
            ..Evidence::default()
        };
        (evidence.packets, evidence.packets_left_out) = basket.borrow_mut().take();
        let watched = |packet: &Packet| watch.packets.contains(&packet.namespace);
        evidence.packets.retain(watched);
        let traced = match trace {
            Some(trace) if watch.trace.is_empty() => Some(trace.close()),
            Some(trace) => Some(trace.end(&mut evidence)?),
            None => None,
        };
        self.read_back(&before, &mut evidence).await?;
        closing.over().await;
        if let Some(traced) = traced {
            traced.over().await;
        }
        Ok((evidence, open))
    }

    /// Returns the number of waits that a kernel timer ended while this process was delayed.
    fn late_timers(&self) -> u64 {
        self.namespaces.values().map(NetNs::late_timers).sum()
    }

    /// Captures the packets of the namespaces for which `of` returns `true`.
    ///
    /// # Errors
    ///
    /// When a namespace cannot be entered or the kernel refuses the socket.
    pub(super) fn capture(
        &self,
        basket: &Rc<RefCell<Basket>>,
        of: impl Fn(&str) -> bool,
    ) -> Result<Vec<Capture>, Failure> {
        let all = self.plan.namespaces.iter().zip(&self.wires);
        all.filter(|(namespace, _)| of(&namespace.name))
            .map(|(namespace, wire)| {
                let ns = self.namespace(&namespace.name)?;
                Capture::begin(ns, &namespace.name, wire.names(), Rc::clone(basket))
            })
            .collect()
    }

    /// Returns some of the namespaces, each with its interfaces by index.
    #[expect(clippy::type_complexity, reason = "it is what `Trace::begin` takes")]
    fn places_of(
        &self,
        some: impl Fn(&Namespace) -> bool,
    ) -> Result<Vec<(&NetNs, &Namespace, HashMap<u32, String>)>, Failure> {
        let all = self.plan.namespaces.iter().zip(&self.wires);
        all.filter(|(namespace, _)| some(namespace))
            .map(|(namespace, wire)| {
                let ns = self.namespace(&namespace.name)?;
                Ok((ns, namespace, wire.names()))
            })
            .collect()
    }

    /// Reads the changes of counters and the state of the namespaces.
    async fn read_back(
        &self,
        before: &HashMap<String, BTreeMap<String, i64>>,
        evidence: &mut Evidence,
    ) -> Result<(), Failure> {
        let watch = &self.plan.watch;
        for (name, before) in before {
            let after = counters::read(self.namespace(name)?, name)?;
            evidence
                .counters
                .insert(name.clone(), counters::growth(before, &after));
        }
        self.read_rules(evidence).await?;
        for (namespace, wire) in self.plan.namespaces.iter().zip(&self.wires) {
            if watch.trace.contains(&namespace.name) {
                let ns = self.namespace(&namespace.name)?;
                let names = wire.names();
                let names = names.values().map(String::as_str);
                let settings = settings::read(ns, &namespace.name, names)?;
                evidence.settings.insert(namespace.name.clone(), settings);
            }
        }
        for (namespace, wire) in self.plan.namespaces.iter().zip(&self.wires) {
            let ns = self.namespace(&namespace.name)?;
            if let Some(held) =
                held::read(ns, wire, namespace, watch, self.real_proxy(namespace)).await?
            {
                evidence.held.insert(namespace.name.clone(), held);
            }
        }
        evidence.logs.extend(real_proxy::said(self)?);
        (evidence.refused, evidence.refused_left_out) = self.refused();
        evidence.synced_ms.clone_from(&self.synced_ms);
        Ok(())
    }

    /// Reads the rules of the namespaces whose rules the plan requests.
    async fn read_rules(&self, evidence: &mut Evidence) -> Result<(), Failure> {
        let met = &evidence.met;
        let watched = self.plan.watch.rules.iter();
        let read =
            watched
                .filter_map(|name| self.plan.namespace(name))
                .map(|namespace| async move {
                    let ns = self.namespace(&namespace.name)?;
                    let saved = saved::iptables(ns, namespace, met).await?;
                    let own = saved::nft(ns, &namespace.name, met, &saved).await;
                    Ok::<_, Failure>((saved, own.map(|own| (namespace.name.clone(), own))))
                });
        let (saved, own): (Vec<_>, Vec<_>) = try_join_all(read).await?.into_iter().unzip();
        evidence.rules = saved.into_iter().flatten().collect();
        evidence.nft = own.into_iter().flatten().collect();
        Ok(())
    }
}

/// Checks that unanswered attempts result from the lab and not from a busy host.
///
/// # Errors
///
/// When the kernel dropped packets from a full queue during the probes: its drop counts `before`
/// and `after` differ.
fn certain(attempts: &[Attempt], before: u64, after: u64) -> Result<(), Failure> {
    let unanswered =
        |attempt: &&Attempt| matches!(attempt.verdict, Verdict::Timeout | Verdict::Silent);
    let Some(attempt) = attempts.iter().find(unanswered) else {
        return Ok(());
    };
    match after.saturating_sub(before) {
        0 => Ok(()),
        dropped => Err(Failure::slow(
            &format!("the probe {}", attempt.probe),
            format!("the kernel dropped {dropped} packets because too many waited for a processor"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::exchange::{Doubt, Outcome};
    use super::super::prober;
    use super::*;

    fn attempt(verdict: Verdict, doubt: Option<Doubt>) -> Result<Attempt, Failure> {
        let outcome = Outcome {
            doubt,
            ..Outcome::ended(verdict, None, None)
        };
        prober::certain("call", 0, std::time::Duration::ZERO, outcome)
    }

    #[test]
    fn timeout_kernel_dropped_packets_is_no_verdict() {
        for verdict in [Verdict::Timeout, Verdict::Silent] {
            let attempts = [attempt(verdict, None).unwrap()];
            assert_eq!(certain(&attempts, 3, 3), Ok(()));
            let failure = certain(&attempts, 3, 5).unwrap_err();
            assert_eq!(
                failure.message,
                "this machine is too busy for a verdict on the probe call: the kernel dropped 2 \
                 packets because too many waited for a processor"
            );
        }
    }

    #[test]
    fn answer_kernel_dropped_packets_is_a_verdict() {
        let attempts = [attempt(Verdict::Connected, None).unwrap()];
        assert_eq!(certain(&attempts, 3, 5), Ok(()));
    }

    #[test]
    fn verdict_in_doubt_is_a_failure_of_a_busy_machine() {
        let queued = attempt(Verdict::Timeout, Some(Doubt::Queued)).unwrap_err();
        assert_eq!(
            queued.message,
            "this machine is too busy for a verdict on the probe call: packets waited for a \
             processor for more than a minute"
        );
        assert_eq!(
            queued.remedy.as_deref(),
            Some(
                "run fewer cases at once (`--jobs 1`), or end other programs that keep the \
                 processors busy"
            )
        );
        let late = attempt(Verdict::Timeout, Some(Doubt::Late)).unwrap_err();
        assert_eq!(
            late.message,
            "this machine is too busy for a verdict on the probe call: an answer was so slow \
             that it may be to a SYN of after the probe's patience"
        );
    }
}
