//! Probes of a lab.

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
    /// Number of connections, one after the other; default 1.
    #[serde(default = "default_connections")]
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// Source address to which the caller binds its socket: one of its addresses, or a name of it.
    #[serde(default)]
    pub bind: Option<String>,
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
