//! Defines the evidence of a step of a lab.

use serde::{Deserialize, Serialize};

use super::{Attempt, Evidence, Packet};

/// Evidence recorded after a change to a running lab.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepEvidence {
    /// Step name from the lab.
    pub name: String,
    /// Time at which the agent handed the change to kube-proxies and other components, in
    /// nanoseconds since the epoch, on the same clock as packet times.
    pub changed_at: u64,
    /// Time at which the change was complete: all rules were written and stale conntrack entries
    /// deleted.
    pub applied_at: u64,
    /// Attempts made repeatedly in between, while a real kube-proxy was updating its rules. They do
    /// not count as results of probes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub convergence_attempts: Vec<Attempt>,
    /// Time for which processes of the machine, including svclab, waited for a CPU, in
    /// milliseconds. The period lasts from the change to the end of the probes after it. Delays
    /// below 100 ms are omitted.
    #[serde(default, skip_serializing_if = "super::is_none_missed")]
    pub delay_ms: u64,
    /// Packets captured while a real kube-proxy was updating its rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packets: Vec<Packet>,
    /// Evidence recorded afterwards. It includes the results of probes that were open across the
    /// step.
    pub evidence: Box<Evidence>,
}
