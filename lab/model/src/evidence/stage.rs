//! Defines the evidence of one stage of a case, and of the step that leads to the stage.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::names;
use super::{
    Attempt, ConntrackEntry, DropEvidence, IpvsConnection, KernelState, Packet, RelayedConnection,
    SavedRules, TraceEvent,
};

/// Maximum number of stages.
pub const MAX_STAGES: usize = 65;

/// Evidence recorded while the probes of a stage run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StageEvidence {
    /// Evidence of the step that leads to the stage. Absent in the first stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepEvidence>,
    /// Attempts of the stage's probes, in order of their start.
    pub attempts: Vec<Attempt>,
    /// Captured packets of all requested namespaces, in order of their timestamps.
    pub packets: Vec<Packet>,
    /// Number of packets that were not captured. They arrived faster than the agent could read
    /// them, or the evidence had reached its maximum.
    pub packets_missed: u64,
    /// Trace events of netfilter in all traced namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<TraceEvent>,
    /// Number of trace events and deleted conntrack entries that were not recorded, for the same
    /// reasons as packets.
    #[serde(default)]
    pub trace_missed: u64,
    /// Conntrack entries of traced namespaces at the end of the probes, including entries deleted
    /// before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conntrack: Vec<ConntrackEntry>,
    /// IPVS connections of traced namespaces at the end of the probes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipvs_connections: Vec<IpvsConnection>,
    /// Connections of the layer 7 load balancers to their backends, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relayed: Vec<RelayedConnection>,
    /// Packets dropped in traced namespaces.
    #[serde(default)]
    pub drops: DropEvidence,
    /// Increase of each kernel counter, by namespace. Unchanged counters are omitted.
    #[serde(deserialize_with = "names::nested")]
    pub counters: BTreeMap<String, BTreeMap<String, i64>>,
    /// Output of `iptables-save -c` after the probes.
    pub rules: Vec<SavedRules>,
    /// Output of `nft -a list ruleset` after the probes, by namespace. Present if packets
    /// matched rules that no iptables program prints.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "names::flat"
    )]
    pub nft: BTreeMap<String, String>,
    /// Sysctls that decide whether a kernel accepts or forwards a packet, by traced namespace, as
    /// they were after the probes: `net.ipv4.conf.eth0.rp_filter`.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "names::nested"
    )]
    pub sysctls: BTreeMap<String, BTreeMap<String, String>>,
    /// Neighbours that were being resolved when recording ended, by traced namespace. Packets to
    /// these neighbours are queued.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "names::flat"
    )]
    #[schemars(with = "BTreeMap<String, Vec<String>>")]
    pub unresolved: BTreeMap<String, Vec<IpAddr>>,
    /// Sets, virtual servers and interfaces read back after the probes, by namespace.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "names::flat"
    )]
    pub kernel_state: BTreeMap<String, KernelState>,
    /// Time for which svclab could not run while probes ran, in milliseconds. Delays below 100 ms
    /// are omitted.
    #[serde(default, skip_serializing_if = "super::is_none_missed")]
    pub delay_ms: u64,
}

/// Evidence of the change from one stage to the next.
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
    /// Number of further packets at this time that were not captured.
    #[serde(default, skip_serializing_if = "super::is_none_missed")]
    pub packets_missed: u64,
}

/// Deserializes at most [`MAX_STAGES`] stages. A stage without data takes 6 times as much memory as
/// it has bytes in a message.
pub(super) fn deserialize_list<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<StageEvidence>, D::Error> {
    deserializer.deserialize_seq(StageList)
}

struct StageList;

impl<'de> Visitor<'de> for StageList {
    type Value = Vec<StageEvidence>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of stages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut stages = Vec::new();
        while let Some(stage) = list.next_element()? {
            if stages.len() == MAX_STAGES {
                return Err(A::Error::custom("too many stages"));
            }
            stages.push(stage);
        }
        Ok(stages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Evidence;

    #[test]
    fn evidence_with_too_many_stages_is_rejected() {
        let read = |stages| {
            let evidence = Evidence {
                stages: vec![StageEvidence::default(); stages],
                ..Evidence::default()
            };
            let text = serde_json::to_string(&evidence).unwrap();
            serde_json::from_str::<Evidence>(&text).map_err(|error| error.to_string())
        };
        assert_eq!(read(MAX_STAGES).unwrap().stages.len(), MAX_STAGES);
        let error = read(MAX_STAGES + 1).unwrap_err();
        assert!(error.starts_with("too many stages"), "{error}");
    }
}
