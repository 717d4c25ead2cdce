//! Draws the topology of a lab and the ways of packets through it. Input: a plan with its cluster,
//! and journeys. Output: SVG, Mermaid or DOT.
//!
//! [`Topology`] lists the places of a plan, [`Way`] the places that a packet visited, and [`draw`]
//! gives all of them positions.

#[cfg(test)]
mod fixture;
mod layout;
pub mod svg;
#[cfg(test)]
mod tests;
pub mod text;
mod topology;
mod way;

pub use layout::draw;
pub use layout::shape;
pub use topology::{Interface, InterfaceKind, LoadBalancer, Node, Place, Router, Topology};
pub use way::{AddressRewrite, Crossing, Visit, Way, WayEnd};
