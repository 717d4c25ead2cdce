//! Measures how long programs waited for a processor.

use std::time::Duration;

use super::kernel_file;
use super::pulse::Running;

/// File with the time in which at least one program of the host could run but waited for a
/// processor, in microseconds after `total=` (Linux v6.12, `Documentation/accounting/psi.rst`).
/// Without the file, the time counts as 0.
const PRESSURE: &str = "/proc/pressure/cpu";

/// Minimum delay that is reported. A shorter delay has no visible effect on kernel timers.
const NOTABLE: Duration = Duration::from_millis(100);

/// Measurement of delays since its start.
pub struct Delay {
    running: Running,
    late: Duration,
    pressure: Duration,
}

impl Delay {
    pub fn begin() -> Self {
        let running = Running::begin();
        let late = running.late();
        Self {
            running,
            late,
            pressure: pressure(),
        }
    }

    /// Returns how long this process was kept from running, in milliseconds.
    pub fn of_this(&self) -> u64 {
        milliseconds(self.running.late().saturating_sub(self.late))
    }

    /// Returns how long this process or another program of the host waited for a processor, in
    /// milliseconds.
    pub fn of_any(&self) -> u64 {
        let pressure = pressure().saturating_sub(self.pressure);
        self.of_this().max(milliseconds(pressure))
    }
}

fn pressure() -> Duration {
    Duration::from_micros(total(&kernel_file::read(PRESSURE)).unwrap_or(0))
}

fn total(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let total = some.split(' ').find_map(|each| each.strip_prefix("total="));
    total?.parse().ok()
}

fn milliseconds(delay: Duration) -> u64 {
    if delay < NOTABLE {
        return 0;
    }
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_of_some_programs_is_read() {
        let text = "some avg10=99.76 avg60=99.18 avg300=94.81 total=1444308778\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(total(text), Some(1_444_308_778));
        assert_eq!(total(""), None);
    }

    #[test]
    fn delay_below_a_tenth_of_a_second_is_none() {
        assert_eq!(milliseconds(Duration::from_millis(99)), 0);
        assert_eq!(milliseconds(Duration::from_millis(100)), 100);
    }
}
