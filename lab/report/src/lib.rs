//! Renders the results of a run for people and programs. One stream of
//! [`Event`](svclab_runner::run::Event)s is the input of every format:
//!
//! ```
//! # use svclab_report::{Format, Options};
//! # use svclab_runner::run::Event;
//! # fn report(format: Format, events: &[Event]) -> std::io::Result<()> {
//! let mut writer = format.writer(std::io::stdout(), Options::default());
//! for event in events {
//!     writer.event(event)?;
//! }
//! # Ok(())
//! # }
//! ```

mod additions;
mod alignment;
mod case_additions;
mod case_details;
mod case_head;
mod commands;
mod comparable;
pub mod drawing;
mod formats;
pub mod merge;
pub mod results;
mod run_text;
pub mod schema;
mod shown_frames;
mod text;
mod timed_events;
mod writer;

#[cfg(test)]
mod tests;

pub use additions::{Additions, Answer};
pub use case_additions::{CaseAdditions, ProbeFixes};
pub use commands::{
    bisect, claims, compare, diff, doctor, explain, ps, replay, verify, version_history, why,
};
pub use formats::github::inert;
pub use formats::html::HtmlWriter;
pub use formats::{Format, folder, pcapng};
pub use text::conclusion::describe_kind as describe_drop;
pub use text::expectation::describe_observed;
pub use text::terminal::TerminalWidth;
pub use text::{journey, refused, shell_quote};
pub use writer::atomic_file::AtomicFileWriter;
pub use writer::multi::MultiWriter;
pub use writer::{Options, Writer};
