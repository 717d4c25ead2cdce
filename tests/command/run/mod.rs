//! Tests `svclab run`.

mod binary;
mod every_case;
mod kept;
mod measured;
mod node_ports;
mod output;
mod refusals;
mod report;
mod typed;
