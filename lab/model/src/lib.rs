//! Defines the data types that all crates share: plans ([`plan`]), evidence ([`evidence`]) and the
//! messages between a front end and an agent ([`protocol`]).
//!
//! The types are plain serializable data. The crate does no I/O and uses no Kubernetes types.

mod backend;
mod bridge_port;
pub mod evidence;
pub mod plan;
pub mod protocol;
mod routing;
pub mod tools;
