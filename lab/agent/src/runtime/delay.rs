//! Measures how long programs waited for a processor.

use std::time::Duration;

use crate::runtime::kernel_file;
use crate::runtime::process_clock::ClockGuard;

/// File with the time in which at least one program of the host could run but waited for a
/// processor, in microseconds after `total=` (Linux v6.12, `Documentation/accounting/psi.rst`).
/// Without the file, the time counts as 0.
const PRESSURE_FILE: &str = "/proc/pressure/cpu";

/// Minimum delay that is reported. A shorter delay has no visible effect on kernel timers.
const MIN_DELAY: Duration = Duration::from_millis(100);

/// Measurement of delays since its start.
pub(crate) struct Delay {
    running: ClockGuard,
    late: Duration,
    pressure: Duration,
}

impl Delay {
    pub(crate) fn start() -> Self {
        let running = ClockGuard::start();
        let late = running.late();
        Self {
            running,
            late,
            pressure: pressure(),
        }
    }

    /// Returns how long this process was kept from running, in milliseconds.
    pub(crate) fn process_ms(&self) -> u64 {
        reported_ms(self.running.late().saturating_sub(self.late))
    }

    /// Returns how long this process or another program of the host waited for a processor, in
    /// milliseconds.
    pub(crate) fn host_ms(&self) -> u64 {
        let pressure = pressure().saturating_sub(self.pressure);
        self.process_ms().max(reported_ms(pressure))
    }
}

fn pressure() -> Duration {
    Duration::from_micros(parse_total(&kernel_file::read(PRESSURE_FILE)).unwrap_or(0))
}

fn parse_total(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let total = some
        .split(' ')
        .find_map(|field| field.strip_prefix("total="));
    total?.parse().ok()
}

fn reported_ms(delay: Duration) -> u64 {
    if delay < MIN_DELAY {
        return 0;
    }
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_file_total_of_some_is_parsed() {
        let text = "some avg10=99.76 avg60=99.18 avg300=94.81 total=1444308778\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse_total(text), Some(1_444_308_778));
        assert_eq!(parse_total(""), None);
    }

    #[test]
    fn delay_below_100_ms_is_reported_as_zero() {
        assert_eq!(reported_ms(Duration::from_millis(99)), 0);
        assert_eq!(reported_ms(Duration::from_millis(100)), 100);
    }
}
