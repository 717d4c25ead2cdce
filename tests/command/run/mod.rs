//! Tests `svclab run`.

mod binary;
mod control;
mod every_case;
mod kept;
mod last_failed;
mod measured;
mod node_ports;
pub mod output;
mod refusals;
mod report;
mod shard;
mod typed;
