//! Tests the commands for dumps of nodes.

mod bundles;
mod collect;
mod damaged;
mod diff;
pub mod replay;
