//! Defines the health checks of balancers and the real servers that depend on their results.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use svclab_ruleset::ipvs::VirtualServerKey;

/// Periodic check of one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// Namespace of the balancer that runs the check.
    pub namespace: String,
    /// Address of the checked backend.
    pub backend: SocketAddr,
    /// Source address of the check. `None` leaves the choice to the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<IpAddr>,
    /// Request to send.
    pub request: HealthRequest,
    /// Interval between two checks. The timeout of a check is five times this interval.
    pub interval: Duration,
    /// Real servers that get no new connections while the backend is unhealthy.
    pub real_servers: Vec<GuardedServer>,
}

/// Real server of a virtual server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardedServer {
    /// Virtual server that the real server belongs to.
    pub key: VirtualServerKey,
    /// Address of the real server.
    pub address: SocketAddr,
}

/// Request of a health check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "asks"
)]
pub enum HealthRequest {
    /// Checks that the backend accepts a TCP connection.
    Connect,
    /// Checks that the backend answers `GET PATH` with status 200.
    Get {
        /// Path of the request.
        path: String,
    },
}
