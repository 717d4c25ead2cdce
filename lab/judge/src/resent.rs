//! Measures retransmissions: the intervals between a packet and its copies.

use std::net::IpAddr;
use std::time::Duration;

use svclab_journey::Frame;

/// Lower bound of observed to expected interval. A timer never fires early, but packet time stamps
/// come from another clock.
const EARLY: f64 = 0.9;

/// Upper bound of observed to expected interval. A busy machine delays packets, but twice the
/// interval is another interval.
const LATE: f64 = 1.9;

/// Time before the end of the maximum wait in which a retransmission is optional.
const UNCERTAIN: Duration = Duration::from_millis(500);

/// Fields that a packet shares with its retransmissions only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    source: IpAddr,
    destination: IpAddr,
    ports: Option<(u16, u16)>,
    sequence: Option<u32>,
}

/// Returns the intervals of each packet, in the order in which the packets were first captured.
/// `packets` are frames with their times in nanoseconds, in order of time.
pub fn pauses<'a>(packets: impl Iterator<Item = (u64, &'a Frame)>) -> Vec<Vec<Duration>> {
    let mut seen: Vec<(Identity, u64, Vec<Duration>)> = Vec::new();
    for (time, frame) in packets {
        let identity = Identity {
            source: frame.source,
            destination: frame.destination,
            ports: frame.ports,
            sequence: frame.segment.map(|segment| segment.sequence),
        };
        if let Some((_, last, pauses)) = seen.iter_mut().find(|(own, ..)| *own == identity) {
            pauses.push(Duration::from_nanos(time.saturating_sub(*last)));
            *last = time;
        } else {
            seen.push((identity, time, Vec::new()));
        }
    }
    seen.into_iter().map(|(_, _, pauses)| pauses).collect()
}

/// Whether the intervals of a packet match the expected intervals within the maximum wait. Later
/// retransmissions, as seen on a busy machine, are ignored.
pub fn hold(expected: &[Duration], seen: &[Duration], patience: Duration) -> bool {
    let mut sum = Duration::ZERO;
    let asked = expected
        .iter()
        .take_while(|pause| {
            sum += **pause;
            sum + UNCERTAIN <= patience
        })
        .count();
    let mut sum = Duration::ZERO;
    let in_time = seen.iter().take_while(|pause| {
        sum += **pause;
        sum <= patience
    });
    let seen = &seen[..in_time.count().max(asked).min(seen.len())];
    seen.len() >= asked
        && seen.len() <= expected.len()
        && expected.iter().zip(seen).all(|(expected, seen)| {
            let share = seen.as_secs_f64() / expected.as_secs_f64();
            (EARLY..LATE).contains(&share)
        })
}

/// Renders intervals, such as `1 s, 2.02 s`.
pub fn words(pauses: &[Duration]) -> String {
    let each: Vec<String> = pauses
        .iter()
        .map(|pause| {
            let hundredths = format!("{:.2}", pause.as_secs_f64());
            let short = hundredths.trim_end_matches('0').trim_end_matches('.');
            format!("{short} s")
        })
        .collect();
    each.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(all: &[f64]) -> Vec<Duration> {
        all.iter()
            .map(|one| Duration::from_secs_f64(*one))
            .collect()
    }

    fn holds(seen: &[f64], patience: u64) -> bool {
        hold(
            &seconds(&[1.0, 2.0, 4.0]),
            &seconds(seen),
            Duration::from_secs(patience),
        )
    }

    #[test]
    fn patience_decides_how_many_pauses_are_asked_for() {
        assert!(holds(&[1.02], 3));
        // The second interval ends together with the maximum wait, so it is optional.
        assert!(holds(&[1.02, 2.01], 3));
        assert!(!holds(&[], 3));
        assert!(holds(&[1.02, 2.01, 4.2], 8));
        assert!(!holds(&[1.02, 2.01], 8));
    }

    #[test]
    fn another_pace_is_another_pace() {
        assert!(!holds(&[1.0, 1.0, 1.0], 8));
        assert!(!holds(&[2.0, 4.0], 3));
        assert!(!holds(&[1.0, 2.0, 4.0, 8.0], 20));
    }

    #[test]
    fn packets_resent_after_patience_count_for_nothing() {
        assert!(holds(&[1.0, 2.01, 4.02, 8.0], 8));
        assert!(!holds(&[1.0, 2.01, 4.02, 0.5], 8));
        assert!(!holds(&[1.0, 1.0, 0.5, 8.0], 3));
    }

    #[test]
    fn pauses_read_as_people_write_them() {
        assert_eq!(words(&seconds(&[1.0, 2.019, 4.1])), "1 s, 2.02 s, 4.1 s");
    }
}
