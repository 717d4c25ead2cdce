//! Labs, changes of labs, and agents that random bytes select, for property tests and fuzzers.

pub mod changed_lab;
pub mod choices;
pub mod fake_agent;
pub mod valid_lab;
