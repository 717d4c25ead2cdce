//! Tests the commands for dumps of nodes.

mod bundles;
mod collect;
mod damaged;
mod diff;
mod link_layer;
mod redact;
pub mod replay;
