//! Finds changes that make a failing case succeed, by trying them.
//!
//! [`candidates`] derives possible causes from journeys. [`ProposedChange`] is one change that an
//! operator can make. [`Finding`] is the result of trying changes. The effect of a change is not
//! predicted: the change is applied to a copy of the lab, and the probes run again
//! ([`crate::run::why`]).

mod apply;
mod candidates;
mod change;
mod describe;
mod edit;
mod finding;
mod routes;

pub use candidates::candidates;
pub use change::{ChangeError, Origin, PolicyField, ProposedChange};
pub use finding::{
    ChangeResult, DescribedChange, Document, FailingProbe, Finding, Fix, ProbeCount, SCHEMA,
    TriedChanges,
};
