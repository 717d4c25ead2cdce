//! Measures retransmissions: the intervals between a packet and its copies.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use svclab_journey::Frame;

/// Lower bound of observed to expected interval. A timer never fires early, but packet time stamps
/// come from another clock.
const MIN_INTERVAL_RATIO: f64 = 0.9;

/// Upper bound of observed to expected interval. A busy machine delays packets, but twice the
/// interval is another interval.
const MAX_INTERVAL_RATIO: f64 = 1.9;

/// Time before the end of the maximum wait in which a retransmission is optional.
const OPTIONAL_BEFORE_END: Duration = Duration::from_millis(500);

/// Fields that a packet shares with its retransmissions only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PacketKey {
    source: IpAddr,
    destination: IpAddr,
    ports: Option<(u16, u16)>,
    sequence: Option<u32>,
}

/// Packet with its retransmissions.
pub(crate) struct Series {
    /// Source and destination. Empty for a packet without ports.
    pub ends: Vec<SocketAddr>,
    /// Intervals between the copies of the packet.
    pub intervals: Vec<Duration>,
}

/// Returns the intervals of each packet, in the order in which the packets were first captured.
/// `packets` are frames with their times in nanoseconds, in order of time.
pub(crate) fn series<'a>(packets: impl Iterator<Item = (u64, &'a Frame)>) -> Vec<Series> {
    let mut packets_by_key: Vec<(PacketKey, u64, Series)> = Vec::new();
    for (time, frame) in packets {
        let identity = PacketKey {
            source: frame.source,
            destination: frame.destination,
            ports: frame.ports,
            sequence: frame.tcp_header.map(|segment| segment.sequence),
        };
        if let Some((_, last, series)) =
            packets_by_key.iter_mut().find(|(own, ..)| *own == identity)
        {
            let pause = Duration::from_nanos(time.saturating_sub(*last));
            series.intervals.push(pause);
            *last = time;
        } else {
            let series = Series {
                ends: ends(frame),
                intervals: Vec::new(),
            };
            packets_by_key.push((identity, time, series));
        }
    }
    packets_by_key
        .into_iter()
        .map(|(_, _, series)| series)
        .collect()
}

/// Returns the source and the destination of a packet, or of the packet in its tunnel.
fn ends(frame: &Frame) -> Vec<SocketAddr> {
    let frame = frame.inner.as_deref().unwrap_or(frame);
    let Some((from, to)) = frame.ports else {
        return Vec::new();
    };
    vec![
        SocketAddr::new(frame.source, from),
        SocketAddr::new(frame.destination, to),
    ]
}

/// Whether the intervals of a packet match the expected intervals within the maximum wait. Later
/// retransmissions, as seen on a busy machine, are ignored. The first expected interval is always
/// required.
pub(crate) fn matches(expected: &[Duration], observed: &[Duration], patience: Duration) -> bool {
    let mut sum = Duration::ZERO;
    let required = expected
        .iter()
        .take_while(|pause| {
            sum += **pause;
            sum + OPTIONAL_BEFORE_END <= patience
        })
        .count();
    let required = required.max(expected.len().min(1));
    let mut sum = Duration::ZERO;
    let before_end = observed.iter().take_while(|pause| {
        sum += **pause;
        sum <= patience
    });
    let observed = &observed[..before_end.count().max(required).min(observed.len())];
    observed.len() >= required
        && observed.len() <= expected.len()
        && expected.iter().zip(observed).all(|(expected, seen)| {
            let ratio = seen.as_secs_f64() / expected.as_secs_f64();
            (MIN_INTERVAL_RATIO..MAX_INTERVAL_RATIO).contains(&ratio)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(values: &[f64]) -> Vec<Duration> {
        values
            .iter()
            .map(|one| Duration::from_secs_f64(*one))
            .collect()
    }

    fn matches_expected(observed: &[f64], patience: u64) -> bool {
        matches(
            &seconds(&[1.0, 2.0, 4.0]),
            &seconds(observed),
            Duration::from_secs(patience),
        )
    }

    #[test]
    fn retransmissions_max_wait_limits_required_count() {
        assert!(matches_expected(&[1.02], 3));
        // The second interval ends together with the maximum wait, so it is optional.
        assert!(matches_expected(&[1.02, 2.01], 3));
        assert!(!matches_expected(&[], 3));
        assert!(!matches_expected(&[], 0));
        assert!(matches(&[], &[], Duration::ZERO));
        assert!(matches_expected(&[1.02, 2.01, 4.2], 8));
        assert!(!matches_expected(&[1.02, 2.01], 8));
    }

    #[test]
    fn retransmissions_other_intervals_do_not_match() {
        assert!(!matches_expected(&[1.0, 1.0, 1.0], 8));
        assert!(!matches_expected(&[2.0, 4.0], 3));
        assert!(!matches_expected(&[1.0, 2.0, 4.0, 8.0], 20));
    }

    #[test]
    fn retransmissions_after_max_wait_are_ignored() {
        assert!(matches_expected(&[1.0, 2.01, 4.02, 8.0], 8));
        assert!(!matches_expected(&[1.0, 2.01, 4.02, 0.5], 8));
        assert!(!matches_expected(&[1.0, 1.0, 0.5, 8.0], 3));
    }
}
