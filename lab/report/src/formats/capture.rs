//! Writes the capture of a case.

use std::io::{self, Write};

use super::packet_comments::comments;
use super::pcapng::Pcapng;
use svclab_runner::run::CaseEvidence;

/// Writes the packets of a case as pcapng, with comments that explain them.
pub(crate) fn write_capture(out: impl Write, seen: &CaseEvidence) -> io::Result<()> {
    let mut pcapng = Pcapng::begin(out, seen.interfaces.iter().cloned())?;
    let mut left_out = 0_u64;
    for (stage, journeys) in seen.evidence.stages.iter().zip(&seen.journeys) {
        for packet in stage.step.iter().flat_map(|step| &step.packets) {
            pcapng.packet(packet, None)?;
        }
        let packet_comments = comments(journeys);
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
