//! Keeps the bytes of the packets that a page shows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::commands::explain::StageJourneys;
use svclab_model::evidence::{Evidence, bytes};

/// Maximum number of packets, and of packets of one connection.
const MAX_FRAMES: usize = 400;
const MAX_FRAMES_OF_CONNECTION: usize = 24;

/// Maximum number of bytes that are kept of a packet. The capture has all.
const MAX_BYTES: usize = 128;

/// Bytes of a packet where an interface last carried it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShownFrame {
    /// Index of the stage, from 0.
    pub stage: usize,
    /// Name of the probe.
    pub probe: String,
    /// Number of the connection, from 0.
    pub number: u32,
    /// Index of the packet in its connection, from 0.
    pub packet: usize,
    /// First bytes, from the Ethernet header on.
    #[serde(with = "bytes")]
    #[schemars(with = "String")]
    pub bytes: Vec<u8>,
}

/// Returns the bytes of the packets of one connection of each kind.
pub(crate) fn shown_frames(stages: &[StageJourneys], evidence: &Evidence) -> Vec<ShownFrame> {
    let mut frames = Vec::new();
    for (stage, (shown, seen)) in stages.iter().zip(&evidence.stages).enumerate() {
        for (explained, _) in shown.groups() {
            let journey = &explained.journey;
            let packets = journey.packets.iter().enumerate();
            for (index, packet) in packets.take(MAX_FRAMES_OF_CONNECTION) {
                let mut crossings = packet
                    .hops
                    .iter()
                    .rev()
                    .flat_map(|hop| hop.crossings.iter().rev());
                let last = crossings.find(|crossing| !crossing.encapsulated);
                let captured = last.and_then(|crossing| seen.packets.get(crossing.packet));
                frames.extend(captured.map(|captured| ShownFrame {
                    stage,
                    probe: journey.probe.clone(),
                    number: journey.number,
                    packet: index,
                    bytes: captured.bytes.iter().copied().take(MAX_BYTES).collect(),
                }));
            }
        }
    }
    frames.truncate(MAX_FRAMES);
    frames
}
