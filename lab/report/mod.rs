//! What a person or a program is told of a run. One stream of [`Event`]s feeds
//! every format:
//!
//! ```
//! # use svclab::report::{Event, Format, Options};
//! # fn tell(format: Format, events: &[Event]) -> std::io::Result<()> {
//! let mut writer = format.writer(std::io::stdout(), Options::default());
//! for event in events {
//!     writer.event(event)?;
//! }
//! # Ok(())
//! # }
//! ```

pub mod about;
pub mod bisect;
mod case_text;
mod certificate;
pub mod claims;
mod comments;
pub mod diff;
pub mod doctor;
mod flow_table;
pub mod flows;
pub mod folder;
mod format;
mod github;
mod human;
pub mod journey;
pub mod journeys;
mod json;
mod junit;
mod markdown;
pub mod node_rules;
mod output;
pub mod pcapng;
pub(crate) mod refused;
pub mod replay;
mod results;
pub mod schema;
pub mod seen;
mod several;
pub mod verify;
mod whole;
pub mod why;
mod words;
mod writer;

#[cfg(test)]
mod fixture;

use std::sync::Arc;
use std::time::Duration;

use seen::Seen;

pub use format::Format;
pub(crate) use github::inert;
pub use results::{
    CaseResult, Outcome, Place, Results, RunError, SCHEMA, Summary, Surroundings, Trouble, Warning,
};
pub use several::Several;
pub use whole::Whole;
pub(crate) use words::quoted;
pub use writer::{Options, Writer};

/// What happens during a run, in the order it does.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The run begins, with so many cases.
    Begun {
        /// How many cases were chosen.
        cases: usize,
    },
    /// A case has begun.
    Started {
        /// The case.
        case: String,
    },
    /// A case is over.
    Finished {
        /// What became of it.
        result: Box<CaseResult>,
        /// All that was seen of it, where somebody asked for that and there is
        /// something.
        seen: Option<Arc<Seen>>,
    },
    /// The run is over.
    Over {
        /// All results, in the order of the labs and their cases, whatever the
        /// order in which they ended.
        results: Box<Results>,
        /// From the first case's beginning to the last one's end. Cases run side
        /// by side, so this is not the sum of theirs.
        took: Duration,
    },
}
