//! Decodes the records of dropped packets.

use std::collections::HashMap;
use std::io;

use nix::time::{ClockId, clock_gettime};

use super::copies::RecordedDrops;
use super::program::{
    COPY, FUNCTION, INTERFACE, NAMESPACE, NETWORK, PACKET, PROTOCOL, REASON, TAIL, TIME,
};
use svclab_model::evidence::DroppedPacket;

/// Prefix of the kernel's drop reasons.
const REASON_PREFIX: &str = "SKB_DROP_REASON_";

/// Reasons that do not mark a drop.
const NOT_A_DROP: [&str; 2] = ["SKB_NOT_DROPPED_YET", "SKB_CONSUMED"];

/// Decoder of the records of one trace.
#[derive(Debug)]
pub(super) struct RecordDecoder {
    /// Names of the drop reasons, by number.
    reasons: &'static HashMap<u32, String>,
    /// Names of the traced namespaces, by inode number.
    namespaces: HashMap<u32, String>,
    recorded: RecordedDrops,
    /// Time of the start on the monotonic clock.
    begin: u64,
    /// Offset from the monotonic clock to the wall clock at the start.
    wall_offset: i128,
}

impl RecordDecoder {
    /// Returns a decoder of records from now on.
    pub(super) fn new(
        reasons: &'static HashMap<u32, String>,
        namespaces: HashMap<u32, String>,
    ) -> io::Result<Self> {
        let begin = nanoseconds(ClockId::CLOCK_MONOTONIC)?;
        Ok(Self {
            reasons,
            namespaces,
            recorded: RecordedDrops::default(),
            begin: u64::try_from(begin).map_err(io::Error::other)?,
            wall_offset: nanoseconds(ClockId::CLOCK_REALTIME)? - begin,
        })
    }

    pub(super) fn namespaces(&self) -> &HashMap<u32, String> {
        &self.namespaces
    }

    /// Returns the drop of a record. Returns `None` for a drop that another copy of the program
    /// recorded, or of an earlier trace, for a packet that is not an IP packet, and for one that was
    /// not dropped.
    pub(super) fn decode(&mut self, record: &[u8]) -> Option<DroppedPacket> {
        let time = read_u64(record, TIME)?;
        if time < self.begin || !self.recorded.insert(record) {
            return None;
        }
        let namespace = self.namespaces.get(&read_u32(record, NAMESPACE)?)?;
        let number = read_u32(record, REASON)?;
        let reason = match self.reasons.get(&number) {
            Some(name) if NOT_A_DROP.contains(&name.as_str()) => return None,
            Some(name) => name.strip_prefix(REASON_PREFIX).unwrap_or(name).to_owned(),
            None => number.to_string(),
        };
        let version = match record.get(PROTOCOL..)?.first_chunk()? {
            [0x08, 0x00] => 4,
            [0x86, 0xdd] => 6,
            _ => return None,
        };
        let begin = u32::from(read_u16(record, NETWORK)?);
        let length = read_u32(record, TAIL)?.saturating_sub(begin);
        let length = usize::try_from(length).ok()?;
        let packet = record.get(PACKET..COPY)?;
        let packet = &packet[..length.min(packet.len())];
        // Before the kernel has located the IP header, the start of the packet is unknown.
        let packet = if packet.first().is_some_and(|first| first >> 4 == version) {
            packet.to_vec()
        } else {
            Vec::new()
        };
        let time = i128::from(time) + self.wall_offset;
        let function = c_text(record.get(FUNCTION..PACKET)?);
        let place = function.and_then(|place| Some(base_name(&place)?.to_owned()));
        Some(DroppedPacket {
            time: u64::try_from(time).unwrap_or(0),
            namespace: namespace.clone(),
            interface: c_text(record.get(INTERFACE..FUNCTION)?),
            reason,
            function: place,
            packet,
        })
    }
}

/// Returns a function's name without its module (`nft_do_chain [nf_tables]`) and without compiler
/// suffixes (`ip_rcv_finish_core.constprop.0`).
fn base_name(function: &str) -> Option<&str> {
    function.split([' ', '.']).next()
}

/// Returns the text before the first zero byte, or `None` if the text is empty.
fn c_text(bytes: &[u8]) -> Option<String> {
    let text = bytes.split(|byte| *byte == 0).next()?;
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

fn nanoseconds(clock: ClockId) -> io::Result<i128> {
    let time = clock_gettime(clock)?;
    Ok(i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec()))
}

fn read_u32(record: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*record.get(offset..)?.first_chunk()?))
}

fn read_u16(record: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*record.get(offset..)?.first_chunk()?))
}

fn read_u64(record: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*record.get(offset..)?.first_chunk()?))
}
