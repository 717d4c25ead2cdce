//! Parses the output of `bridge`: forwarding databases, and the ports of bridges.

pub mod fdb;
pub mod port;
