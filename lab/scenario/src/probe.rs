//! The exchanges a lab attempts.

use std::time::Duration;

use schemars::JsonSchema;

use svclab_model::plan::Protocol;

/// An exchange to attempt.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Probe {
    /// Who calls: `pod/NAMESPACE/NAME`, a node or a host.
    pub from: String,
    /// Who is called: a name or an address, with its port:
    /// `lb/default/nginx:443`, `service/default/nginx:80`, `10.0.0.1:443`.
    pub to: String,
    /// What is spoken: `tcp` (the default), `udp` or `ping`.
    #[serde(default)]
    pub protocol: Protocol,
    /// How many exchanges are attempted, one after the other; one by default.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// The source the caller binds its socket to: one of its addresses, or a
    /// name for it.
    #[serde(default)]
    pub bind: Option<String>,
    /// How long an answer is waited for, such as `3s`, at most `1h`; the command line's
    /// `--patience` when absent.
    #[serde(default, deserialize_with = "super::values::duration")]
    #[schemars(with = "Option<String>")]
    pub patience: Option<Duration>,
    /// The probe that must have ended before this one begins.
    #[serde(default)]
    pub after: Option<String>,
    /// The step across which its connections stay open: they are opened and a word is
    /// exchanged right before the step's change, and another once the step's own
    /// probes are over. Its verdict is what became of that.
    #[serde(default)]
    pub across: Option<String>,
}

pub(super) const fn one() -> u32 {
    1
}
