//! Why a case fails: changes that make it work, found by trying them.
//!
//! [`candidates`] reads from journeys what may be the cause, [`Change`] is one thing that
//! an operator would change, [`Finding`] what came of trying. What a change does is not
//! argued: it is made in a copy of the lab, and the probes are run again
//! ([`crate::run::why`]).

mod apply;
mod candidates;
mod change;
mod edit;
mod finding;
mod ways;
mod words;

pub use candidates::candidates;
pub use change::{Change, Level, PolicyField, Unchangeable};
pub use finding::{Came, Cure, Document, Fared, Finding, SCHEMA, Told, Tried, Wrong};
