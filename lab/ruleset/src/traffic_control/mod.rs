//! Parses the output of `tc`: queueing disciplines, classes and filters.

mod lines;
pub mod listing;
pub mod qdisc;
mod words;
