//! Health checks: who asks whom, and which real servers stand or fall with the
//! answer.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use svclab_ruleset::ipvs::Virtual;

/// A backend that is asked, again and again, whether it is well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// The namespace of the balancer that asks.
    pub namespace: String,
    /// Who is asked.
    pub backend: SocketAddr,
    /// The source it asks from; the route's choice without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<IpAddr>,
    /// What is asked.
    pub question: Question,
    /// How long between two questions. An answer is waited for five times as
    /// long.
    pub every: Duration,
    /// The real servers that take no new connection while it is not well.
    pub guards: Vec<Guarded>,
}

/// A real server of a virtual server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarded {
    /// The virtual server.
    pub takes: Virtual,
    /// The real server.
    pub to: SocketAddr,
}

/// What a health check asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "asks")]
pub enum Question {
    /// Whether a TCP connection is accepted.
    Connect,
    /// Whether `GET PATH` is answered with status 200.
    Get {
        /// The path.
        path: String,
    },
}
