//! Derives packet journeys from evidence, and finds attempts whose result can no longer change.
//!
//! [`journey`] follows the packets of each attempt through namespaces and rules. [`settled`] proves
//! that no reply can arrive. All functions are pure; the agent also calls them while a lab runs.

#![warn(unreachable_pub)]

pub mod journey;
mod packet;
pub mod settled;

pub use packet::{Frame, Payload, VXLAN_PORTS};
