//! Runs what labs offer: servers, health checks, load balancers, API servers and kube-proxies.

mod accept;
pub(crate) mod answers;
pub(crate) mod api;
mod forwarder;
pub(crate) mod health;
mod pktinfo;
pub(crate) mod real_proxy;
pub(crate) mod server;
mod service_health;
