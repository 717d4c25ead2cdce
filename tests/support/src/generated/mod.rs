//! Clusters of any size, and labs, changes of labs and agents that random bytes select, for property
//! tests and fuzzers.

pub mod changed_lab;
pub mod choices;
pub mod cluster;
pub mod fake_agent;
pub mod valid_lab;
