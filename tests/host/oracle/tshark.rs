//! Parses packets with tshark.

use std::fs::File;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use pcap_file::pcap::{PcapPacket, PcapWriter};
use svclab_journey::{Frame, Payload};
use svclab_model::evidence::Packet;

/// Fields that tshark prints for each packet. A field that occurs several times, as in a tunnel,
/// has its values in packet order.
const FIELDS: [&str; 12] = [
    "frame.protocols",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.flags",
    "udp.srcport",
    "udp.dstport",
    "icmp.type",
    "icmpv6.type",
];

/// A packet as tshark parses it.
pub struct TsharkPacket {
    /// Protocol layers, outermost first, such as `eth:ethertype:ip:tcp`.
    pub protocols: String,
    /// The IP packet; `None` for other frames.
    pub packet: Option<ParsedPacket>,
}

/// Fields of an IP packet that both parsers report.
#[derive(Debug, PartialEq, Eq)]
pub struct ParsedPacket {
    source: IpAddr,
    destination: IpAddr,
    ports: Option<(u16, u16)>,
    payload: &'static str,
    flags: Option<u8>,
    inner: Option<Box<ParsedPacket>>,
}

impl ParsedPacket {
    /// Converts the packet that svclab parsed.
    pub fn from_frame(frame: &Frame) -> Self {
        let (payload, flags) = match frame.payload {
            Payload::Tcp(flags) => ("tcp", Some(flags)),
            Payload::Udp => ("udp", None),
            Payload::Ping => ("ping", None),
            Payload::Pong => ("pong", None),
            Payload::Unreachable => ("unreachable", None),
            Payload::Other => ("other", None),
        };
        Self {
            source: frame.source,
            destination: frame.destination,
            ports: frame.ports,
            payload,
            flags,
            inner: frame
                .inner
                .as_deref()
                .map(|inner| Box::new(Self::from_frame(inner))),
        }
    }
}

/// Parses packets with tshark.
pub fn parse_packets(packets: &[Packet]) -> Vec<TsharkPacket> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("evidence.pcap");
    let file = File::create(&path).expect("the file can be created");
    let mut pcap = PcapWriter::new(file).expect("the header can be written");
    for packet in packets {
        let written = PcapPacket::new(
            Duration::from_nanos(packet.time),
            packet.length,
            &packet.bytes,
        );
        pcap.write_packet(&written)
            .expect("the packet can be written");
    }
    drop(pcap);
    let output = Command::new("tshark")
        .arg("-n")
        .arg("-r")
        .arg(&path)
        // flannel uses the kernel's VXLAN port, not the registered one.
        .args(["-d", "udp.port==8472,vxlan"])
        .args(["-T", "fields", "-E", "separator=/t", "-E", "occurrence=a"])
        .args(["-E", "aggregator=,"])
        .args(FIELDS.iter().flat_map(|field| ["-e", field]))
        .output()
        .expect("tshark is installed");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {stderr}");
    let text = String::from_utf8(output.stdout).expect("tshark writes UTF-8");
    text.lines().map(parse_line).collect()
}

fn parse_line(line: &str) -> TsharkPacket {
    let mut values = line.split('\t').map(|values| values.split(',').collect());
    let protocols = values
        .next()
        .map(|values_of_protocols: Vec<&str>| values_of_protocols.join(","));
    let mut fields = Fields(FIELDS[1..].iter().copied().zip(values).collect());
    let protocols = protocols.expect("every packet has layers");
    let mut layers = protocols.split(':');
    let packet = fields.packet(&mut layers);
    TsharkPacket { protocols, packet }
}

/// Values of a packet that no layer has used yet.
struct Fields<'a>(Vec<(&'a str, Vec<&'a str>)>);

impl Fields<'_> {
    /// Returns the next value of a field.
    fn next(&mut self, field: &str) -> &str {
        let field = self.0.iter_mut().find(|(name, _)| *name == field);
        field.expect("the field was requested").1.remove(0)
    }

    fn number(&mut self, field: &str) -> u16 {
        self.next(field).parse().expect("a number")
    }

    /// Parses the IP packet in the next layers; `None` if there is none.
    fn packet<'l>(&mut self, layers: &mut impl Iterator<Item = &'l str>) -> Option<ParsedPacket> {
        let version = layers.find(|layer| ["ip", "ipv6"].contains(layer))?;
        let address = |text: &str| text.parse().expect("an address");
        let source = address(self.next(&format!("{version}.src")));
        let destination = address(self.next(&format!("{version}.dst")));
        let (mut ports, mut flags, mut inner) = (None, None, None);
        let payload = match layers.next() {
            Some("tcp") => {
                ports = Some((self.number("tcp.srcport"), self.number("tcp.dstport")));
                let flags_text = self.next("tcp.flags").trim_start_matches("0x");
                let all = u16::from_str_radix(flags_text, 16).expect("flags in hexadecimal");
                flags = Some(all.to_be_bytes()[1]);
                "tcp"
            }
            Some("udp") => {
                ports = Some((self.number("udp.srcport"), self.number("udp.dstport")));
                if layers.next() == Some("vxlan") {
                    inner = self.packet(layers).map(Box::new);
                }
                "udp"
            }
            // The packet quoted by an ICMP error is not a packet of its own.
            Some("icmp") => match self.number("icmp.type") {
                0 => "pong",
                3 => "unreachable",
                8 => "ping",
                _ => "other",
            },
            Some("icmpv6") => match self.number("icmpv6.type") {
                1 => "unreachable",
                128 => "ping",
                129 => "pong",
                _ => "other",
            },
            _ => "other",
        };
        Some(ParsedPacket {
            source,
            destination,
            ports,
            payload,
            flags,
            inner,
        })
    }
}
