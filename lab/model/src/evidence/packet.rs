//! Defines a captured packet.

use serde::{Deserialize, Serialize};

use super::bytes;

/// Maximum number of packets in the evidence of one stage of a case.
pub const MAX_PACKETS: usize = 50_000;

/// Direction of a packet at an interface, from the point of view of its namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The interface received the packet.
    In,
    /// The interface sent the packet.
    Out,
}

/// Frame captured at an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Packet {
    /// Nanoseconds since the epoch. The timestamp comes from the capturing kernel. Its offset is
    /// that of the clock at the start of the lab, so setting the clock later has no effect.
    pub time: u64,
    /// Namespace of the interface.
    pub namespace: String,
    /// Name of the interface.
    pub interface: String,
    /// Direction of the packet at the interface.
    pub direction: Direction,
    /// Original length of the frame, in bytes.
    pub length: u32,
    /// First bytes of the frame, from the Ethernet header on.
    #[serde(with = "bytes")]
    #[schemars(with = "String")]
    pub bytes: Vec<u8>,
}
