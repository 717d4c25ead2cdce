//! Tests the commands for dumps of nodes.

mod collect;
mod damaged;
mod diff;
mod link_layer;
pub mod replay;
