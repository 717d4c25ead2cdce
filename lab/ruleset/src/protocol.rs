//! Defines the transport protocols of service ports and virtual servers.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Transport protocol.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Transport")]
pub enum Protocol {
    /// TCP, the default of a port without a protocol.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Returns the name in rules, in sets and in the hashes of chain names: `tcp`, `udp` or `sctp`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Returns the protocol with this name in rules: `tcp`, `udp` or `sctp`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let protocols = [Self::Tcp, Self::Udp, Self::Sctp];
        protocols.into_iter().find(|known| known.name() == name)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
