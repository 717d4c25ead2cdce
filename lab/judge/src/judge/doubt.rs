//! Finds failed checks that a busy machine may explain.
//!
//! The kernel retransmits by its own clock, also while svclab waits for a processor. A capture may
//! therefore contain more packets than on an idle machine. A program that applies a step also runs
//! longer, and the kernel forgets UDP connections.

use std::fmt;
use std::iter;
use std::time::Duration;

use crate::check::Check;
use crate::judge::Judgement;
use crate::judge::traffic_shift::render_duration;
use svclab_model::evidence::Evidence;
use svclab_model::plan::{Namespace, Plan};
use svclab_scenario::count::Count;
use svclab_scenario::expectation::Expected;

/// First retransmission interval of a segment (Linux v6.12, `include/net/tcp.h`, `TCP_RTO_MIN`). No
/// segment of a shorter exchange is retransmitted.
const MIN_RETRANSMISSION_INTERVAL: Duration = Duration::from_millis(200);

/// Time after which conntrack forgets a UDP connection of one request and one answer (Linux v6.12,
/// `net/netfilter/nf_conntrack_proto_udp.c`, `udp_timeouts`).
const UDP_TIMEOUT: Duration = Duration::from_secs(30);

/// Sysctl that changes [`UDP_TIMEOUT`], in seconds.
const UDP_TIMEOUT_SYSCTL: &str = "net.netfilter.nf_conntrack_udp_timeout";

/// Failed expectation that may hold on a less busy machine. `Display` renders the cause of an
/// error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// Retransmissions may explain the result of the check.
    Retransmissions {
        /// Failed check.
        check: Check,
        /// Time for which svclab waited for a processor.
        delay: Duration,
    },
    /// Traffic shifted too late after a step.
    Step {
        /// Name of the step.
        name: String,
        /// Delay of the traffic shift.
        shift_delay: Duration,
        /// Time for which the programs of the step waited for a processor.
        delay: Duration,
    },
    /// Conntrack may have forgotten a UDP connection that was open across a step. The next packet then
    /// has no answer, or that of another endpoint.
    ForgottenConnection {
        /// Name of the probe.
        probe: String,
        /// Maximum time without packets.
        idle: Duration,
        /// Time after which a namespace of the lab forgets the connection.
        timeout: Duration,
    },
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retransmissions { check, delay } => {
                write!(f, "{}: ", check.target())?;
                match check {
                    Check::Packets {
                        expected, count, ..
                    } => write!(f, "{count} × {expected}, expected {}", expected.count)?,
                    Check::Retransmissions { expected, .. } => {
                        write!(f, "unexpected retransmissions of {expected}")?;
                    }
                    Check::Counter { expected, increase } => {
                        let (counter, grows) = (&expected.counter, expected.grows);
                        write!(f, "{counter} grew by {increase}, expected {grows}")?;
                    }
                    Check::Rule { expected, hits, .. } => write!(
                        f,
                        "{} packets match {} {} `{}`, expected {}",
                        hits.unwrap_or(0),
                        expected.table,
                        expected.chain,
                        expected.rule,
                        expected.hits
                    )?,
                    Check::Chain { .. }
                    | Check::Set { .. }
                    | Check::VirtualServer { .. }
                    | Check::Link { .. } => f.write_str("unexpected kernel state")?,
                }
                write!(
                    f,
                    ", while svclab waited {} for a processor",
                    render_duration(*delay)
                )
            }
            Self::Step {
                name,
                shift_delay,
                delay,
            } => write!(
                f,
                "traffic moved {} after step {name}, while programs waited {} for a processor",
                render_duration(*shift_delay),
                render_duration(*delay)
            ),
            Self::ForgottenConnection {
                probe,
                idle,
                timeout,
            } => write!(
                f,
                "the UDP connection of probe {probe} was idle for up to {}, and conntrack forgets it \
                 after {} s",
                render_duration(*idle),
                timeout.as_secs()
            ),
        }
    }
}

impl Doubt {
    /// Returns the first failed expectation that may hold on a less busy machine. `None` if a delay
    /// cannot be the cause. `plans` are those of the case's stages.
    pub(super) fn find<'a>(
        expected: &Expected,
        judgement: &Judgement,
        evidence: &Evidence,
        plans: impl Iterator<Item = &'a Plan>,
    ) -> Option<Self> {
        late_step(expected, judgement, evidence)
            .or_else(|| forgotten_connection(judgement, evidence, plans))
            .or_else(|| retransmissions(judgement, evidence))
    }
}

/// Returns a failed probe whose UDP connection was idle for so long that conntrack may have forgotten
/// it. If neither svclab nor, during a step, another program was late, this is what the lab tests.
fn forgotten_connection<'a>(
    judgement: &Judgement,
    evidence: &Evidence,
    plans: impl Iterator<Item = &'a Plan>,
) -> Option<Doubt> {
    let delays = evidence.stages.iter().flat_map(|stage| {
        let step = stage.step.as_ref().map(|step| step.delay_ms);
        iter::once(stage.delay_ms).chain(step)
    });
    if sum_ms(delays).is_zero() {
        return None;
    }
    let timeouts = plans.flat_map(|plan| plan.namespaces.iter().map(udp_timeout));
    let timeout = timeouts.min().unwrap_or(UDP_TIMEOUT);
    // The outcome is in the stage of the probe, the second exchange in the stage after the step.
    let mut failed = judgement.probes().filter(|probe| !probe.holds);
    failed.find_map(|probe| {
        let idle = evidence
            .attempts()
            .filter(|attempt| attempt.probe == probe.name)
            .filter_map(|attempt| attempt.idle)
            .max()?;
        (idle >= timeout).then(|| Doubt::ForgottenConnection {
            probe: probe.name.clone(),
            idle,
            timeout,
        })
    })
}

/// Returns the time after which a namespace forgets a UDP connection without packets.
fn udp_timeout(namespace: &Namespace) -> Duration {
    let mut sysctls = namespace.sysctls.iter().rev();
    let sysctl = sysctls.find(|sysctl| sysctl.key == UDP_TIMEOUT_SYSCTL);
    let seconds = sysctl.and_then(|sysctl| sysctl.value.trim().parse().ok());
    seconds.map_or(UDP_TIMEOUT, Duration::from_secs)
}

/// Returns a failed check whose result retransmissions may explain.
fn retransmissions(judgement: &Judgement, evidence: &Evidence) -> Option<Doubt> {
    let delay = sum_ms(evidence.stages.iter().map(|stage| stage.delay_ms));
    let mut attempts = evidence.attempts();
    if delay.is_zero() || attempts.all(|attempt| attempt.duration < MIN_RETRANSMISSION_INTERVAL) {
        return None;
    }
    let mut checks = judgement.checks();
    let check = checks.find(|check| depends_on_retransmissions(check) && !check.holds())?;
    Some(Doubt::Retransmissions {
        check: check.clone(),
        delay,
    })
}

fn sum_ms(delays_ms: impl Iterator<Item = u64>) -> Duration {
    Duration::from_millis(delays_ms.fold(0, u64::saturating_add))
}

/// Whether retransmissions can change the result of a check. If no packet is expected, they cannot.
fn depends_on_retransmissions(check: &Check) -> bool {
    let can_exceed = |count: Count| count.max().is_some_and(|max| max > 0);
    match check {
        Check::Packets { expected, .. } => can_exceed(expected.count),
        Check::Retransmissions { .. } => true,
        Check::Counter { expected, .. } => can_exceed(expected.grows),
        Check::Rule { expected, .. } => can_exceed(expected.hits),
        Check::Chain { .. }
        | Check::Set { .. }
        | Check::VirtualServer { .. }
        | Check::Link { .. } => false,
    }
}

/// Returns a step after which traffic shifted too late only because programs waited for a
/// processor.
fn late_step(expected: &Expected, judgement: &Judgement, evidence: &Evidence) -> Option<Doubt> {
    let mut stages = judgement.stages.iter().zip(&evidence.stages);
    stages.find_map(|(outcome, seen)| {
        let (outcome, seen) = (outcome.step.as_ref()?, seen.step.as_ref()?);
        let within = expected.steps.get(&outcome.name)?.within;
        let is_only_late = outcome.unmoved.is_empty() && outcome.packets_missed == 0;
        let shift_delay = outcome.shift_delay();
        let shift_delay = shift_delay.filter(|_| is_only_late && !outcome.holds())?;
        let delay = Duration::from_millis(seen.delay_ms);
        (shift_delay.saturating_sub(delay) <= within).then(|| Doubt::Step {
            name: outcome.name.clone(),
            shift_delay,
            delay,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::traffic_shift::TrafficShift;
    use crate::{Observed, ProbeOutcome, StageOutcome, StepOutcome};
    use svclab_model::evidence::{Attempt, StageEvidence, StepEvidence, Verdict};
    use svclab_model::plan::Sysctl;
    use svclab_scenario::expectation::{CounterExpectation, StepExpectation};

    fn evidence(late_ms: u64, took: Duration) -> Evidence {
        let attempt = Attempt {
            idle: None,
            probe: "call".to_owned(),
            index: 0,
            verdict: Verdict::Timeout,
            endpoint: None,
            seen_source: None,
            further_answers: Vec::new(),
            progress: None,
            local_address: None,
            duration: took,
            settled: false,
            error: None,
        };
        let stage = StageEvidence {
            attempts: vec![attempt],
            delay_ms: late_ms,
            ..StageEvidence::default()
        };
        Evidence {
            stages: vec![stage],
            ..Evidence::default()
        }
    }

    fn counter(grows: Count) -> Judgement {
        let expected = CounterExpectation {
            on: "node-1".to_owned(),
            counter: "TcpRetransSegs".to_owned(),
            grows,
        };
        Judgement {
            counters: vec![Check::Counter {
                expected,
                increase: 5,
            }],
            ..Judgement::default()
        }
    }

    fn find(expected: &Expected, judgement: &Judgement, evidence: &Evidence) -> Option<String> {
        let doubt = Doubt::find(expected, judgement, evidence, iter::empty());
        doubt.map(|doubt| doubt.to_string())
    }

    #[test]
    fn find_doubtful_retransmissions_delayed_returns_message() {
        let judgement = counter(Count::exactly(2));
        let find = |late, took| find(&Expected::default(), &judgement, &evidence(late, took));
        let took = Duration::from_secs(3);
        assert_eq!(
            find(400, took).as_deref(),
            Some(
                "node-1: TcpRetransSegs grew by 5, expected 2, while svclab waited 400 ms for a \
                 processor"
            )
        );
        // No delay, or no retransmission.
        assert_eq!(find(0, took), None);
        assert_eq!(find(400, Duration::from_millis(50)), None);
    }

    #[test]
    fn find_doubtful_no_packets_expected_returns_none() {
        let judgement = counter(Count::exactly(0));
        let evidence = evidence(400, Duration::from_secs(3));
        assert_eq!(find(&Expected::default(), &judgement, &evidence), None);
    }

    fn shift_message(late_ms: u64) -> Option<String> {
        let name = "leave".to_owned();
        let within = Duration::from_secs(2);
        let expected = Expected {
            steps: [(name.clone(), StepExpectation { within })].into(),
            ..Expected::default()
        };
        let shift = TrafficShift {
            probe: "call".to_owned(),
            delay_us: 3_000_000,
            to: "pod/default/web".to_owned(),
        };
        let judgement = Judgement {
            stages: vec![StageOutcome {
                step: Some(StepOutcome {
                    name,
                    shifts: vec![shift],
                    within: Some(within),
                    ..StepOutcome::default()
                }),
                probes: Vec::new(),
            }],
            ..Judgement::default()
        };
        let step = StepEvidence {
            delay_ms: late_ms,
            ..StepEvidence::default()
        };
        let stage = StageEvidence {
            step: Some(step),
            ..StageEvidence::default()
        };
        let evidence = Evidence {
            stages: vec![stage],
            ..Evidence::default()
        };
        find(&expected, &judgement, &evidence)
    }

    #[test]
    fn find_doubtful_late_step_returns_message() {
        assert_eq!(
            shift_message(1000).as_deref(),
            Some(
                "traffic moved 3.00 s after step leave, while programs waited 1.00 s for a \
                 processor"
            )
        );
        assert_eq!(shift_message(900), None);
    }

    #[test]
    fn find_doubtful_forgotten_udp_connection_returns_message() {
        let find = |idle: u64, holds: bool, late_ms: u64, plan: &Plan| {
            // The outcome belongs to the first stage, the second exchange to a later one.
            let mut evidence = evidence(late_ms, Duration::from_secs(3));
            evidence.stages[0].attempts[0].idle = Some(Duration::from_secs(idle));
            evidence.stages.insert(0, StageEvidence::default());
            let probe = ProbeOutcome {
                name: "call".to_owned(),
                from: "laptop".to_owned(),
                to: "node-1:30053".to_owned(),
                step: None,
                expected: None,
                observed: Observed::default(),
                holds,
            };
            let judgement = Judgement {
                stages: vec![StageOutcome {
                    step: None,
                    probes: vec![probe],
                }],
                ..Judgement::default()
            };
            let plans = iter::once(plan);
            let doubt = Doubt::find(&Expected::default(), &judgement, &evidence, plans);
            doubt.map(|doubt| doubt.to_string())
        };
        let plan = Plan::default();
        assert_eq!(
            find(41, false, 100, &plan).as_deref(),
            Some(
                "the UDP connection of probe call was idle for up to 41.00 s, and conntrack forgets \
                 it after 30 s"
            )
        );
        assert_eq!(find(29, false, 100, &plan), None);
        assert_eq!(find(41, true, 100, &plan), None);
        assert_eq!(find(41, false, 0, &plan), None);
        let with_timeout = |seconds: &str| Plan {
            namespaces: vec![Namespace::default(), namespace_with_timeouts(&[seconds])],
            ..Plan::default()
        };
        assert_eq!(
            find(29, false, 100, &with_timeout("20")).as_deref(),
            Some(
                "the UDP connection of probe call was idle for up to 29.00 s, and conntrack forgets \
                 it after 20 s"
            )
        );
    }

    fn namespace_with_timeouts(seconds: &[&str]) -> Namespace {
        let sysctl = |value: &&str| Sysctl {
            key: UDP_TIMEOUT_SYSCTL.to_owned(),
            value: (*value).to_owned(),
            link: None,
            optional: false,
        };
        Namespace {
            sysctls: seconds.iter().map(sysctl).collect(),
            ..Namespace::default()
        }
    }

    #[test]
    fn udp_timeout_of_a_namespace_is_that_of_its_last_sysctl() {
        let timeout = |values: &[&str]| udp_timeout(&namespace_with_timeouts(values));
        assert_eq!(timeout(&[]), UDP_TIMEOUT);
        assert_eq!(timeout(&["5", "200"]), Duration::from_secs(200));
    }
}
