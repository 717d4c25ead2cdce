//! How far a run has come, on a terminal: nothing of it anywhere else, and nothing
//! of a run that is over within a second.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indexmap::IndexSet;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use svclab_diagnostic::printable::one_line;
use svclab_runner::results::Event;

/// After how long it is shown.
const SOON: Duration = Duration::from_secs(1);

/// A line on standard error.
pub struct Progress {
    bar: ProgressBar,
    /// When it is shown; never where there is no terminal.
    due: Option<Instant>,
    running: IndexSet<String>,
}

impl Progress {
    /// Of a run that begins now.
    pub fn begin() -> Self {
        Self::of("{pos}/{len} {wide_msg}")
    }

    /// Of something that begins now, of which nobody knows how much there is.
    pub fn of_trials() -> Self {
        Self::of("{wide_msg}")
    }

    fn of(template: &str) -> Self {
        let bar = ProgressBar::hidden();
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let due = io::stderr().is_terminal().then(|| Instant::now() + SOON);
        Self {
            bar,
            due,
            running: IndexSet::new(),
        }
    }

    /// Shows it when it is time to.
    pub async fn show(&mut self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
        self.due = None;
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        self.bar.tick();
    }

    /// The line, for what is said beside it.
    pub fn line(&self) -> Line {
        Line(self.bar.clone())
    }

    /// Says how many cases there are.
    pub fn all(&self, cases: usize) {
        self.bar
            .set_length(u64::try_from(cases).unwrap_or(u64::MAX));
    }

    /// Notes that a case begins.
    pub fn begun(&mut self, case: &str) {
        self.running.insert(case.to_owned());
        self.bar.set_message(words(&self.running));
    }

    /// Notes that a case has ended.
    pub fn ended(&mut self, case: &str) {
        self.running.shift_remove(case);
        self.bar.inc(1);
        self.bar.set_message(words(&self.running));
    }

    /// Notes what happens, which is told by `tell` on the same terminal.
    pub fn event<T>(&mut self, event: &Event, tell: impl FnOnce() -> T) -> T {
        match event {
            Event::Begun { cases } => self.all(*cases),
            Event::Started { case } => self.begun(case),
            Event::Finished { result, .. } => self.ended(&result.case),
            Event::Over { .. } => {
                self.due = None;
                self.bar.finish_and_clear();
            }
        }
        self.bar.suspend(tell)
    }
}

/// What the line says.
#[derive(Clone)]
pub struct Line(ProgressBar);

impl Line {
    /// Says this, and prints what `tell` tells on the same terminal.
    pub fn say(&self, words: &str, tell: impl FnOnce()) {
        self.0.suspend(tell);
        self.0.set_message(one_line(words).into_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The case that has been running longest, and how many more there are.
fn words(running: &IndexSet<String>) -> String {
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
    fn what_runs_longest_is_named() {
        let words = |cases: &[&str]| words(&cases.iter().map(|case| (*case).to_owned()).collect());
        assert_eq!(words(&[]), "");
        assert_eq!(words(&["a/x=1"]), "a/x=1");
        assert_eq!(words(&["a/x=1", "b", "c"]), "a/x=1 and 2 more");
    }
}
