//! Defines the trace events of netfilter: the rules that a packet matched, as the kernel reports
//! them.

use serde::{Deserialize, Serialize};

use super::bytes;
use crate::backend::Backend;

/// Maximum number of trace events in the evidence of one stage of a case.
pub const MAX_TRACE_EVENTS: usize = 200_000;

/// Trace event: a packet matched a rule or reached the end of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TraceEvent {
    /// Namespace of the event. Events of one namespace with the same `by` are in chronological
    /// order.
    pub namespace: String,
    /// Backend that reported the event: `nf_tables` or `x_tables`.
    pub backend: Backend,
    /// Trace identifier, which separates one packet in one hook from other packets at the same
    /// time. 0 if the kernel reports none (legacy).
    #[serde(default)]
    pub trace_id: u32,
    /// First bytes of the packet at this event, from the IP header on. Absent if the packet is
    /// unchanged since the previous event with the same trace identifier.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "bytes::optional"
    )]
    #[schemars(with = "Option<String>")]
    pub packet: Option<Vec<u8>>,
    /// IP version: 4 or 6.
    pub ip_version: u8,
    /// Input interface. Absent for a locally generated packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Output interface. Absent before routing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Packet mark before the rule. If both backends trace in one namespace, a change of the mark
    /// by the other backend shows up one event late.
    #[serde(default)]
    pub mark: u32,
    /// Name of the table: `nat`.
    pub table: String,
    /// Whether the table is of the nftables family `inet`, which covers IPv4 and IPv6. Tables of
    /// iptables never are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inet: bool,
    /// Name of the chain: `KUBE-SERVICES`.
    pub chain: String,
    /// Position in the chain.
    pub point: TracePoint,
    /// Verdict of the rule or policy. Absent if the kernel reports none (legacy).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<RuleVerdict>,
}

/// Position in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TracePoint {
    /// Rule with this number, counted from 1 as in `iptables -L --line-numbers`. 0 for a rule that
    /// was added and deleted while probes ran.
    Rule(u32),
    /// End of a chain that was reached by a jump. Only legacy reports it: current kernels do not
    /// report it for `nf_tables`.
    Return,
    /// End of a base chain, where its policy applies.
    Policy,
}

/// Verdict of a rule or policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RuleVerdict {
    /// The packet passes this base chain.
    Accept,
    /// The packet is dropped.
    Drop,
    /// The next rule follows.
    Continue,
    /// The calling chain continues after the jump.
    Return,
    /// Another chain follows, with a later return to this chain.
    Jump(String),
    /// Another chain follows, without a return to this chain.
    Goto(String),
    /// A program or the rule took over the packet (`NF_STOLEN`, `NF_QUEUE`).
    Stolen,
}
