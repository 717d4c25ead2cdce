//! Finds changes that make a failing case succeed, by trying them.
//!
//! Journeys show possible causes. [`ProposedChange`] is one change that an operator can make. The
//! effect of a change is not predicted: [`find_fixes`] applies the change to a copy of the lab, and
//! runs the probes again.

mod candidates;
mod case_labs;
mod change;
mod component_state;
mod finding;
mod frozen;
mod goals;
mod pairs;
mod request;
mod run;
mod search;
mod success;

pub use change::{ChangeError, Origin, PolicyField, ProposedChange, ServiceField};
pub use finding::{
    ChangeResult, DescribedChange, ExpectedResult, FailingProbe, Finding, Fix, ProbeCount, Stopped,
    TriedChanges, TypedCommand, UnreadState,
};
pub use request::WhyRequest;
pub use run::find_fixes;
