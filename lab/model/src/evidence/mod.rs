//! What was seen: plain data, serialisable, from whichever kernel ran the plan.

mod attempt;
pub mod bytes;
mod connection;
mod dropped;
mod held;
pub mod met;
pub mod names;
mod packet;
mod packet_kind;
pub mod refused;
mod step;

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::plan::Backend;

pub use attempt::{Attempt, Verdict};
pub use connection::{Balanced, Connection, Flow, bare};
pub use dropped::{Dropped, Drops};
pub use held::{Held, HeldLink};
pub use met::Met;
pub use packet::{Direction, MAX_PACKETS, Packet};
pub use packet_kind::PacketKind;
pub use refused::Refused;
pub use step::StepEvidence;

/// Everything one run of a plan's probes left behind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Evidence {
    /// One entry a connection, in the order they were begun.
    pub attempts: Vec<Attempt>,
    /// Packets of the watched namespaces, in the order of their time stamps.
    pub packets: Vec<Packet>,
    /// Packets that were not kept: they came faster than they could be read, or
    /// the bound was reached.
    pub packets_left_out: u64,
    /// What netfilter did with packets, in traced namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub met: Vec<Met>,
    /// Steps that were not kept, as with packets.
    #[serde(default)]
    pub met_left_out: u64,
    /// What conntrack of traced namespaces knew when the probes were over, and what
    /// it had forgotten by then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<Connection>,
    /// What IPVS of traced namespaces knew when the probes were over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub balanced: Vec<Balanced>,
    /// Packets that ended in traced namespaces.
    #[serde(default)]
    pub drops: Drops,
    /// By namespace, what each kernel counter grew by; those that did not are
    /// left out.
    #[serde(deserialize_with = "names::nested")]
    pub counters: BTreeMap<String, BTreeMap<String, i64>>,
    /// What `iptables-save -c` said afterwards.
    pub rules: Vec<SavedRules>,
    /// By namespace, what `nft -a -s list ruleset` said afterwards, where packets met rules
    /// that no iptables prints.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "names::flat"
    )]
    pub nft: BTreeMap<String, String>,
    /// By traced namespace, the settings that decide whether a kernel takes a packet
    /// in or passes it on, as they were afterwards: `net.ipv4.conf.eth0.rp_filter`.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "names::nested"
    )]
    pub settings: BTreeMap<String, BTreeMap<String, String>>,
    /// By traced namespace, the neighbours whose hardware address was being asked for when
    /// watching ended: packets to them wait.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "names::flat"
    )]
    #[schemars(with = "BTreeMap<String, Vec<String>>")]
    pub unresolved: BTreeMap<String, Vec<IpAddr>>,
    /// By namespace, what was read back of sets, virtual servers and interfaces.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "names::flat"
    )]
    pub held: BTreeMap<String, Held>,
    /// By node, how long its kube-proxy took from its start to rules for everything, in
    /// milliseconds.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "names::flat"
    )]
    pub synced_ms: BTreeMap<String, u64>,
    /// What programs said that ran in it, the last of it, by their names: `kube-proxy of
    /// node-1`.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "names::flat"
    )]
    pub logs: BTreeMap<String, String>,
    /// What nodes' API servers were asked for by then and did not serve, by node in the
    /// plan's order, each request once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// How many requests were refused besides that were not kept, as there were too many
    /// different ones.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub refused_left_out: u64,
    /// How long svclab was kept from running while probes ran, in milliseconds. Delays
    /// below 100 ms are left out.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub late_ms: u64,
    /// What was seen after each step of the lab; everything else here is from before the
    /// first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepEvidence>,
}

/// Whether nothing was left out, for serde.
#[must_use]
pub fn is_none_left_out(number: &u64) -> bool {
    *number == 0
}

impl Evidence {
    /// What was seen last: after the last step, if there are any.
    #[must_use]
    pub fn last(&self) -> &Self {
        self.steps.last().map_or(self, |step| &step.evidence)
    }

    /// Takes note of all packets that were dropped while it was gathered, each where it
    /// belongs by its time: before the steps, or after one of them.
    pub fn tell_drops(&mut self, drops: Drops) {
        let mut rest = drops;
        for step in self.steps.iter_mut().rev() {
            step.evidence.drops = rest.split_off(step.changed);
        }
        self.drops = rest;
    }
}

/// The rules of one namespace as its own tool prints them, counters included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SavedRules {
    /// The namespace.
    pub namespace: String,
    /// Which iptables printed it.
    pub backend: Backend,
    /// 4 or 6.
    pub ip: u8,
    /// The text.
    pub text: String,
}

/// The kernel and the programs that a plan met.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Surroundings {
    /// `uname -r`, as the agent saw it.
    pub kernel: String,
    /// What each program prints for its own version; a program that is not
    /// there is left out.
    pub tools: BTreeMap<String, String>,
}
