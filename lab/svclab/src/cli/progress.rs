//! Shows the progress of a run on a terminal. Nothing is shown without a terminal, or in the first
//! second.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indexmap::IndexSet;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use svclab_diagnostic::printable::one_line;
use svclab_runner::run::Event;

/// Delay before the progress appears.
const SHOW_DELAY: Duration = Duration::from_secs(1);

/// Progress line on standard error.
pub(crate) struct ProgressDisplay {
    bar: ProgressBar,
    /// Time at which the line appears; `None` without a terminal or after it appeared.
    due: Option<Instant>,
    running: IndexSet<String>,
}

impl ProgressDisplay {
    /// Creates the progress of a run that starts now.
    pub(crate) fn new() -> Self {
        Self::with_template("{pos}/{len} {wide_msg}")
    }

    /// Creates the progress of trials that start now, whose total number is unknown.
    pub(crate) fn for_trials() -> Self {
        Self::with_template("{wide_msg}")
    }

    fn with_template(template: &str) -> Self {
        let mut progress = Self::hidden();
        if let Ok(style) = ProgressStyle::with_template(template) {
            progress.bar.set_style(style);
        }
        progress.due = io::stderr()
            .is_terminal()
            .then(|| Instant::now() + SHOW_DELAY);
        progress
    }

    /// Creates a progress that never appears.
    pub(crate) fn hidden() -> Self {
        Self {
            bar: ProgressBar::hidden(),
            due: None,
            running: IndexSet::new(),
        }
    }

    /// Waits for the delay and shows the line.
    pub(crate) async fn show(&mut self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
        self.due = None;
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        self.bar.tick();
    }

    /// Returns a handle of the line for messages.
    pub(crate) fn handle(&self) -> ProgressLine {
        ProgressLine(self.bar.clone())
    }

    pub(crate) fn set_total(&self, cases: usize) {
        self.bar
            .set_length(u64::try_from(cases).unwrap_or(u64::MAX));
    }

    pub(crate) fn on_case_started(&mut self, case: &str) {
        self.running.insert(case.to_owned());
        self.bar.set_message(running_message(&self.running));
    }

    pub(crate) fn on_case_ended(&mut self, case: &str) {
        self.running.shift_remove(case);
        self.bar.inc(1);
        self.bar.set_message(running_message(&self.running));
    }

    /// Prints on the same terminal.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Updates the line for an event. `print_event` prints the event on the same terminal.
    pub(crate) fn on_event<T>(&mut self, event: &Event, print_event: impl FnOnce() -> T) -> T {
        match event {
            Event::RunStarted { cases } => self.set_total(*cases),
            Event::CaseStarted { case } => self.on_case_started(case),
            Event::CaseEnded { result, .. } => self.on_case_ended(&result.case),
            Event::RunEnded { .. } => {
                self.due = None;
                self.bar.finish_and_clear();
            }
        }
        self.bar.suspend(print_event)
    }
}

/// Handle of the progress line.
#[derive(Clone)]
pub(crate) struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// Sets the message of the line, after `tell` prints to the same terminal.
    pub(crate) fn set_message(&self, words: &str, tell: impl FnOnce()) {
        self.0.suspend(tell);
        self.0.set_message(one_line(words).into_owned());
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Returns the case that has been running longest, and the number of other running cases.
fn running_message(running: &IndexSet<String>) -> String {
    match (running.first(), running.len()) {
        (None, _) => String::new(),
        (Some(only), 1) => one_line(only).into_owned(),
        (Some(first), many) => format!("{} and {} more", one_line(first), many - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_names_longest_running_case() {
        let words = |cases: &[&str]| {
            running_message(&cases.iter().map(|case| (*case).to_owned()).collect())
        };
        assert_eq!(words(&[]), "");
        assert_eq!(words(&["a/x=1"]), "a/x=1");
        assert_eq!(words(&["a/x=1", "b", "c"]), "a/x=1 and 2 more");
    }
}
