//! Decodes trace events of `nf_tables` (Linux v6.12, `net/netfilter/nf_tables_trace.c`,
//! `nft_trace_notify`).
//!
//! The kernel reports the packet and its interfaces once per base chain, and the mark after each
//! rule. Therefore the decoder stores the last values for each packet.

use std::collections::HashMap;

use super::step::{ChainEnd, InternedNames, RawTraceEvent, TracePosition};
use super::table;
use crate::net::netfilter::attributes::ReceivedAttributes;
use crate::net::netfilter::nfnetlink::Message;
use svclab_model::evidence::trace::RuleVerdict;
use svclab_model::plan::Backend;

/// Message with a trace event, and the multicast group.
pub(super) const TRACE_MESSAGE: u16 = 0x0a11;
pub(super) const TRACE_GROUP: u32 = 9;

/// Attributes of a trace event (`enum nft_trace_attributes`).
const TABLE: u16 = 1;
const CHAIN: u16 = 2;
const HANDLE: u16 = 3;
const TYPE: u16 = 4;
const VERDICT: u16 = 5;
const ID: u16 = 6;
const NETWORK_HEADER: u16 = 8;
const TRANSPORT_HEADER: u16 = 9;
const INPUT: u16 = 10;
const OUTPUT: u16 = 12;
const MARK: u16 = 14;
const PROTOCOL: u16 = 15;
const POLICY: u16 = 16;

/// Types of a trace event (`enum nft_trace_types`).
const AT_POLICY: u32 = 1;
const AT_RETURN: u32 = 2;
const AT_RULE: u32 = 3;

/// `NFPROTO_IPV4` and `NFPROTO_IPV6`.
const IPV4: u32 = 2;
const IPV6: u32 = 10;

/// Decoder with the packets of one namespace.
#[derive(Debug, Default)]
pub(super) struct TraceEventDecoder {
    names: InternedNames,
    packets: HashMap<u32, PacketState>,
}

/// Last reported values of a packet.
#[derive(Debug, Default)]
struct PacketState {
    mark: u32,
    input: Option<u32>,
    output: Option<u32>,
    packet: Vec<u8>,
    /// Packet in the previous event, to omit repetitions.
    reported: Option<Vec<u8>>,
}

impl TraceEventDecoder {
    /// Decodes the trace event of a message. Returns `None` for a rule of the agent's own table,
    /// and for packets other than IPv4 and IPv6. Events for the end of a chain are skipped: only
    /// some kernels report them, and for a base chain the policy follows.
    pub(super) fn decode(&mut self, message: &Message<'_>) -> Option<RawTraceEvent> {
        if message.kind != TRACE_MESSAGE {
            return None;
        }
        let attributes = ReceivedAttributes(message.attributes);
        let (table, chain) = (attributes.text(TABLE)?, attributes.text(CHAIN)?);
        let (trace_id, kind) = (attributes.get_u32(ID)?, attributes.get_u32(TYPE)?);
        let handle = attributes.get_u64(HANDLE);
        let is_own_table = table == table::NAME;
        let packet_state = self.packets.entry(trace_id).or_insert_with(|| PacketState {
            mark: attributes.get_u32(MARK).unwrap_or(0),
            ..PacketState::default()
        });
        if is_own_table && kind == AT_RULE {
            // The agent's rule matches every packet first, so that an earlier packet with the same
            // ID has ended.
            *packet_state = PacketState::default();
        }
        if let Some(header) = attributes.get(NETWORK_HEADER) {
            packet_state.packet = header.to_vec();
            packet_state
                .packet
                .extend_from_slice(attributes.get(TRANSPORT_HEADER).unwrap_or_default());
            packet_state.input = attributes.get_u32(INPUT);
            packet_state.output = attributes.get_u32(OUTPUT);
        }
        let mark = std::mem::replace(
            &mut packet_state.mark,
            attributes.get_u32(MARK).unwrap_or(0),
        );
        let ip = match attributes.get_u32(PROTOCOL)? {
            IPV4 => 4,
            IPV6 => 6,
            _ => return None,
        };
        let (place, verdict) = match (kind, handle) {
            (AT_POLICY, _) => (
                TracePosition::End(ChainEnd::Policy),
                parse_verdict(attributes.get_u32(POLICY)?.cast_signed(), None),
            ),
            (AT_RETURN | AT_RULE, Some(handle)) => {
                let verdict_attributes = attributes.get_nested(VERDICT)?;
                let verdict = parse_verdict(
                    verdict_attributes.get_u32(1)?.cast_signed(),
                    verdict_attributes.text(2),
                );
                (TracePosition::Handle(message.family, handle), verdict)
            }
            _ => return None,
        };
        if is_own_table {
            return None;
        }
        let packet_state = self.packets.get_mut(&trace_id)?;
        let packet = (packet_state.reported.as_ref() != Some(&packet_state.packet))
            .then(|| packet_state.packet.clone());
        if packet.is_some() {
            packet_state.reported.clone_from(&packet);
        }
        Some(RawTraceEvent {
            backend: Backend::Nft,
            trace_id,
            packet: packet.filter(|packet| !packet.is_empty()),
            ip,
            input: packet_state.input,
            output: packet_state.output,
            mark,
            table: self.names.intern(table),
            inet: message.family == table::INET,
            chain: self.names.intern(chain),
            position: place,
            verdict,
        })
    }
}

/// Parses a verdict (Linux v6.12, `include/uapi/linux/netfilter.h` and `netfilter/nf_tables.h`). Of
/// other numbers only the lower byte is the verdict: the rest is the error of a drop or the number
/// of a queue.
fn parse_verdict(code: i32, chain: Option<&str>) -> Option<RuleVerdict> {
    Some(match code {
        -1 => RuleVerdict::Continue,
        -3 => RuleVerdict::Jump(chain?.to_owned()),
        -4 => RuleVerdict::Goto(chain?.to_owned()),
        -5 => RuleVerdict::Return,
        code => match code & 0xff {
            0 => RuleVerdict::Drop,
            1 => RuleVerdict::Accept,
            2 | 3 => RuleVerdict::Stolen,
            _ => return None,
        },
    })
}
