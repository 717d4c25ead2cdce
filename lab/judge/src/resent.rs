//! When a packet is sent again: the pauses between it and those that repeat it.

use std::net::IpAddr;
use std::time::Duration;

use svclab_journey::Frame;

/// A timer is never early, but its packet's time stamp and its own clock are two.
const EARLY: f64 = 0.9;

/// A busy machine is late; a pause twice as long is another pause.
const LATE: f64 = 1.9;

/// So near its end the patience of a probe no longer tells whether a packet is
/// still sent.
const UNCERTAIN: Duration = Duration::from_millis(500);

/// What tells a packet from all but those that repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    source: IpAddr,
    destination: IpAddr,
    ports: Option<(u16, u16)>,
    sequence: Option<u32>,
}

/// The pauses of each packet that was seen, in the order in which they were first
/// seen. `packets` are frames with their times, in nanoseconds, in order.
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

/// Whether the pauses of a packet are those that are expected, as far as
/// `patience` goes. A busy machine resends packets after it, which count for nothing.
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

/// `1 s, 2.02 s`
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
        // The second ends with the patience: it may come or not.
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
