//! Tests the commands for dumps of nodes.

mod collect;
mod damaged;
mod diff;
pub mod replay;
