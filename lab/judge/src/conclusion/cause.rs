//! Finds the cause of the loss of a packet.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules::{RuleReference, marking_rule};
use svclab_journey::journey::{Hop, PathEnd, SysctlValue};

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
        marked_by: Option<RuleReference>,
    },
    /// The kernel reported the packet as dropped.
    Kernel {
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
    },
    /// The packet was still queued: the hardware address of a neighbour was unknown.
    Waiting {
        /// Address of the neighbour.
        neighbour: IpAddr,
    },
    /// The end of the packet was not recorded.
    Unknown,
}

impl Cause {
    /// Returns the cause for the end of a packet in its last hop.
    pub(super) fn new(end: &PathEnd, hop: &Hop) -> Self {
        match end {
            PathEnd::DroppedByRule => hop.matches.last().map_or(Self::Unknown, |step| Self::Rule {
                rule: RuleReference::new(step, hop),
                marked_by: marking_rule(hop).map(|step| RuleReference::new(step, hop)),
            }),
            PathEnd::Dropped {
                reason,
                function,
                settings,
            } => Self::Kernel {
                reason: reason.clone(),
                function: function.clone(),
                sysctls: settings.clone(),
            },
            PathEnd::CountedDrop {
                counter,
                increase,
                lost,
                settings,
            } => Self::Counter {
                counter: counter.clone(),
                increase: *increase,
                lost: *lost,
                sysctls: settings.clone(),
            },
            PathEnd::NotReceived => Self::NotReceived {
                interface: hop.crossings.last().map(|seen| seen.interface.clone()),
            },
            PathEnd::Waiting(neighbour) => Self::Waiting {
                neighbour: *neighbour,
            },
            PathEnd::Unknown | PathEnd::Delivered | PathEnd::Rejected(_) => Self::Unknown,
        }
    }
}
