//! When packets were seen, by a clock that nobody sets.
//!
//! The kernel stamps packets with the time of day (Linux v6.12, `net/core/dev.c`,
//! `net_timestamp_set`), and there is no other clock to be had for them. Somebody
//! may set it while a lab stands: a time server's client after a machine has slept,
//! or a user. What is made of the stamps must not hang on that: the order of packets
//! and the pauses between them.

use std::io;

use nix::time::{ClockId, clock_gettime};

/// The clocks go apart by so much only if one of them is set. One that is steered
/// gains or loses half a thousandth.
const SET: i128 = 100_000_000;

/// Two readings that nothing came between are less than so far apart.
const TOGETHER: i128 = 1_000_000;

/// How often it is tried to read both clocks with nothing in between.
const TRIES: usize = 8;

/// How far off a time may be of which it is asked whether it can be.
const SLACK: i128 = 10 * TOGETHER;

/// Both clocks at one moment, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// The time of day, since the epoch.
    day: i128,
    /// What only ever goes on.
    steady: i128,
}

impl Reading {
    fn ahead(self) -> i128 {
        self.day - self.steady
    }
}

/// What the time of day was set to since a lab was begun.
#[derive(Debug)]
pub struct Clock {
    /// When it was begun, by the time of day.
    begun: i128,
    /// By how much the time of day was ahead of the steady clock when both were
    /// read last.
    ahead: i128,
    /// What has to be added to a stamp to undo that the clock was set: nothing at
    /// first, and another sum after each time.
    undo: Vec<i128>,
}

impl Default for Clock {
    /// A clock for a lab that begins now.
    fn default() -> Self {
        // Where the clocks cannot be read, stamps are taken as they are.
        Self::since(read().unwrap_or(Reading { day: 0, steady: 0 }))
    }
}

impl Clock {
    fn since(now: Reading) -> Self {
        Self {
            begun: now.day,
            ahead: now.ahead(),
            undo: vec![0],
        }
    }

    /// When a packet was seen that has just been received, in nanoseconds since the
    /// epoch by the clock as nobody has set it since the lab began; `stamp` is the
    /// kernel's.
    pub fn time(&mut self, stamp: u64) -> u64 {
        match read() {
            Some(now) => self.time_at(stamp, now),
            None => stamp,
        }
    }

    /// What time it is by that clock.
    pub fn now(&mut self) -> u64 {
        let now = nanoseconds(ClockId::CLOCK_REALTIME).unwrap_or_default();
        self.time(u64::try_from(now).unwrap_or_default())
    }

    fn time_at(&mut self, stamp: u64, now: Reading) -> u64 {
        let set_by = now.ahead() - std::mem::replace(&mut self.ahead, now.ahead());
        let mut undo = self.undo.last().copied().unwrap_or_default();
        if set_by.abs() > SET {
            undo -= set_by;
            self.undo.push(undo);
        }
        // A packet is seen after the lab was begun and before it is received. One
        // that was stamped before the clock was set fits what it was before.
        let now = now.day + undo;
        let possible = self.begun - SLACK..=now + SLACK;
        let mut seen = self.undo.iter().rev().map(|undo| i128::from(stamp) + undo);
        let seen = seen.find(|seen| possible.contains(seen)).unwrap_or(now);
        u64::try_from(seen).unwrap_or(stamp)
    }
}

/// Reads both clocks; none where that is refused or something always comes between.
fn read() -> Option<Reading> {
    for _ in 0..TRIES {
        let before = nanoseconds(ClockId::CLOCK_MONOTONIC).ok()?;
        let day = nanoseconds(ClockId::CLOCK_REALTIME).ok()?;
        let after = nanoseconds(ClockId::CLOCK_MONOTONIC).ok()?;
        if after - before < TOGETHER {
            return Some(Reading { day, steady: after });
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

    /// A lab that was begun five seconds after this machine was, and packets that
    /// are received half a second after they are stamped: the second at which each
    /// is stamped, and by how much the clock is set ahead then and when it is
    /// received.
    fn times(packets: &[(i128, i128, i128)]) -> Vec<i128> {
        let mut clock = Clock::since(Reading {
            day: EPOCH + 5 * SECOND,
            steady: 5 * SECOND,
        });
        let times = packets.iter().map(|(second, stamped, received)| {
            let stamp = EPOCH + second * SECOND + stamped;
            let steady = second * SECOND + SECOND / 2;
            let day = EPOCH + steady + received;
            let time = clock.time_at(u64::try_from(stamp).unwrap(), Reading { day, steady });
            i128::from(time) - EPOCH
        });
        times.collect()
    }

    #[test]
    fn a_clock_that_nobody_sets_is_taken_as_it_is() {
        let packets = [(5, 0, 0), (6, 0, 0), (8, 0, 0)];
        assert_eq!(times(&packets), [5 * SECOND, 6 * SECOND, 8 * SECOND]);
    }

    #[test]
    fn a_clock_that_is_set_changes_no_time() {
        for by in [DAY, -DAY, 3600 * SECOND, -60 * SECOND] {
            // Once set between two packets, once between a stamp and its reading,
            // and back again.
            let packets = [
                (5, 0, 0),
                (6, 0, by),
                (7, by, by),
                (8, by, 2 * by),
                (9, 2 * by, 0),
                (10, 0, 0),
            ];
            let wanted: Vec<_> = (5..=10).map(|second| second * SECOND).collect();
            assert_eq!(times(&packets), wanted, "{by}");
        }
    }

    #[test]
    fn a_stamp_of_no_known_clock_is_as_late_as_it_can_be() {
        let half = SECOND / 2;
        assert_eq!(times(&[(6, DAY, 0)]), [6 * SECOND + half]);
    }

    #[test]
    fn a_clock_that_is_steered_is_taken_as_it_is() {
        let mut clock = Clock::since(Reading {
            day: EPOCH,
            steady: 0,
        });
        for second in 1..1000 {
            let steady = second * SECOND;
            let day = EPOCH + steady + steady / 2000;
            let stamp = u64::try_from(day).unwrap();
            assert_eq!(clock.time_at(stamp, Reading { day, steady }), stamp);
        }
    }

    #[test]
    fn the_clocks_of_this_machine_can_be_read() {
        let (first, second) = (read().unwrap(), read().unwrap());
        assert!(first.steady <= second.steady);
    }
}
