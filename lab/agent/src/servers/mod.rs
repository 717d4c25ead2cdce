//! Runs what labs offer: servers, health checks, load balancers, API servers and kube-proxies.

pub(crate) mod answers;
pub(crate) mod api;
pub(crate) mod forwarder;
pub(crate) mod health;
pub(crate) mod pktinfo;
pub(crate) mod real_proxy;
pub(crate) mod server;
pub(crate) mod service_health;
