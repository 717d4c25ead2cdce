//! Draws the topology of a lab and the ways of packets through it. Input: a plan with its cluster,
//! and journeys. Output: SVG, Mermaid or DOT.
//!
//! [`Topology`] lists the places of a plan, [`Way`] the places that a packet visited, and [`draw`]
//! gives all of them positions. [`draw_compact`] does so for narrow screens, and [`steps()`] lists what
//! the compact form leaves out.

#[cfg(test)]
mod fixture;
mod layout;
mod steps;
pub mod svg;
#[cfg(test)]
mod tests;
pub mod text;
mod topology;
mod way;

pub use layout::annotations::texts::fit;
pub use layout::shape;
pub use layout::{draw, draw_compact};
pub use steps::{Step, steps};
pub use topology::{Interface, InterfaceKind, LoadBalancer, Node, Place, Router, Topology};
pub use way::{AddressRewrite, Crossing, Visit, Way, WayEnd};
