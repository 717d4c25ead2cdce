//! Parses the output of `tc`: queueing disciplines, classes and filters.

pub mod listing;
pub mod qdisc;
