//! From evidence to packets' journeys, and to verdicts that no packet can change any more.
//!
//! [`journey`] follows the packets of each attempt through namespaces and rules;
//! [`settled`] proves that no answer can arrive. Pure functions; the agent uses them while
//! a lab runs.

pub mod journey;
mod packet;
pub mod settled;

pub use packet::{Frame, Payload};
