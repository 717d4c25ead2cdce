//! Why a case fails: changes that make it work, found by trying them.
//!
//! [`candidates`] reads from journeys what may be the cause, [`Change`] is one thing that
//! an operator would change. What a change does is not argued: it is made in a copy of the
//! lab, and the probes are run again ([`crate::run::why`]).

mod candidates;
mod change;
mod edit;

pub use candidates::candidates;
pub use change::{Change, Level, Unchangeable};
