//! Finds failed checks that a busy machine may explain.
//!
//! The kernel retransmits by its own clock, also while svclab waits for a processor. A capture may
//! therefore contain more packets than on an idle machine. A program that applies a step also runs
//! longer.

use std::time::Duration;

use crate::check::Check;
use crate::judge::Judgement;
use crate::judge::step::render_duration;
use svclab_model::evidence::Evidence;
use svclab_scenario::count::Count;
use svclab_scenario::expectation::Expected;

/// First retransmission interval of a segment (Linux v6.12, `include/net/tcp.h`, `TCP_RTO_MIN`). No
/// segment of a shorter exchange is retransmitted.
const MIN_RETRANSMISSION_INTERVAL: Duration = Duration::from_millis(200);

/// Returns the first failed expectation that may hold on a less busy machine. `None` if a delay
/// cannot be the cause.
pub fn find_doubtful(
    expected: &Expected,
    judgement: &Judgement,
    evidence: &Evidence,
) -> Option<String> {
    let later = evidence.steps.iter().map(|step| &*step.evidence);
    let mut stages = std::iter::once(evidence).chain(later);
    let delays = stages.clone().map(|stage| stage.delay_ms);
    let late = delays.fold(0, u64::saturating_add);
    let late = Duration::from_millis(late);
    let mut attempts = stages.by_ref().flat_map(|stage| &stage.attempts);
    let has_retransmissions =
        !late.is_zero() && attempts.any(|attempt| attempt.duration >= MIN_RETRANSMISSION_INTERVAL);
    let retransmission_message = || {
        let check = retransmission_checks(expected, judgement).find(|check| !check.holds)?;
        Some(format!(
            "{}: expected {}, observed {}, while svclab waited {} for a processor",
            check.target,
            check.expected,
            check.observed,
            render_duration(late)
        ))
    };
    late_step(expected, judgement, evidence)
        .or_else(|| has_retransmissions.then(retransmission_message).flatten())
}

/// Returns the checks whose result retransmissions can change.
fn retransmission_checks<'j>(
    expected: &'j Expected,
    judgement: &'j Judgement,
) -> impl Iterator<Item = &'j Check> {
    let wire = expected.wire.iter().flat_map(|wire| {
        let intervals = wire.resent.is_some().then_some(true);
        std::iter::once(can_exceed(wire.count)).chain(intervals)
    });
    let counters = expected
        .counters
        .iter()
        .map(|counter| can_exceed(counter.grows));
    let rules = expected.rules.iter().map(|rule| can_exceed(rule.hits));
    let pairs = judgement
        .wire
        .iter()
        .zip(wire)
        .chain(judgement.counters.iter().zip(counters))
        .chain(judgement.rules.iter().zip(rules));
    pairs.filter_map(|(check, timed)| timed.then_some(check))
}

/// Whether retransmissions may explain additional packets. If no packet is expected,
/// retransmissions cannot.
fn can_exceed(count: Count) -> bool {
    count.max().is_some_and(|max| max > 0)
}

/// Returns a step after which traffic shifted too late only because programs waited for a
/// processor.
fn late_step(expected: &Expected, judgement: &Judgement, evidence: &Evidence) -> Option<String> {
    let mut steps = judgement.steps.iter().zip(&evidence.steps);
    steps.find_map(|(outcome, seen)| {
        let within = expected.steps.get(&outcome.name)?.within;
        let moved = outcome.shift_delay().filter(|_| !outcome.holds)?;
        let waited = Duration::from_millis(seen.delay_ms);
        (moved.saturating_sub(waited) <= within).then(|| {
            format!(
                "traffic moved {} after step {}, while programs waited {} for a processor",
                render_duration(moved),
                outcome.name,
                render_duration(waited)
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StepOutcome;
    use crate::judge::step::TrafficShift;
    use svclab_model::evidence::{Attempt, StepEvidence, Verdict};
    use svclab_scenario::expectation::{CounterExpectation, StepExpectation};

    fn evidence(late_ms: u64, took: Duration) -> Evidence {
        let attempt = Attempt {
            probe: "call".to_owned(),
            index: 0,
            verdict: Verdict::Timeout,
            endpoint: None,
            seen_source: None,
            local_address: None,
            duration: took,
            settled: false,
            error: None,
        };
        Evidence {
            attempts: vec![attempt],
            delay_ms: late_ms,
            ..Evidence::default()
        }
    }

    fn counter(grows: Count) -> (Expected, Judgement) {
        let on = "node-1".to_owned();
        let counter = "TcpRetransSegs".to_owned();
        let check = Check {
            target: on.clone(),
            expected: format!("{counter} grows by {grows}"),
            observed: "by 5".to_owned(),
            holds: false,
        };
        let expected = Expected {
            counters: vec![CounterExpectation { on, counter, grows }],
            ..Expected::default()
        };
        let judgement = Judgement {
            counters: vec![check],
            ..Judgement::default()
        };
        (expected, judgement)
    }

    #[test]
    fn find_doubtful_retransmissions_delayed_returns_message() {
        let (expected, judgement) = counter(Count::exactly(2));
        let (late, took) = (400, Duration::from_secs(3));
        assert_eq!(
            find_doubtful(&expected, &judgement, &evidence(late, took)).as_deref(),
            Some(
                "node-1: expected TcpRetransSegs grows by 2, observed by 5, while svclab waited \
                 400 ms for a processor"
            )
        );
        // No delay, or no retransmission.
        assert_eq!(
            find_doubtful(&expected, &judgement, &evidence(0, took)),
            None
        );
        let short = Duration::from_millis(50);
        assert_eq!(
            find_doubtful(&expected, &judgement, &evidence(late, short)),
            None
        );
    }

    #[test]
    fn find_doubtful_no_packets_expected_returns_none() {
        let (expected, judgement) = counter(Count::exactly(0));
        let evidence = evidence(400, Duration::from_secs(3));
        assert_eq!(find_doubtful(&expected, &judgement, &evidence), None);
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
            steps: vec![StepOutcome {
                name,
                applied_us: 0,
                shifts: vec![shift],
                expected: None,
                holds: false,
            }],
            ..Judgement::default()
        };
        let step = StepEvidence {
            delay_ms: late_ms,
            ..StepEvidence::default()
        };
        let evidence = Evidence {
            steps: vec![step],
            ..Evidence::default()
        };
        find_doubtful(&expected, &judgement, &evidence)
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
}
