//! Defines the evidence: all data recorded while probes run. The types are plain serializable data,
//! the same for every kernel.

mod attempt;
pub mod bytes;
mod connection;
mod dropped;
mod kernel_state;
pub mod names;
mod packet;
mod packet_kind;
pub mod refused;
mod step;
pub mod trace;

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::backend::Backend;

pub use attempt::{Answer, Attempt, Progress, Verdict};
pub use connection::{AddressPair, ConntrackEntry, IpvsConnection, format_address};
pub use dropped::{DropEvidence, DroppedPacket};
pub use kernel_state::{KernelState, LinkState};
pub use packet::{Direction, MAX_PACKETS, Packet};
pub use packet_kind::PacketKind;
pub use refused::RejectedRequest;
pub use step::StepEvidence;
pub use trace::TraceEvent;

/// Evidence of one run of a plan's probes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// Attempts of all probes, in order of their start.
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
    /// Packets dropped in traced namespaces.
    #[serde(default)]
    pub drops: DropEvidence,
    /// Increase of each kernel counter, by namespace. Unchanged counters are omitted.
    #[serde(deserialize_with = "names::nested")]
    pub counters: BTreeMap<String, BTreeMap<String, i64>>,
    /// Output of `iptables-save -c` after the probes.
    pub rules: Vec<SavedRules>,
    /// Output of `nft -a -s list ruleset` after the probes, by namespace. Present if packets
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
    /// Time from the start of a kube-proxy until all its rules existed, by node, in milliseconds.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "names::flat"
    )]
    pub synced_ms: BTreeMap<String, u64>,
    /// Most recent output of the programs that ran in the lab, by program name: `kube-proxy of
    /// node-1`.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "names::flat"
    )]
    pub logs: BTreeMap<String, String>,
    /// Requests that the API servers of nodes rejected because they do not serve them. The nodes
    /// are in the order of the plan, and each request is listed once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RejectedRequest>,
    /// Number of further rejected requests that were not recorded, because there were too many
    /// different ones.
    #[serde(default, skip_serializing_if = "is_none_missed")]
    pub refused_missed: u64,
    /// Time for which svclab could not run while probes ran, in milliseconds. Delays below 100 ms
    /// are omitted.
    #[serde(default, skip_serializing_if = "is_none_missed")]
    pub delay_ms: u64,
    /// Evidence after each step of the lab. All other fields hold the evidence before the first
    /// step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepEvidence>,
}

/// Whether nothing is missing. Used as a serde predicate.
#[must_use]
pub fn is_none_missed(number: &u64) -> bool {
    *number == 0
}

impl Evidence {
    /// Returns the evidence after the last step. Without steps, returns this evidence.
    #[must_use]
    pub fn last(&self) -> &Self {
        self.steps.last().map_or(self, |step| &step.evidence)
    }

    /// Stores the dropped packets of the whole run. Each packet goes to the stage to which its time
    /// belongs: before the steps, or after one of them.
    pub fn assign_drops(&mut self, drops: DropEvidence) {
        let mut remaining = drops;
        for step in self.steps.iter_mut().rev() {
            step.evidence.drops = remaining.split_off(step.changed_at);
        }
        self.drops = remaining;
    }
}

/// Rules of one namespace as their own program prints them, with counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SavedRules {
    /// Namespace of the rules.
    pub namespace: String,
    /// Iptables backend that printed the rules.
    pub backend: Backend,
    /// IP version: 4 or 6.
    pub ip_version: u8,
    /// Output of `iptables-save -c` or `ip6tables-save -c`.
    pub text: String,
}

/// Kernel and programs that the agent found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    /// Kernel release of the agent's machine, as printed by `uname -r`.
    pub kernel: String,
    /// Version output of each program, by program name. Absent programs are omitted.
    pub tools: BTreeMap<String, String>,
}
