//! Defines the evidence: all data recorded while probes run. The types are plain serializable data,
//! the same for every kernel.

mod attempt;
pub mod bytes;
mod connection;
mod dropped;
mod kernel_state;
pub mod names;
mod network;
mod packet;
mod packet_kind;
pub mod refused;
mod stage;
mod sysctls;
pub mod trace;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::backend::Backend;

pub use attempt::{Answer, Attempt, Progress, Verdict};
pub use connection::{
    AddressPair, ConntrackEntry, IpvsConnection, RelayedConnection, format_address,
};
pub use dropped::{DropEvidence, DroppedPacket};
pub use kernel_state::KernelState;
pub use network::{ForwardingEntry, LinkState, NeighbourEntry, NetworkState, Queue, VxlanState};
pub use packet::{Direction, MAX_PACKETS, Packet};
pub use packet_kind::PacketKind;
pub use refused::RejectedRequest;
pub use stage::{MAX_STAGES, StageEvidence, StepEvidence};
pub use sysctls::KERNEL_DEFAULTS;
pub use trace::TraceEvent;

/// Evidence of one run of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// Evidence of each stage, in order.
    #[serde(deserialize_with = "stage::deserialize_list")]
    pub stages: Vec<StageEvidence>,
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
}

/// Whether nothing is missing. Used as a serde predicate.
#[must_use]
pub fn is_none_missed(number: &u64) -> bool {
    *number == 0
}

impl Evidence {
    /// Returns the attempts of all stages.
    pub fn attempts(&self) -> impl Iterator<Item = &Attempt> + Clone {
        self.stages.iter().flat_map(|stage| &stage.attempts)
    }

    /// Returns the evidence of the steps between the stages.
    pub fn steps(&self) -> impl Iterator<Item = &StepEvidence> + Clone {
        self.stages.iter().filter_map(|stage| stage.step.as_ref())
    }

    /// Stores the dropped packets of the whole run. Each packet goes to the stage to which its time
    /// belongs.
    pub fn assign_drops(&mut self, drops: DropEvidence) {
        let mut remaining = drops;
        for stage in self.stages.iter_mut().rev() {
            let begin = stage.step.as_ref().map_or(0, |step| step.changed_at);
            stage.drops = remaining.split_off(begin);
        }
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
