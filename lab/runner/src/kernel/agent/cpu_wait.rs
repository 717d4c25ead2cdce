//! Waits for a process, and counts only the time in which the process could run.

use std::collections::VecDeque;
use std::fs;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::kernel::processes::children;

/// A reply within this time, or within 1/10 of the maximum wait, needs no measurement. Measuring a
/// process and those below it takes longer than most replies.
const MAX_UNMEASURED: Duration = Duration::from_millis(100);

/// Maximum wait for a process that gets no processor, as a multiple of the maximum wait for a
/// running process.
const MAX_WAIT_FACTOR: u32 = 10;

/// Returns the output of `work` if it ends within `max_wait`, else `None`. Time in which `process`
/// or a process below it waits for a processor does not count, up to [`MAX_WAIT_FACTOR`] times
/// `max_wait`.
pub(crate) async fn within_cpu_time<T>(
    process: Option<u32>,
    max_wait: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    within_measured(max_wait, work, || process.map_or(Duration::ZERO, cpu_wait)).await
}

async fn within_measured<T>(
    max_wait: Duration,
    work: impl Future<Output = T>,
    waited: impl Fn() -> Duration,
) -> Option<T> {
    let mut work = pin!(work);
    let soon = MAX_UNMEASURED.min(max_wait / 10);
    if let Ok(done) = timeout(soon, &mut work).await {
        return Some(done);
    }
    let remaining = max_wait.saturating_sub(soon);
    let (begun, before) = (Instant::now(), waited());
    let mut left = remaining;
    loop {
        if let Ok(done) = timeout(left, &mut work).await {
            return Some(done);
        }
        let passed = begun.elapsed();
        let ran = passed.saturating_sub(waited().saturating_sub(before));
        left = remaining
            .saturating_sub(ran)
            .min((remaining * MAX_WAIT_FACTOR).saturating_sub(passed));
        if left.is_zero() {
            return None;
        }
    }
}

/// Returns how long a process has waited for a processor. The result is the longest wait of any
/// thread of the process or of the processes below it, such as a virtual CPU.
fn cpu_wait(process: u32) -> Duration {
    let mut pending = VecDeque::from([process]);
    let mut longest = Duration::ZERO;
    while let Some(process) = pending.pop_front() {
        let threads = fs::read_dir(format!("/proc/{process}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let schedstat = fs::read_to_string(thread.path().join("schedstat"));
            longest = longest.max(parse_delay(&schedstat.unwrap_or_default()));
        }
        pending.extend(children(process));
    }
    longest
}

/// Parses the second field of `schedstat`, in nanoseconds (Linux v6.12,
/// `Documentation/scheduler/sched-stats.rst`).
fn parse_delay(schedstat: &str) -> Duration {
    let field = schedstat.split_whitespace().nth(1);
    Duration::from_nanos(field.and_then(|field| field.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::runtime::Builder;

    use super::*;

    const MAX_WAIT: Duration = Duration::from_millis(50);

    /// Returns how long a process that never replies is waited for. The process waits for a
    /// processor during `share` of the time.
    fn time_until_given_up(share: f64) -> Duration {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let begun = Instant::now();
        let waited = || begun.elapsed().mul_f64(share);
        let nothing = runtime.block_on(within_measured(MAX_WAIT, pending::<()>(), waited));
        assert_eq!(nothing, None);
        begun.elapsed()
    }

    #[test]
    fn within_silent_running_process_is_given_up() {
        assert!(time_until_given_up(0.0) >= MAX_WAIT);
    }

    #[test]
    fn within_process_without_cpu_extends_wait() {
        // The process is not measured in the first tenth.
        let measured = MAX_WAIT * 9 / 10;
        assert!(time_until_given_up(0.75) >= 4 * measured);
        assert!(time_until_given_up(1.0) >= MAX_WAIT_FACTOR * measured);
    }

    #[test]
    fn within_quick_reply_is_not_measured() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let answer = async { tokio::task::yield_now().await };
        let waited = || panic!("the process is measured");
        let answered = runtime.block_on(within_measured(MAX_WAIT, answer, waited));
        assert_eq!(answered, Some(()));
    }

    #[test]
    fn delay_second_field_is_nanoseconds() {
        assert_eq!(parse_delay("311 4000 17\n"), Duration::from_micros(4));
        assert_eq!(parse_delay(""), Duration::ZERO);
    }
}
