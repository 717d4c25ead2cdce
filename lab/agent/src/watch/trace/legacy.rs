//! Decodes trace events that `ip_tables` and `ip6_tables` log through `nfnetlink_log` (Linux v6.12,
//! `net/ipv4/netfilter/ip_tables.c`, `trace_packet`).

use std::io;

use netlink_sys::Socket;

use super::step::{ChainEnd, InternedNames, RawTraceEvent, TracePosition};
use crate::net::netfilter::attributes::{EncodedAttributes, ReceivedAttributes};
use crate::net::netfilter::nfnetlink::{self, Message, Request};
use svclab_model::plan::Backend;

/// Messages: logged packet, and configuration of the log.
const PACKET: u16 = 4 << 8;
const CONFIGURE: u16 = 4 << 8 | 1;

/// Number of bytes of each packet that the kernel copies.
const MAX_PACKET_BYTES: u32 = 128;

/// Group of messages that name no group (Linux v6.12, `net/netfilter/nfnetlink_log.c`,
/// `default_loginfo`).
const LOG_GROUP: u16 = 0;

/// Attributes of a logged packet (`enum nfulnl_attr_type`).
const MARK: u16 = 2;
const INPUT: u16 = 4;
const OUTPUT: u16 = 5;
const PAYLOAD: u16 = 9;
const PREFIX: u16 = 10;

/// `NFPROTO_IPV4` and `NFPROTO_IPV6`.
const IPV4: u8 = 2;
const IPV6: u8 = 10;

/// Subscribes a socket to the log.
///
/// # Errors
///
/// When another socket is subscribed, or the kernel has no such log.
pub(super) fn subscribe(socket: &Socket) -> io::Result<()> {
    let bind = EncodedAttributes::default().with(1, &[1]);
    let mut mode = MAX_PACKET_BYTES.to_be_bytes().to_vec();
    // Mode: copy packets. The last byte is padding.
    mode.extend_from_slice(&[2, 0]);
    // Maximum buffer size, which holds one packet. By default, each message takes a whole page of
    // the receive buffer.
    let copy = EncodedAttributes::default()
        .with(2, &mode)
        .with_u32(3, 1024);
    for attributes in [bind, copy] {
        let request = Request {
            command: CONFIGURE,
            resource_id: LOG_GROUP,
            attributes: attributes.bytes(),
            ..Request::default()
        };
        nfnetlink::request_on(socket, &request)?;
    }
    Ok(())
}

/// Decoder of the log of one namespace.
#[derive(Debug, Default)]
pub(super) struct LogDecoder {
    names: InternedNames,
    last_packet: Vec<u8>,
}

impl LogDecoder {
    /// Decodes the trace event of a message. Returns `None` for other log messages.
    pub(super) fn decode(&mut self, message: &Message<'_>) -> Option<RawTraceEvent> {
        if message.kind != PACKET {
            return None;
        }
        let ip = match message.family {
            IPV4 => 4,
            IPV6 => 6,
            _ => return None,
        };
        let attributes = ReceivedAttributes(message.attributes);
        let (table, chain, place) = parse_prefix(attributes.text(PREFIX)?)?;
        let payload = attributes.get(PAYLOAD).unwrap_or_default();
        let packet = (self.last_packet != payload).then(|| payload.to_vec());
        if let Some(packet) = &packet {
            self.last_packet.clone_from(packet);
        }
        Some(RawTraceEvent {
            backend: Backend::Legacy,
            trace_id: 0,
            packet,
            ip,
            input: attributes.get_u32(INPUT),
            output: attributes.get_u32(OUTPUT),
            // The mark is that before the rule's target, because the kernel logs before the target
            // runs.
            mark: attributes.get_u32(MARK).unwrap_or(0),
            table: self.names.intern(table),
            inet: false,
            chain: self.names.intern(chain),
            position: place,
            verdict: None,
        })
    }
}

/// Parses table, chain and position from a line such as `TRACE: nat:KUBE-SERVICES:rule:3 `.
fn parse_prefix(line: &str) -> Option<(&str, &str, TracePosition)> {
    let (table, rest) = line.strip_prefix("TRACE: ")?.trim_end().split_once(':')?;
    let mut parts = rest.rsplitn(3, ':');
    let number = parts.next()?.parse().ok()?;
    // The kernel logs `return` and `policy` for every verdict without a condition, including a
    // verdict of a separate rule.
    let place = match parts.next()? {
        "rule" => TracePosition::Rule(number),
        "return" => TracePosition::LastRuleOrEnd(number, ChainEnd::Return),
        "policy" => TracePosition::LastRuleOrEnd(number, ChainEnd::Policy),
        _ => return None,
    };
    Some((table, parts.next()?, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_prefix_names_table_chain_and_position() {
        let read = [
            "TRACE: nat:KUBE-SERVICES:rule:3 ",
            "TRACE: filter:FORWARD:policy:2 ",
            "TRACE: filter:a:b:return:1 ",
        ]
        .map(parse_prefix);
        let expected = [
            ("nat", "KUBE-SERVICES", TracePosition::Rule(3)),
            (
                "filter",
                "FORWARD",
                TracePosition::LastRuleOrEnd(2, ChainEnd::Policy),
            ),
            (
                "filter",
                "a:b",
                TracePosition::LastRuleOrEnd(1, ChainEnd::Return),
            ),
        ];
        assert_eq!(read, expected.map(Some));
    }

    #[test]
    fn log_prefix_other_text_is_skipped() {
        for line in [
            "",
            "TRACE: ",
            "TRACE: nat:PREROUTING:rule:",
            "TRACE: nat:PREROUTING:law:1 ",
            "TRACE: nat:rule:1 ",
            "IN=eth0 TRACE: nat:PREROUTING:rule:1 ",
        ] {
            assert_eq!(parse_prefix(line), None, "{line}");
        }
    }
}
