//! Renders the packets of a case: ladders of connections, connections side by side, and the timeline.

mod bytes;
pub(in crate::formats::html) mod connections;
pub(in crate::formats::html) mod ladder;
mod lanes;
pub(in crate::formats::html) mod side_by_side;
pub(in crate::formats::html) mod timeline;

/// Returns the microseconds from `start` to a time, both in nanoseconds.
fn micros(time: u64, start: u64) -> u64 {
    time.saturating_sub(start) / 1000
}

/// Renders microseconds as milliseconds.
fn millis(micros: u64) -> String {
    format!("{}.{:03} ms", micros / 1000, micros % 1000)
}
