//! Renders the results of a run for people and programs. One stream of
//! [`Event`](svclab_runner::results::Event)s is the input of every format:
//!
//! ```
//! # use svclab_report::{Format, Options};
//! # use svclab_runner::results::Event;
//! # fn report(format: Format, events: &[Event]) -> std::io::Result<()> {
//! let mut writer = format.writer(std::io::stdout(), Options::default());
//! for event in events {
//!     writer.event(event)?;
//! }
//! # Ok(())
//! # }
//! ```

pub mod bisect;
mod case_text;
mod certificate;
pub mod claims;
mod comments;
pub mod diff;
pub mod doctor;
mod flow_table;
pub mod folder;
mod format;
mod github;
mod human;
pub mod journey;
mod json;
mod junit;
mod markdown;
mod output;
pub mod pcapng;
pub mod ps;
pub mod refused;
pub mod replay;
pub mod schema;
mod several;
mod text_util;
pub mod verify;
pub mod version_history;
mod whole;
pub mod why;
mod writer;

#[cfg(test)]
mod fixture;

pub use format::Format;
pub use github::inert;
pub use several::MultiWriter;
pub use text_util::shell_quote;
pub use whole::AtomicFileWriter;
pub use writer::{Options, Writer};
