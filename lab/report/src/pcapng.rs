//! Packets as pcapng, for tshark, Wireshark and tcpdump
//! (<https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-02.html>): a block for
//! each interface of each namespace, and one for each packet.

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

/// Times are in units of 10⁻⁹ s. Without this readers take them for microseconds.
const NANOSECONDS: u8 = 9;

/// The most of a packet that may be kept; readers refuse a file in which a packet
/// holds more than its interface says.
const SNAP: u32 = 256 << 10;

/// The kind of a block that holds a packet (4.3).
const PACKET: u32 = 6;

/// The two lowest bits of a packet's flags (4.3.1): which way it went.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Writes packets, block by block: what is written at any time is a whole file, as
/// long as the writer takes whole what it is given at once.
pub struct Pcapng<W: Write> {
    out: W,
    /// What the writer makes of blocks, before it is given to `out` in one piece.
    blocks: PcapNgWriter<Vec<u8>>,
    interfaces: IndexSet<(String, String)>,
    latest: u64,
}

impl<W: Write> Pcapng<W> {
    /// Begins a file with these interfaces, each of a namespace; others may come.
    ///
    /// # Errors
    ///
    /// What `out` says.
    pub fn begin(
        out: W,
        interfaces: impl IntoIterator<Item = (String, String)>,
    ) -> io::Result<Self> {
        let mut pcapng = Self {
            out,
            blocks: PcapNgWriter::with_endianness(Vec::new(), Endianness::Little)
                .map_err(unwritten)?,
            interfaces: IndexSet::new(),
            latest: 0,
        };
        for (namespace, name) in interfaces {
            pcapng.interface(&namespace, &name)?;
        }
        pcapng.flush()?;
        Ok(pcapng)
    }

    /// The number of an interface, which is described to readers if it is new.
    fn interface(&mut self, namespace: &str, name: &str) -> io::Result<u32> {
        let (at, is_new) = self
            .interfaces
            .insert_full((namespace.to_owned(), name.to_owned()));
        if is_new {
            let block = InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: SNAP,
                options: vec![
                    InterfaceDescriptionOption::IfName(format!("{namespace}/{name}").into()),
                    InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
                ],
            };
            self.blocks.write_pcapng_block(block).map_err(unwritten)?;
        }
        u32::try_from(at).map_err(io::Error::other)
    }

    /// Writes a packet, with what there is to say of it.
    ///
    /// # Errors
    ///
    /// What the writer says; [`Pcapng::flush`] hands it on.
    pub fn packet(&mut self, packet: &Packet, comment: Option<&str>) -> io::Result<()> {
        let interface_id = self.interface(&packet.namespace, &packet.interface)?;
        let way = match packet.direction {
            Direction::In => INBOUND,
            Direction::Out => OUTBOUND,
        };
        let mut options = vec![EnhancedPacketOption::Flags(way)];
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
            .map_err(unwritten)
    }

    /// Says how many packets there was no room for, on the first interface: the
    /// kernel does not say on which they were.
    ///
    /// # Errors
    ///
    /// As of [`Pcapng::packet`].
    pub fn missed(&mut self, packets: u64) -> io::Result<()> {
        if self.interfaces.is_empty() {
            return Ok(());
        }
        let block = InterfaceStatisticsBlock {
            interface_id: 0,
            // The upper half is written first (4.3), which pcap-file leaves to who
            // gives it the number.
            timestamp: self.latest.rotate_left(32),
            options: vec![
                InterfaceStatisticsOption::Comment(
                    "packets of any interface that came faster than they were read".into(),
                ),
                InterfaceStatisticsOption::IsbOsDrop(packets),
            ],
        };
        self.blocks
            .write_pcapng_block(block)
            .map(drop)
            .map_err(unwritten)
    }

    /// Hands on all blocks that were written so far, in one piece.
    ///
    /// # Errors
    ///
    /// What `out` says.
    pub fn flush(&mut self) -> io::Result<()> {
        let blocks = self.blocks.get_mut();
        if blocks.is_empty() {
            return Ok(());
        }
        let written = self.out.write_all(blocks);
        blocks.clear();
        written.and_then(|()| self.out.flush())
    }

    /// Where it goes.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }
}

/// How many bytes at the beginning of some are whole blocks, and how many packets
/// those hold. What comes after is a block that is torn.
#[must_use]
pub fn whole_blocks(bytes: &[u8]) -> (usize, u64) {
    let (mut whole, mut packets) = (0, 0);
    let number = |at: usize| -> Option<u32> {
        let four = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(four.try_into().ok()?))
    };
    while let Some((kind, length)) = number(whole).zip(number(whole + 4)) {
        let Some(end) = usize::try_from(length)
            .ok()
            .and_then(|length| whole.checked_add(length))
            .filter(|end| *end > whole && *end <= bytes.len())
        else {
            break;
        };
        packets += u64::from(kind == PACKET);
        whole = end;
    }
    (whole, packets)
}

fn unwritten(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}
