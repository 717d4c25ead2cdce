//! Corrects packet timestamps for changes of the system clock.
//!
//! The kernel stamps packets with the wall-clock time (Linux v6.12, `net/core/dev.c`,
//! `net_timestamp_set`); no other clock is available. A user, or a time client after the host
//! resumes, may set the clock while a lab runs. The order of packets and the intervals between them
//! must not depend on that.

use std::io;

use nix::time::{ClockId, clock_gettime};

/// Minimum change of the offset between the clocks that counts as a clock that was set, in
/// nanoseconds. A slewed clock deviates by 0.05 %.
const MIN_CLOCK_STEP: i128 = 100_000_000;

/// Maximum time between two uninterrupted clock readings, in nanoseconds.
const MAX_READ_GAP: i128 = 1_000_000;

/// Maximum number of attempts to read both clocks without interruption.
const MAX_READ_ATTEMPTS: usize = 8;

/// Tolerance of the test whether a time is possible, in nanoseconds.
const TIME_TOLERANCE: i128 = 10 * MAX_READ_GAP;

/// Both clocks at the same moment, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct ClockReading {
    /// Wall-clock time since the epoch.
    wall: i128,
    /// Monotonic time.
    monotonic: i128,
}

impl ClockReading {
    fn offset(self) -> i128 {
        self.wall - self.monotonic
    }
}

/// Wall clock with the changes since a lab was started.
#[derive(Debug)]
pub(crate) struct PacketClock {
    /// Wall-clock time at the start of the lab.
    started: i128,
    /// Offset from the monotonic clock to the wall clock at the last reading.
    offset: i128,
    /// Number to add to a timestamp to undo the changes of the clock: 0 at first, and a new sum
    /// after each change.
    corrections: Vec<i128>,
}

impl Default for PacketClock {
    /// Creates a clock for a lab that starts now.
    fn default() -> Self {
        // If the clocks cannot be read, timestamps are used without correction.
        Self::starting_at(read().unwrap_or(ClockReading {
            wall: 0,
            monotonic: 0,
        }))
    }
}

impl PacketClock {
    fn starting_at(now: ClockReading) -> Self {
        Self {
            started: now.wall,
            offset: now.offset(),
            corrections: vec![0],
        }
    }

    /// Returns the corrected time of a packet that was just received, in nanoseconds since the
    /// epoch. The result does not depend on changes of the clock since the lab started. `stamp` is
    /// the kernel's timestamp.
    pub(crate) fn time(&mut self, stamp: u64) -> u64 {
        match read() {
            Some(now) => self.time_at(stamp, now),
            None => stamp,
        }
    }

    /// Returns the current time of this clock.
    pub(crate) fn now(&mut self) -> u64 {
        let now = nanoseconds(ClockId::CLOCK_REALTIME).unwrap_or_default();
        self.time(u64::try_from(now).unwrap_or_default())
    }

    fn time_at(&mut self, stamp: u64, now: ClockReading) -> u64 {
        let set_by = now.offset() - std::mem::replace(&mut self.offset, now.offset());
        let mut undo = self.corrections.last().copied().unwrap_or_default();
        if set_by.abs() > MIN_CLOCK_STEP {
            undo -= set_by;
            self.corrections.push(undo);
        }
        // A packet is seen after the lab starts and before the packet is received. A timestamp
        // taken before the clock was set fits an earlier correction.
        let now = now.wall + undo;
        let possible = self.started - TIME_TOLERANCE..=now + TIME_TOLERANCE;
        let mut seen = self
            .corrections
            .iter()
            .rev()
            .map(|undo| i128::from(stamp) + undo);
        let seen = seen.find(|seen| possible.contains(seen)).unwrap_or(now);
        u64::try_from(seen).unwrap_or(stamp)
    }
}

/// Reads both clocks. Returns `None` when that fails or every attempt is interrupted.
fn read() -> Option<ClockReading> {
    for _ in 0..MAX_READ_ATTEMPTS {
        let before = nanoseconds(ClockId::CLOCK_MONOTONIC).ok()?;
        let day = nanoseconds(ClockId::CLOCK_REALTIME).ok()?;
        let after = nanoseconds(ClockId::CLOCK_MONOTONIC).ok()?;
        if after - before < MAX_READ_GAP {
            return Some(ClockReading {
                wall: day,
                monotonic: after,
            });
        }
    }
    None
}

fn nanoseconds(clock: ClockId) -> io::Result<i128> {
    let time = clock_gettime(clock)?;
    Ok(i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i128 = 1_000_000_000;
    const DAY: i128 = 86_400 * SECOND;
    const EPOCH: i128 = 1_700_000_000 * SECOND;

    /// Returns the corrected packet times of a lab that starts 5 s after boot. Packets are received
    /// 0.5 s after their timestamp. Each item is the second of the timestamp, the clock change at
    /// the timestamp, and the clock change at reception.
    fn times(packets: &[(i128, i128, i128)]) -> Vec<i128> {
        let mut clock = PacketClock::starting_at(ClockReading {
            wall: EPOCH + 5 * SECOND,
            monotonic: 5 * SECOND,
        });
        let times = packets.iter().map(|(second, stamped, received)| {
            let stamp = EPOCH + second * SECOND + stamped;
            let steady = second * SECOND + SECOND / 2;
            let day = EPOCH + steady + received;
            let time = clock.time_at(
                u64::try_from(stamp).unwrap(),
                ClockReading {
                    wall: day,
                    monotonic: steady,
                },
            );
            i128::from(time) - EPOCH
        });
        times.collect()
    }

    #[test]
    fn unset_clock_keeps_timestamps() {
        let packets = [(5, 0, 0), (6, 0, 0), (8, 0, 0)];
        assert_eq!(times(&packets), [5 * SECOND, 6 * SECOND, 8 * SECOND]);
    }

    #[test]
    fn clock_that_is_set_keeps_packet_times() {
        for by in [DAY, -DAY, 3600 * SECOND, -60 * SECOND] {
            // The clock is set between two packets, then between a timestamp and its reading, then
            // back.
            let packets = [
                (5, 0, 0),
                (6, 0, by),
                (7, by, by),
                (8, by, 2 * by),
                (9, 2 * by, 0),
                (10, 0, 0),
            ];
            let expected: Vec<_> = (5..=10).map(|second| second * SECOND).collect();
            assert_eq!(times(&packets), expected, "{by}");
        }
    }

    #[test]
    fn impossible_timestamp_becomes_receive_time() {
        let half = SECOND / 2;
        assert_eq!(times(&[(6, DAY, 0)]), [6 * SECOND + half]);
    }

    #[test]
    fn slewed_clock_keeps_timestamps() {
        let mut clock = PacketClock::starting_at(ClockReading {
            wall: EPOCH,
            monotonic: 0,
        });
        for second in 1..1000 {
            let steady = second * SECOND;
            let day = EPOCH + steady + steady / 2000;
            let stamp = u64::try_from(day).unwrap();
            assert_eq!(
                clock.time_at(
                    stamp,
                    ClockReading {
                        wall: day,
                        monotonic: steady
                    }
                ),
                stamp
            );
        }
    }

    #[test]
    fn host_clocks_are_read_without_gap() {
        let (first, second) = (read().unwrap(), read().unwrap());
        assert!(first.monotonic <= second.monotonic);
    }
}
