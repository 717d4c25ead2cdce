//! Defines the packets that a kernel dropped, with the reasons.

use serde::{Deserialize, Serialize};

use super::bytes;

/// Packet that the kernel reported as dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DroppedPacket {
    /// Nanoseconds since the epoch, on the same clock as packet times.
    pub time: u64,
    /// Namespace that dropped the packet.
    pub namespace: String,
    /// Interface of the packet. Absent if the packet had no interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Drop reason of the kernel: `IP_RPFILTER`.
    pub reason: String,
    /// Kernel function that dropped the packet: `ip_rcv_finish_core`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// First bytes of the packet, from the IP header on.
    #[serde(with = "bytes")]
    #[schemars(with = "String")]
    pub packet: Vec<u8>,
}

/// Dropped packets, or the reason for the lack of data.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum DropEvidence {
    /// Dropped packets were not requested.
    #[default]
    Unwatched,
    /// No tracer could be opened, for this reason. Only kernel counters show drops.
    Uncertain(String),
    /// Dropped packets were recorded.
    Watched {
        /// Number of drops that were not recorded, because the buffer was full or the kernel skipped
        /// the recording programs. An upper bound.
        missed: u64,
        /// Recorded drops, in chronological order.
        dropped: Vec<DroppedPacket>,
    },
}

impl DropEvidence {
    /// Returns the number of drops that are known to be missing.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        match self {
            Self::Watched { missed: lost, .. } => *lost,
            Self::Unwatched | Self::Uncertain(_) => 0,
        }
    }

    /// Returns the reason why drops were not recorded although they were requested.
    /// `None` if they were recorded or not requested.
    #[must_use]
    pub fn unavailable_reason(&self) -> Option<&str> {
        match self {
            Self::Uncertain(reason) => Some(reason),
            Self::Unwatched | Self::Watched { .. } => None,
        }
    }

    /// Removes and returns the packets dropped at `time` (in nanoseconds) or later. Both parts keep
    /// the number of lost drops, which may belong to either part.
    #[must_use]
    pub fn split_off(&mut self, time: u64) -> Self {
        match self {
            Self::Watched {
                missed: lost,
                dropped,
            } => {
                let index = dropped.partition_point(|packet| packet.time < time);
                Self::Watched {
                    missed: *lost,
                    dropped: dropped.split_off(index),
                }
            }
            Self::Unwatched => Self::Unwatched,
            Self::Uncertain(why) => Self::Uncertain(why.clone()),
        }
    }

    /// Appends drops that were recorded later. The later number of lost drops is a total.
    pub fn add(&mut self, later: Self) {
        match (&mut *self, later) {
            (
                Self::Watched {
                    missed: lost,
                    dropped,
                },
                Self::Watched {
                    missed: lost_by_now,
                    dropped: later_drops,
                },
            ) => {
                *lost = lost_by_now;
                dropped.extend(later_drops);
            }
            (current, later) => *current = later,
        }
    }
}
