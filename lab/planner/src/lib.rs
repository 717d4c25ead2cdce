//! Builds the plan that an agent applies from a case of a lab.
//!
//! [`cluster`] resolves the objects of a case to nodes, pods, services and balancers. [`build`]
//! builds the plan. [`requirements`] lists the requirements of a plan. [`delta`] computes the changes
//! between two plans. [`replay`] inserts dumped nodes into a plan. [`visibility`] finds manual commands
//! whose changes no dump shows. [`print`](mod@print) renders a
//! plan as a script. All functions are pure.

pub mod build;
pub mod cluster;
mod command_words;
pub mod delta;
pub mod node_rules;
pub mod print;
pub mod replay;
pub mod requirements;
pub mod visibility;
