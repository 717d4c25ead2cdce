//! Renders the headers and the bytes of a packet.

use data_encoding::HEXLOWER;
use maud::{Markup, html};

use crate::shown_frames::ShownFrame;
use crate::shown_frames::header::{
    Checksum, ChecksumState, Header, Icmp, Ipv4Header, Ipv6Header, TcpHeader, TcpOption,
};
use crate::text::join;
use svclab_diagnostic::printable::printable;

/// Name of a header, and its fields with their values.
type Fields = (&'static str, Vec<(&'static str, String)>);

/// Renders where the packet was captured, its headers, and its bytes.
pub(super) fn render(frame: &ShownFrame) -> Markup {
    let place = format!("{} of {}", frame.interface, frame.namespace);
    let mut is_quoted = false;
    let headers = frame.headers.iter().map(|header| {
        let quoted = is_quoted;
        // Messages without identifier are errors.
        is_quoted |= matches!(header, Header::Icmp(message) | Header::Icmpv6(message)
            if message.identifier.is_none());
        (quoted, fields(header))
    });
    html! {
        details.bytes {
            summary { "Headers and bytes at " (printable(&place)) }
            dl {
                @for (is_quoted, (name, fields)) in headers {
                    dt { @if is_quoted { "quoted " } (name) }
                    dd { (printable(&describe(&fields))) }
                }
            }
            code { (hexadecimal(&frame.bytes)) }
        }
    }
}

fn describe(fields: &[(&str, String)]) -> String {
    let fields = fields
        .iter()
        .map(|(label, value)| format!("{label} {value}"));
    join(fields, " · ")
}

/// Renders bytes in groups of two, as tcpdump does.
fn hexadecimal(bytes: &[u8]) -> String {
    let groups = bytes.chunks(2).map(|group| HEXLOWER.encode(group));
    join(groups, " ")
}

fn fields(header: &Header) -> Fields {
    match header {
        Header::Ethernet {
            source,
            destination,
            ether_type,
        } => (
            "Ethernet",
            vec![
                ("from", source.to_string()),
                ("to", destination.to_string()),
                ("type", format!("{ether_type:#06x}")),
            ],
        ),
        Header::Vlan { id, ether_type } => (
            "VLAN",
            vec![
                ("id", id.to_string()),
                ("type", format!("{ether_type:#06x}")),
            ],
        ),
        Header::Ipv4(header) => ("IPv4", ipv4(header)),
        Header::Ipv6(header) => ("IPv6", ipv6(header)),
        Header::Tcp(header) => ("TCP", tcp(header)),
        Header::Udp {
            source_port,
            destination_port,
            length,
            checksum,
        } => (
            "UDP",
            vec![
                ("from port", source_port.to_string()),
                ("to port", destination_port.to_string()),
                ("length", length.to_string()),
                ("checksum", describe_checksum(*checksum)),
            ],
        ),
        Header::Icmp(message) => ("ICMP", icmp(message)),
        Header::Icmpv6(message) => ("ICMPv6", icmp(message)),
        Header::Vxlan { vni } => ("VXLAN", vec![("VNI", vni.to_string())]),
        Header::Data { length } => ("Data", vec![("bytes", length.to_string())]),
        Header::NotDecoded { reason, length } => (
            "Not decoded",
            vec![("reason", reason.clone()), ("bytes", length.to_string())],
        ),
    }
}

fn ipv4(header: &Ipv4Header) -> Vec<(&'static str, String)> {
    let Ipv4Header {
        source,
        destination,
        payload,
        ttl,
        length,
        identification,
        dscp,
        ecn,
        dont_fragment,
        more_fragments,
        fragment_offset,
        options,
        checksum,
    } = header;
    let flags = [(dont_fragment, "DF"), (more_fragments, "MF")];
    let flags = flags.iter().filter(|(is_set, _)| **is_set);
    let flags = join(flags.map(|(_, name)| (*name).to_owned()), " ");
    let mut fields = vec![
        ("from", source.to_string()),
        ("to", destination.to_string()),
        ("protocol", payload.to_string()),
        ("TTL", ttl.to_string()),
        ("length", length.to_string()),
        ("identification", format!("{identification:#06x}")),
    ];
    let optional = [
        ("flags", flags.clone(), flags.is_empty()),
        (
            "fragment offset",
            fragment_offset.to_string(),
            *fragment_offset == 0,
        ),
        ("DSCP", dscp.to_string(), *dscp == 0),
        ("ECN", ecn.to_string(), *ecn == 0),
        ("options", format!("{options} bytes"), *options == 0),
    ];
    let optional = optional.into_iter().filter(|(_, _, is_absent)| !is_absent);
    fields.extend(optional.map(|(label, value, _)| (label, value)));
    fields.push(("checksum", describe_checksum(*checksum)));
    fields
}

fn ipv6(header: &Ipv6Header) -> Vec<(&'static str, String)> {
    let Ipv6Header {
        source,
        destination,
        payload,
        hop_limit,
        payload_length,
        traffic_class,
        flow_label,
    } = header;
    vec![
        ("from", source.to_string()),
        ("to", destination.to_string()),
        ("next header", payload.to_string()),
        ("hop limit", hop_limit.to_string()),
        ("payload length", payload_length.to_string()),
        ("traffic class", format!("{traffic_class:#04x}")),
        ("flow label", format!("{flow_label:#07x}")),
    ]
}

fn tcp(header: &TcpHeader) -> Vec<(&'static str, String)> {
    let TcpHeader {
        source_port,
        destination_port,
        sequence,
        acknowledgment,
        flags,
        window,
        options,
        checksum,
    } = header;
    let flags = flags.iter().map(|flag| format!("{flag:?}").to_uppercase());
    let mut fields = vec![
        ("from port", source_port.to_string()),
        ("to port", destination_port.to_string()),
        ("flags", join(flags, " ")),
        ("seq", sequence.to_string()),
        ("ack", acknowledgment.to_string()),
        ("window", window.to_string()),
    ];
    fields.extend(options.iter().map(option));
    fields.push(("checksum", describe_checksum(*checksum)));
    fields
}

fn option(option: &TcpOption) -> (&'static str, String) {
    match option {
        TcpOption::Mss(size) => ("MSS", size.to_string()),
        TcpOption::WindowScale(shift) => ("window scale", shift.to_string()),
        TcpOption::SackPermitted => ("SACK", "permitted".to_owned()),
        TcpOption::Sack(blocks) => {
            let blocks = blocks.iter().map(|(from, to)| format!("{from} to {to}"));
            ("SACK", join(blocks, ", "))
        }
        TcpOption::Timestamps { value, echo } => ("timestamps", format!("{value}, echo {echo}")),
        TcpOption::Other { kind, length } => ("option", format!("{kind} with {length} bytes")),
    }
}

fn icmp(message: &Icmp) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("type", message.kind.to_string()),
        ("code", message.code.to_string()),
    ];
    let identifier = message.identifier.map(u32::from);
    let sequence = message.sequence.map(u32::from);
    let optional = [
        ("identifier", identifier),
        ("sequence", sequence),
        ("MTU", message.mtu),
    ];
    fields.extend(
        optional
            .into_iter()
            .filter_map(|(label, value)| Some((label, value?.to_string()))),
    );
    fields.push(("checksum", describe_checksum(message.checksum)));
    fields
}

fn describe_checksum(checksum: Checksum) -> String {
    let state = match checksum.state {
        ChecksumState::Correct => "correct",
        ChecksumState::Partial => "left to the device",
        ChecksumState::Wrong => "wrong",
        ChecksumState::Absent => "absent",
        ChecksumState::NotVerified => "not verified",
    };
    format!("{:#06x} {state}", checksum.value)
}
