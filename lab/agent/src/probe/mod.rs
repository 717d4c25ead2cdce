//! Runs probes: starts exchanges, waits for their answers and settles timeouts.

pub(crate) mod convergence_probes;
mod datagrams;
pub(crate) mod exchange;
pub(crate) mod handshake;
pub(crate) mod icmp_errors;
pub(crate) mod open_connections;
pub(crate) mod ping;
pub(crate) mod prober;
pub(crate) mod settle;
pub(crate) mod start;
pub(crate) mod tcp;
pub(crate) mod udp;
