//! Probes of a lab.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use schemars::JsonSchema;

use svclab_model::plan::ProbeProtocol;

/// Connections from one source to one target.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Probe {
    /// Source: `pod/NAMESPACE/NAME`, a node or a host.
    pub from: String,
    /// Target: a name or an address with a port, such as `lb/default/nginx:443`,
    /// `service/default/nginx:80` or `10.0.0.1:443`.
    pub to: String,
    /// Protocol: `tcp`, `udp` or `ping`; default `tcp`.
    #[serde(default)]
    pub protocol: ProbeProtocol,
    /// Number of connections; default 1.
    #[serde(default = "default_connections")]
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// Maximum number of connections at the same time: 1 opens each connection when the one before
    /// has ended. By default, connections are opened in order without waiting.
    #[serde(default)]
    pub concurrency: Option<NonZeroU32>,
    /// Source address to which the caller binds its socket: one of its addresses, or a name of it.
    #[serde(default)]
    pub bind: Option<String>,
    /// Source port of the first connection; the next connections have the next ports. By default,
    /// the kernel assigns ports.
    #[serde(default)]
    pub source_port: Option<NonZeroU16>,
    /// Size of each request and of each answer in bytes, such as `1400` or `100k`. For TCP, this is
    /// the payload of the connection in each direction (at most 1 MiB). For UDP and ping, this is
    /// the payload of a datagram (at most 65507 bytes). By default, both are short.
    #[serde(default, deserialize_with = "crate::decode::bytes::bytes")]
    #[schemars(schema_with = "crate::decode::bytes::schema")]
    pub bytes: Option<NonZeroU32>,
    /// Number of datagrams (UDP) or echo requests (ping) that each socket sends one right after the
    /// other, at most 1000; default 1. A verdict `answered` needs an answer to each.
    #[serde(default)]
    pub datagrams: Option<NonZeroU32>,
    /// Maximum wait for an answer, such as `3s`, at most `1h`; default `--max-wait` of the command
    /// line.
    #[serde(default, deserialize_with = "crate::decode::values::duration")]
    #[schemars(with = "Option<String>")]
    pub max_wait: Option<Duration>,
    /// Name of the probe that must end before this probe starts.
    #[serde(default)]
    pub after: Option<String>,
    /// Name of the step across which the connections stay open. Right before the step's change, the
    /// connections are opened and exchange a message. After the step's own probes, they exchange
    /// another message, which determines the verdict.
    #[serde(default)]
    pub across: Option<String>,
}

pub(crate) const fn default_connections() -> u32 {
    1
}

impl Probe {
    /// Creates a probe with one connection and default settings.
    #[must_use]
    pub fn new(from: String, to: String, protocol: ProbeProtocol) -> Self {
        Self {
            from,
            to,
            protocol,
            connections: default_connections(),
            concurrency: None,
            bind: None,
            source_port: None,
            bytes: None,
            datagrams: None,
            max_wait: None,
            after: None,
            across: None,
        }
    }
}
