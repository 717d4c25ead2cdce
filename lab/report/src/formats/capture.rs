//! Writes the capture of a case.

use std::io::{self, Write};

use super::packet_comments::comments;
use super::pcapng::Pcapng;
use crate::commands::explain::StageJourneys;
use svclab_model::evidence::Evidence;

/// Writes the packets of a case as pcapng, with comments that explain them. Interfaces of which no
/// packet was captured are in the file if they are in `interfaces`, each with its namespace.
pub(crate) fn write_capture(
    out: impl Write,
    interfaces: impl IntoIterator<Item = (String, String)>,
    evidence: &Evidence,
    stages: &[StageJourneys],
) -> io::Result<()> {
    let mut pcapng = Pcapng::begin(out, interfaces)?;
    let mut left_out = 0_u64;
    for (stage, explained) in evidence.stages.iter().zip(stages) {
        for packet in stage.step.iter().flat_map(|step| &step.packets) {
            pcapng.packet(packet, None)?;
        }
        let packet_comments = comments(explained.connections.iter().map(AsRef::as_ref));
        for (number, packet) in stage.packets.iter().enumerate() {
            pcapng.packet(packet, packet_comments.get(&number).map(String::as_str))?;
        }
        left_out = left_out.saturating_add(stage.packets_missed);
    }
    if left_out > 0 {
        pcapng.write_missed(left_out)?;
    }
    pcapng.flush()
}
