//! Waits for a process, and counts only the time in which the process could run.

use std::collections::VecDeque;
use std::fs;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// A reply within this time, or within 1/10 of the maximum wait, needs no measurement. Measuring a
/// process and those below it takes longer than most replies.
const SOON: Duration = Duration::from_millis(100);

/// Maximum wait for a process that gets no processor, as a multiple of its patience.
const MOST: u32 = 10;

/// Returns the output of `doing` if it ends within `patience`, else `None`. Time in which `process`
/// or a process below it waits for a processor does not count, up to [`MOST`] times the patience.
pub async fn within<T>(
    process: Option<u32>,
    patience: Duration,
    doing: impl Future<Output = T>,
) -> Option<T> {
    within_beside(patience, doing, || process.map_or(Duration::ZERO, waited)).await
}

async fn within_beside<T>(
    patience: Duration,
    doing: impl Future<Output = T>,
    waited: impl Fn() -> Duration,
) -> Option<T> {
    let mut doing = pin!(doing);
    let soon = SOON.min(patience / 10);
    if let Ok(done) = timeout(soon, &mut doing).await {
        return Some(done);
    }
    let patience = patience.saturating_sub(soon);
    let (begun, before) = (Instant::now(), waited());
    let mut left = patience;
    loop {
        if let Ok(done) = timeout(left, &mut doing).await {
            return Some(done);
        }
        let passed = begun.elapsed();
        let ran = passed.saturating_sub(waited().saturating_sub(before));
        left = patience
            .saturating_sub(ran)
            .min((patience * MOST).saturating_sub(passed));
        if left.is_zero() {
            return None;
        }
    }
}

/// Returns how long a process has waited for a processor. The result is the longest wait of any
/// thread of the process or of the processes below it, such as a virtual CPU.
fn waited(process: u32) -> Duration {
    let mut all = VecDeque::from([process]);
    let mut longest = Duration::ZERO;
    while let Some(process) = all.pop_front() {
        let threads = fs::read_dir(format!("/proc/{process}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let read = |file: &str| fs::read_to_string(thread.path().join(file));
            longest = longest.max(read("schedstat").map_or(Duration::ZERO, |text| delay(&text)));
            let children = read("children").unwrap_or_default();
            all.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
    longest
}

/// Parses the second field of `schedstat`, in nanoseconds (Linux v6.12,
/// `Documentation/scheduler/sched-stats.rst`).
fn delay(schedstat: &str) -> Duration {
    let field = schedstat.split_whitespace().nth(1);
    Duration::from_nanos(field.and_then(|field| field.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::runtime::Builder;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(50);

    /// Returns how long a process that never replies is waited for. The process waits for a
    /// processor during `share` of the time.
    fn gave_up_after(share: f64) -> Duration {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let begun = Instant::now();
        let waited = || begun.elapsed().mul_f64(share);
        let nothing = runtime.block_on(within_beside(PATIENCE, pending::<()>(), waited));
        assert_eq!(nothing, None);
        begun.elapsed()
    }

    #[test]
    fn silent_process_with_a_processor_is_given_up() {
        assert!(gave_up_after(0.0) >= PATIENCE);
    }

    #[test]
    fn process_without_a_processor_is_waited_for() {
        // The process is not measured in the first tenth.
        let looked_at = PATIENCE * 9 / 10;
        assert!(gave_up_after(0.75) >= 4 * looked_at);
        assert!(gave_up_after(1.0) >= MOST * looked_at);
    }

    #[test]
    fn process_that_answers_soon_is_not_looked_at() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let answer = async { tokio::task::yield_now().await };
        let waited = || panic!("it is looked at");
        let answered = runtime.block_on(within_beside(PATIENCE, answer, waited));
        assert_eq!(answered, Some(()));
    }

    #[test]
    fn delay_is_the_second_field() {
        assert_eq!(delay("311 4000 17\n"), Duration::from_micros(4));
        assert_eq!(delay(""), Duration::ZERO);
    }
}
