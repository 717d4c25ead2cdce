//! Waiting for what another task of this process must do first.

use std::time::Duration;

use tokio::time::sleep;

/// In how many parts a wait is divided.
const PARTS: u32 = 10;

/// Waits for so long of this process's own time: a pause in which nothing of it ran, on a
/// machine that is busy, counts for one part at most. Whoever answers lives here, too, so
/// that one who got no time to answer is not taken for one who says nothing.
pub async fn over(patience: Duration) {
    for _ in 0..PARTS {
        sleep(patience / PARTS).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_pause_of_the_whole_process_counts_for_a_part() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let begun = Instant::now();
        runtime.block_on(async {
            // Nothing else of it runs meanwhile.
            let busy = async { std::thread::sleep(Duration::from_millis(200)) };
            tokio::join!(over(Duration::from_millis(100)), busy);
        });
        // One of its ten parts, at most, has passed by then.
        assert!(begun.elapsed() >= Duration::from_millis(285));
    }
}
