//! Defines the writer of run events, the interface of all output formats, and general writers.

pub(crate) mod atomic_file;
pub(crate) mod multi;
pub(crate) mod until_closed;

use std::io::{self, Write};
use std::time::Duration;

use crate::results::Document;
use crate::text::terminal::TerminalWidth;
use svclab_runner::run::Event;

/// Options of the output.
#[expect(clippy::struct_excessive_bools, reason = "the options are independent")]
pub struct Options<'a> {
    /// Whether to include everything observed in each case, and its claims.
    pub verbose: bool,
    /// Whether [`crate::Format::Human`] only writes failures and the summary.
    pub quiet: bool,
    /// Whether the output may contain colours, which only [`crate::Format::Human`] uses. For
    /// stdout, use `AutoStream::choice(&stdout()) != ColorChoice::Never` of anstream, which
    /// considers the terminal, `NO_COLOR` and `CLICOLOR_FORCE`.
    pub colour: bool,
    /// Width at which [`crate::Format::Human`] wraps lines.
    pub width: TerminalWidth,
    /// Whether GitHub's runner reads the output, so that no line of [`crate::Format::Human`] may be a
    /// command for it.
    pub is_read_by_runner: bool,
    /// Whether to name the kernel with each case, because several kernels run the same cases.
    pub names_kernels: bool,
    /// Command that repeats a case, without the case name: `svclab run` with the options that the
    /// case depends on.
    pub rerun_command: String,
    /// Output for the Markdown table of [`crate::Format::Github`]: the file of
    /// `GITHUB_STEP_SUMMARY`, opened for appending.
    pub summary: Option<Box<dyn Write + 'a>>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            verbose: false,
            quiet: false,
            colour: false,
            width: TerminalWidth::default(),
            is_read_by_runner: false,
            names_kernels: false,
            rerun_command: "svclab run".to_owned(),
            summary: None,
        }
    }
}

/// Writer of run events.
pub trait Writer {
    /// Processes the next event, and writes and flushes all output that is complete.
    ///
    /// A closed pipe (`svclab run | head -1`) is no error: later output is discarded, and the exit
    /// code of the run is unchanged.
    ///
    /// # Errors
    ///
    /// Returns an error if writing fails for another reason, such as a full disk.
    fn event(&mut self, event: &Event) -> io::Result<()>;

    /// Writes the results of a finished run that took this time.
    ///
    /// # Errors
    ///
    /// As [`Writer::event`]. Writers that need more than a document write nothing.
    fn document(&mut self, _document: &Document, _duration: Duration) -> io::Result<()> {
        Ok(())
    }
}
