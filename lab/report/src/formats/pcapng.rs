//! Writes packets as pcapng for tshark, Wireshark and tcpdump
//! (<https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-02.html>), with a block for each
//! interface of each namespace and one for each packet.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use indexmap::IndexSet;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::{DataLink, Endianness, PcapError};

use svclab_model::evidence::{Direction, Packet};

/// Unit of timestamps: 10⁻⁹ s. Without this option the unit is microseconds.
const NANOSECONDS: u8 = 9;

/// Maximum number of bytes kept of a packet. Readers reject a file in which a packet is longer than
/// its interface allows.
const SNAP_LENGTH: u32 = 256 << 10;

/// Type of a block that contains a packet (4.3).
const PACKET_BLOCK: u32 = 6;

/// Values of the two lowest bits of a packet's flags (4.3.1): the direction.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Writer of packets in blocks. The output is a complete file at any time, if each write to `out`
/// is atomic.
pub struct Pcapng<W: Write> {
    out: W,
    /// Buffer of encoded blocks, which are written to `out` in one piece.
    blocks: PcapNgWriter<Vec<u8>>,
    interfaces: IndexSet<(String, String)>,
    latest: u64,
}

impl<W: Write> Pcapng<W> {
    /// Starts a file with these interfaces, each given by namespace and name. Others can follow.
    ///
    /// # Errors
    ///
    /// Returns an error if writing to `out` fails.
    pub fn begin(
        out: W,
        interfaces: impl IntoIterator<Item = (String, String)>,
    ) -> io::Result<Self> {
        let mut pcapng = Self {
            out,
            blocks: PcapNgWriter::with_endianness(Vec::new(), Endianness::Little)
                .map_err(to_io_error)?,
            interfaces: IndexSet::new(),
            latest: 0,
        };
        for (namespace, name) in interfaces {
            pcapng.interface(&namespace, &name)?;
        }
        pcapng.flush()?;
        Ok(pcapng)
    }

    /// Returns the number of an interface; describes the interface first if new.
    fn interface(&mut self, namespace: &str, name: &str) -> io::Result<u32> {
        let (index, is_new) = self
            .interfaces
            .insert_full((namespace.to_owned(), name.to_owned()));
        if is_new {
            let block = InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: SNAP_LENGTH,
                options: vec![
                    InterfaceDescriptionOption::IfName(format!("{namespace}/{name}").into()),
                    InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
                ],
            };
            self.blocks.write_pcapng_block(block).map_err(to_io_error)?;
        }
        u32::try_from(index).map_err(io::Error::other)
    }

    /// Adds a packet, with an optional comment. [`Pcapng::flush`] writes it.
    ///
    /// # Errors
    ///
    /// Returns an error if the block cannot be encoded.
    pub fn packet(&mut self, packet: &Packet, comment: Option<&str>) -> io::Result<()> {
        let interface_id = self.interface(&packet.namespace, &packet.interface)?;
        let direction = match packet.direction {
            Direction::In => INBOUND,
            Direction::Out => OUTBOUND,
        };
        let mut options = vec![EnhancedPacketOption::Flags(direction)];
        options.extend(comment.map(|text| EnhancedPacketOption::Comment(text.into())));
        self.latest = self.latest.max(packet.time);
        let block = EnhancedPacketBlock {
            interface_id,
            timestamp: Duration::from_nanos(packet.time),
            original_len: packet.length,
            data: Cow::Borrowed(&packet.bytes),
            options,
        };
        self.blocks
            .write_pcapng_block(block)
            .map(drop)
            .map_err(to_io_error)
    }

    /// Adds the number of packets lost for lack of buffer space, on the first interface. The kernel
    /// does not report their interfaces.
    ///
    /// # Errors
    ///
    /// Returns an error if the block cannot be encoded.
    pub fn write_missed(&mut self, packets: u64) -> io::Result<()> {
        if self.interfaces.is_empty() {
            return Ok(());
        }
        let block = InterfaceStatisticsBlock {
            interface_id: 0,
            // The upper half of the timestamp comes first (4.3). pcap-file leaves the order of the
            // halves to the caller.
            timestamp: self.latest.rotate_left(32),
            options: vec![
                InterfaceStatisticsOption::Comment(
                    "packets of all interfaces that arrived faster than they were read".into(),
                ),
                InterfaceStatisticsOption::IsbOsDrop(packets),
            ],
        };
        self.blocks
            .write_pcapng_block(block)
            .map(drop)
            .map_err(to_io_error)
    }

    /// Writes all buffered blocks in one piece.
    ///
    /// # Errors
    ///
    /// Returns an error if writing to `out` fails.
    pub fn flush(&mut self) -> io::Result<()> {
        let blocks = self.blocks.get_mut();
        if blocks.is_empty() {
            return Ok(());
        }
        let written = self.out.write_all(blocks);
        blocks.clear();
        written.and_then(|()| self.out.flush())
    }

    /// Returns the output.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }
}

/// Returns the number of leading bytes that are complete blocks, and the number of packets in them.
/// A truncated block may follow.
#[must_use]
pub fn whole_blocks(bytes: &[u8]) -> (usize, u64) {
    let (mut complete, mut packets) = (0, 0);
    let number = |offset: usize| -> Option<u32> {
        let four = bytes.get(offset..offset + 4)?;
        Some(u32::from_le_bytes(four.try_into().ok()?))
    };
    while let Some((kind, length)) = number(complete).zip(number(complete + 4)) {
        let Some(end) = usize::try_from(length)
            .ok()
            .and_then(|length| complete.checked_add(length))
            .filter(|end| *end > complete && *end <= bytes.len())
        else {
            break;
        };
        packets += u64::from(kind == PACKET_BLOCK);
        complete = end;
    }
    (complete, packets)
}

fn to_io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        unsupported => io::Error::other(unsupported),
    }
}
