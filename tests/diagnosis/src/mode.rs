//! Names the modes of kube-proxy.

use clap::ValueEnum;
use serde::Serialize;

/// Mode of kube-proxy, by the name of its case in the healthy lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    Iptables,
    Nftables,
    Ipvs,
}

impl Mode {
    /// All modes of kube-proxy.
    pub(crate) const ALL: &'static [Self] = &[Self::Iptables, Self::Nftables, Self::Ipvs];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
            Self::Ipvs => "ipvs",
        }
    }
}
