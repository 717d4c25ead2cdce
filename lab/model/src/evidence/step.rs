//! What was seen of a step of a lab.

use serde::{Deserialize, Serialize};

use super::{Attempt, Evidence, Packet};

/// What was seen once a lab that stood was changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepEvidence {
    /// The step's name.
    pub name: String,
    /// When the change was handed to those who act on it, in nanoseconds since the epoch,
    /// as in [`super::Packet`].
    pub changed: u64,
    /// When everybody had acted on it: rules were written, and stale flows forgotten.
    pub applied: u64,
    /// What was tried in between, again and again, where a real kube-proxy had to be
    /// waited for. It is no part of what is expected of probes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scouts: Vec<Attempt>,
    /// For how long programs waited for a processor, this one or others of the machine, from
    /// the change to the end of what was tried after it, in milliseconds. Delays below
    /// 100 ms are left out.
    #[serde(default, skip_serializing_if = "super::is_none_left_out")]
    pub late_ms: u64,
    /// The packets of that time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packets: Vec<Packet>,
    /// What was seen afterwards. Of probes that were open across the step it says what
    /// became of them.
    pub evidence: Box<Evidence>,
}
