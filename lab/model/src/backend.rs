//! Defines the backends of iptables.

use serde::{Deserialize, Serialize};

/// Iptables backend that loads the rules. Both backends can be active in one kernel.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// `iptables-nft-restore`, which uses `nf_tables` in the kernel.
    #[default]
    Nft,
    /// `iptables-legacy-restore`, which uses `x_tables` in the kernel.
    Legacy,
}

impl Backend {
    /// Returns the part of the program name: `nft` or `legacy`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nft => "nft",
            Self::Legacy => "legacy",
        }
    }
}
