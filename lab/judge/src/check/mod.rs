//! Defines the result of an expectation other than a verdict.

pub(crate) mod iptables;
pub(crate) mod kernel_state;
pub(crate) mod nft_tables;
pub(crate) mod retransmissions;

use serde::{Deserialize, Serialize};

/// Result of comparing an expectation, other than a verdict, with the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Interface, namespace or node to which the expectation applies.
    pub target: String,
    /// Expectation as text.
    pub expected: String,
    /// Observation as text.
    pub observed: String,
    /// Whether the observation meets the expectation.
    pub holds: bool,
}
