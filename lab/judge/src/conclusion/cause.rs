//! Finds the cause of the loss of a packet.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::drop_kind::DropKind;
use super::drop_table::drop_kind;
use super::fault::Fault;
use super::last_hop::LastHop;
use super::rules::{RuleReference, marking_rule, sending_rule, unmatched_rules};
use crate::state::LabState;
use svclab_journey::journey::{Hop, PacketPath, PathEnd, RuleMatch, SysctlValue};

/// Cause of the loss of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "cause",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Cause {
    /// A rule dropped the packet.
    Rule {
        /// Rule that dropped the packet.
        rule: RuleReference,
        /// Rule that set the mark on which the dropping rule matched, or the jump to that rule.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        marked_by: Option<Box<RuleReference>>,
        /// Rule that sent the packet to a dropping rule without conditions of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sent_by: Option<Box<RuleReference>>,
        /// Rules before a dropping rule without conditions that would have accepted or returned the
        /// packet.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unmatched: Vec<RuleReference>,
    },
    /// The kernel reported the packet as dropped.
    Kernel {
        /// Kind of the cause.
        kind: DropKind,
        /// Object at fault; absent if the evidence does not show it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
        /// Drop reason of the kernel: `IP_RPFILTER`.
        reason: String,
        /// Kernel function that dropped the packet; absent if it is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        function: Option<String>,
        /// Sysctls that control this drop, with their values.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sysctls: Vec<SysctlValue>,
    },
    /// A counter of the kernel increased while packets were lost in the namespace.
    Counter {
        /// Kind of the cause.
        kind: DropKind,
        /// Object at fault; absent if the evidence does not show it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
        /// Name of the counter: `TcpExtIPReversePathFilter`.
        counter: String,
        /// Increase of the counter.
        increase: u64,
        /// Number of packets lost in the namespace.
        lost: u64,
        /// Sysctls that control this drop, with their values.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sysctls: Vec<SysctlValue>,
    },
    /// The packet was sent through an interface, and no namespace received it.
    NotReceived {
        /// Interface that sent the packet; absent if it was not captured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface: Option<String>,
        /// Object at fault; absent if the evidence does not show it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
    },
    /// The packet was still queued: the hardware address of a neighbour was unknown.
    Waiting {
        /// Address of the neighbour.
        neighbour: IpAddr,
        /// Object at fault; absent if the evidence does not show it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
    },
    /// The end of the packet was not recorded.
    Unknown {
        /// Object that can have ended the packet; absent if the evidence does not show it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
    },
}

impl Cause {
    /// Returns the cause for the end of a packet in its last hop. `refer` makes the references of
    /// rules.
    pub(super) fn new(
        flight: &PacketPath,
        hop: &Hop,
        lab: &LabState<'_>,
        refer: impl Fn(&RuleMatch) -> RuleReference,
    ) -> Self {
        let last = LastHop::new(lab, flight, hop);
        let explain = |kind| last.map_or((kind, None), |last| last.explain(kind));
        match &flight.end {
            PathEnd::DroppedByRule => {
                let boxed = |step: &RuleMatch| Box::new(refer(step));
                let rule = hop.matches.last().map(|step| Self::Rule {
                    rule: refer(step),
                    marked_by: marking_rule(hop).map(boxed),
                    sent_by: sending_rule(hop).map(boxed),
                    unmatched: unmatched_rules(hop),
                });
                rule.unwrap_or(Self::Unknown { fault: None })
            }
            PathEnd::Dropped {
                reason,
                function,
                settings,
            } => {
                let (kind, fault) = explain(drop_kind(reason, function.as_deref()));
                Self::Kernel {
                    kind,
                    fault,
                    reason: reason.clone(),
                    function: function.clone(),
                    sysctls: settings.clone(),
                }
            }
            PathEnd::CountedDrop {
                counter,
                increase,
                lost,
                settings,
            } => {
                let (kind, fault) = match counter_kind(counter) {
                    // The reply had no route.
                    DropKind::NoRoute if REPLY_COUNTERS.contains(&counter.as_str()) => {
                        (DropKind::NoRoute, last.map(LastHop::source_route))
                    }
                    kind => explain(kind),
                };
                Self::Counter {
                    kind,
                    fault,
                    counter: counter.clone(),
                    increase: *increase,
                    lost: *lost,
                    sysctls: settings.clone(),
                }
            }
            PathEnd::NotReceived => Self::NotReceived {
                interface: hop.crossings.last().map(|seen| seen.interface.clone()),
                // A tunnel packet that no interface carried waits for the hardware address of the
                // tunnel end.
                fault: last.and_then(|last| last.link().or_else(|| last.vxlan_remote_unsent())),
            },
            PathEnd::Waiting(neighbour) => Self::Waiting {
                neighbour: *neighbour,
                fault: last.and_then(LastHop::vxlan_neighbour),
            },
            PathEnd::Unknown | PathEnd::Delivered | PathEnd::Rejected(_) => Self::Unknown {
                fault: last.and_then(LastHop::silent_port),
            },
        }
    }
}

/// Counters of packets of the namespace itself without a route: here, replies.
pub(super) const REPLY_COUNTERS: [&str; 2] = ["IpOutNoRoutes", "Ip6OutNoRoutes"];

/// Returns the kind of cause that a counter stands for (Linux v6.12, `net/ipv4/proc.c`,
/// `snmp4_ipstats_list` and others; `net/ipv6/proc.c`, `snmp6_ipstats_list`).
fn counter_kind(counter: &str) -> DropKind {
    match counter {
        "TcpExtIPReversePathFilter" => DropKind::ReversePath,
        "IpExtInNoRoutes" | "Ip6InNoRoutes" | "IpOutNoRoutes" | "Ip6OutNoRoutes" => {
            DropKind::NoRoute
        }
        "IpInAddrErrors" | "Ip6InAddrErrors" => DropKind::NotForwarding,
        "IpInHdrErrors" | "Ip6InHdrErrors" => DropKind::TtlOrHeader,
        "IpFragFails" | "Ip6InTooBigErrors" => DropKind::TooBig,
        "IcmpInErrors" | "Icmp6InErrors" => DropKind::NoConnection,
        _ => DropKind::Unspecified,
    }
}
