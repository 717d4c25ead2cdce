//! Keeps the bytes of the packets that a page shows, and decodes their headers.

mod checksum;
mod decode;
pub(crate) mod header;
mod layer;
mod network;
#[cfg(test)]
mod tests;
mod transport;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::commands::explain::StageJourneys;
use header::Header;
use svclab_journey::journey::{Crossing, PacketPath};
use svclab_model::evidence::{Evidence, bytes};

/// Maximum number of packets, and of packets of one connection.
const MAX_FRAMES: usize = 400;
const MAX_FRAMES_OF_CONNECTION: usize = 24;

/// Maximum number of bytes that are kept of a packet. The capture has all.
const MAX_BYTES: usize = 128;

/// Bytes of a packet where an interface last carried it: one frame of the packet itself, and one of
/// the packet in its last tunnel.
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
    /// Index in `packets` of the evidence of the stage.
    pub captured: usize,
    /// Name of the namespace.
    pub namespace: String,
    /// Name of the interface.
    pub interface: String,
    /// First bytes, from the Ethernet header on.
    #[serde(with = "bytes")]
    #[schemars(with = "String")]
    pub bytes: Vec<u8>,
    /// Headers of the packet, from the outermost on.
    pub headers: Vec<Header>,
}

/// Returns the bytes of the packets of one connection of each kind.
pub(crate) fn shown_frames(stages: &[StageJourneys], evidence: &Evidence) -> Vec<ShownFrame> {
    let mut frames = Vec::new();
    for (stage, (shown, seen)) in stages.iter().zip(&evidence.stages).enumerate() {
        for (explained, _) in shown.groups() {
            let journey = &explained.journey;
            let packets = journey.packets.iter().enumerate();
            for (index, packet) in packets.take(MAX_FRAMES_OF_CONNECTION) {
                for crossing in last_crossings(packet) {
                    let captured = seen.packets.get(crossing.packet);
                    frames.extend(captured.map(|captured| ShownFrame {
                        stage,
                        probe: journey.probe.clone(),
                        number: journey.number,
                        packet: index,
                        captured: crossing.packet,
                        namespace: captured.namespace.clone(),
                        interface: captured.interface.clone(),
                        bytes: captured.bytes.iter().copied().take(MAX_BYTES).collect(),
                        headers: decode::decode(&captured.bytes),
                    }));
                }
            }
        }
    }
    frames.truncate(MAX_FRAMES);
    frames
}

/// Returns the last interface that carried a packet itself, and the last that carried the packet in a
/// tunnel.
fn last_crossings(packet: &PacketPath) -> impl Iterator<Item = &Crossing> {
    let last = |is_encapsulated| {
        let crossings = packet.hops.iter().rev();
        let mut crossings = crossings.flat_map(|hop| hop.crossings.iter().rev());
        crossings.find(move |crossing| crossing.encapsulated == is_encapsulated)
    };
    [last(false), last(true)].into_iter().flatten()
}
