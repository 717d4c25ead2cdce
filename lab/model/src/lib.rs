//! The vocabulary of all crates: what to build and probe ([`plan`]), what was recorded
//! ([`evidence`]), and how a front end and an agent talk ([`protocol`]).
//!
//! Plain data that serializes; no I/O, and no types of Kubernetes.

pub mod evidence;
pub mod plan;
pub mod protocol;
pub mod tools;
