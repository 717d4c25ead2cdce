//! From a case of a lab to the plan that an agent applies.
//!
//! [`cluster`] resolves a case's objects to nodes, pods, services and balancers; [`build`]
//! makes the plan; [`needs`] lists what the plan requires of a machine; [`delta`] turns one
//! plan into another; [`replay`] puts dumped nodes into a plan; [`print`](mod@print)
//! renders a plan as a script. Pure functions.

pub mod build;
pub mod cluster;
pub mod delta;
pub mod needs;
pub mod node_rules;
pub mod print;
pub mod replay;
