//! Decodes trace events that `ip_tables` and `ip6_tables` log through `nfnetlink_log` (Linux v6.12,
//! `net/ipv4/netfilter/ip_tables.c`, `trace_packet`).

use std::io;

use netlink_sys::Socket;

use super::attributes::{Read, Written};
use super::step::{End, Names, Place, Step};
use crate::nfnetlink::{self, Message, Request};
use svclab_model::plan::Backend;

/// Messages: logged packet, and configuration of the log.
const PACKET: u16 = 4 << 8;
const CONFIGURE: u16 = 4 << 8 | 1;

/// Number of bytes of each packet that the kernel copies.
const SNAP: u32 = 128;

/// Group of messages that name no group (Linux v6.12, `net/netfilter/nfnetlink_log.c`,
/// `default_loginfo`).
const GROUP: u16 = 0;

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
pub fn hear(socket: &Socket) -> io::Result<()> {
    let bind = Written::default().with(1, &[1]);
    let mut mode = SNAP.to_be_bytes().to_vec();
    // Mode: copy packets. The last byte is padding.
    mode.extend_from_slice(&[2, 0]);
    // Maximum buffer size, which holds one packet. By default, each message takes a whole page of
    // the receive buffer.
    let copy = Written::default().with(2, &mode).word(3, 1024);
    for attributes in [bind, copy] {
        let request = Request {
            what: CONFIGURE,
            flags: 0,
            family: 0,
            about: GROUP,
            attributes: attributes.bytes(),
        };
        nfnetlink::ask_on(socket, &request)?;
    }
    Ok(())
}

/// Decoder of the log of one namespace.
#[derive(Debug, Default)]
pub struct Log {
    names: Names,
    last: Vec<u8>,
}

impl Log {
    /// Decodes the trace event of a message. Returns `None` for other log messages.
    pub fn step(&mut self, message: &Message<'_>) -> Option<Step> {
        if message.what != PACKET {
            return None;
        }
        let ip = match message.family {
            IPV4 => 4,
            IPV6 => 6,
            _ => return None,
        };
        let of = Read(message.attributes);
        let (table, chain, place) = traced(of.text(PREFIX)?)?;
        let payload = of.get(PAYLOAD).unwrap_or_default();
        let packet = (self.last != payload).then(|| payload.to_vec());
        if let Some(packet) = &packet {
            self.last.clone_from(packet);
        }
        Some(Step {
            by: Backend::Legacy,
            pass: 0,
            packet,
            ip,
            input: of.word(INPUT),
            output: of.word(OUTPUT),
            // The mark is that before the rule's target, because the kernel logs before the target
            // runs.
            mark: of.word(MARK).unwrap_or(0),
            table: self.names.keep(table),
            inet: false,
            chain: self.names.keep(chain),
            place,
            verdict: None,
        })
    }
}

/// Parses table, chain and position from a line such as `TRACE: nat:KUBE-SERVICES:rule:3 `.
fn traced(line: &str) -> Option<(&str, &str, Place)> {
    let (table, rest) = line.strip_prefix("TRACE: ")?.trim_end().split_once(':')?;
    let mut behind = rest.rsplitn(3, ':');
    let number = behind.next()?.parse().ok()?;
    // The kernel logs `return` and `policy` for every verdict without a condition, including a
    // verdict of a separate rule.
    let place = match behind.next()? {
        "rule" => Place::Rule(number),
        "return" => Place::Last(number, End::Return),
        "policy" => Place::Last(number, End::Policy),
        _ => return None,
    };
    Some((table, behind.next()?, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_table_chain_and_place() {
        let read = [
            "TRACE: nat:KUBE-SERVICES:rule:3 ",
            "TRACE: filter:FORWARD:policy:2 ",
            "TRACE: filter:a:b:return:1 ",
        ]
        .map(traced);
        let wanted = [
            ("nat", "KUBE-SERVICES", Place::Rule(3)),
            ("filter", "FORWARD", Place::Last(2, End::Policy)),
            ("filter", "a:b", Place::Last(1, End::Return)),
        ];
        assert_eq!(read, wanted.map(Some));
    }

    #[test]
    fn another_line_is_no_step() {
        for line in [
            "",
            "TRACE: ",
            "TRACE: nat:PREROUTING:rule:",
            "TRACE: nat:PREROUTING:law:1 ",
            "TRACE: nat:rule:1 ",
            "IN=eth0 TRACE: nat:PREROUTING:rule:1 ",
        ] {
            assert_eq!(traced(line), None, "{line}");
        }
    }
}
