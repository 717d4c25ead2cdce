//! What every format is: something that takes events, told in some way.

use std::io::{self, Write};

use svclab_runner::results::Event;

/// How a run is told.
pub struct Options<'a> {
    /// Of every case everything that was seen, and what it says of claims.
    pub verbose: bool,
    /// Whether the output takes colours. Of the formats, only [`super::Format::Human`] has
    /// any. For stdout that is `AutoStream::choice(&stdout()) !=
    /// ColorChoice::Never` of anstream, which knows of terminals, `NO_COLOR` and
    /// `CLICOLOR_FORCE`.
    pub colour: bool,
    /// The command that runs a case again, up to the case's name: `svclab run`, and
    /// whatever options the case depends on.
    pub again: String,
    /// Where [`super::Format::Github`] appends its table in Markdown: the file that
    /// `GITHUB_STEP_SUMMARY` names, opened for appending.
    pub summary: Option<Box<dyn Write + 'a>>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            verbose: false,
            colour: false,
            again: "svclab run".to_owned(),
            summary: None,
        }
    }
}

/// Tells of a run, event by event.
pub trait Writer {
    /// Takes the next event; what can be said by then is written and flushed.
    ///
    /// When whoever reads the output has gone (`svclab run | head -1`), that is no
    /// error: the rest is said to nobody, and the run's exit code is what it would
    /// have been.
    ///
    /// # Errors
    ///
    /// When the output takes no more for any other reason, such as a full disk.
    fn event(&mut self, event: &Event) -> io::Result<()>;
}
