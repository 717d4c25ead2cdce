//! Runs what labs offer: servers, health checks, load balancers and API servers.

mod accept;
pub(crate) mod answers;
pub(crate) mod api;
pub(crate) mod connect;
mod forwarder;
pub(crate) mod health;
mod marker;
pub(crate) mod payload;
mod pktinfo;
pub(crate) mod server;
mod service_health;
