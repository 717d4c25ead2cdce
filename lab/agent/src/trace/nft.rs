//! Decodes trace events of `nf_tables` (Linux v6.12, `net/netfilter/nf_tables_trace.c`,
//! `nft_trace_notify`).
//!
//! The kernel reports the packet and its interfaces once per base chain, and the mark after each
//! rule. Therefore the decoder stores the last values for each packet.

use std::collections::HashMap;

use super::attributes::Read;
use super::step::{End, Names, Place, Step};
use super::table;
use crate::nfnetlink::Message;
use svclab_model::evidence::met::Verdict;
use svclab_model::plan::Backend;

/// Message with a trace event, and the multicast group.
pub const STEP: u16 = 0x0a11;
pub const GROUP: u32 = 9;

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
pub struct Passes {
    names: Names,
    known: HashMap<u32, Known>,
}

/// Last reported values of a packet.
#[derive(Debug, Default)]
struct Known {
    mark: u32,
    input: Option<u32>,
    output: Option<u32>,
    packet: Vec<u8>,
    /// Packet in the previous event, to omit repetitions.
    told: Option<Vec<u8>>,
}

impl Passes {
    /// Decodes the trace event of a message. Returns `None` for a rule of the agent's own table,
    /// and for packets other than IPv4 and IPv6. Events for the end of a chain are skipped: only
    /// some kernels report them, and for a base chain the policy follows.
    pub fn step(&mut self, message: &Message<'_>) -> Option<Step> {
        if message.what != STEP {
            return None;
        }
        let of = Read(message.attributes);
        let (table, chain) = (of.text(TABLE)?, of.text(CHAIN)?);
        let (pass, kind) = (of.word(ID)?, of.word(TYPE)?);
        let handle = of.long(HANDLE);
        let own = table == table::NAME;
        let known = self.known.entry(pass).or_insert_with(|| Known {
            mark: of.word(MARK).unwrap_or(0),
            ..Known::default()
        });
        if own && kind == AT_RULE {
            // The agent's rule matches every packet first, so that an earlier packet with the same
            // ID has ended.
            *known = Known::default();
        }
        if let Some(header) = of.get(NETWORK_HEADER) {
            known.packet = header.to_vec();
            known
                .packet
                .extend_from_slice(of.get(TRANSPORT_HEADER).unwrap_or_default());
            known.input = of.word(INPUT);
            known.output = of.word(OUTPUT);
        }
        let mark = std::mem::replace(&mut known.mark, of.word(MARK).unwrap_or(0));
        let ip = match of.word(PROTOCOL)? {
            IPV4 => 4,
            IPV6 => 6,
            _ => return None,
        };
        let (place, verdict) = match (kind, handle) {
            (AT_POLICY, _) => (
                Place::End(End::Policy),
                verdict(of.word(POLICY)?.cast_signed(), None),
            ),
            (AT_RETURN | AT_RULE, Some(handle)) => {
                let of = of.inside(VERDICT)?;
                let verdict = verdict(of.word(1)?.cast_signed(), of.text(2));
                (Place::Handle(message.family, handle), verdict)
            }
            _ => return None,
        };
        if own {
            return None;
        }
        let known = self.known.get_mut(&pass)?;
        let packet = (known.told.as_ref() != Some(&known.packet)).then(|| known.packet.clone());
        if packet.is_some() {
            known.told.clone_from(&packet);
        }
        Some(Step {
            by: Backend::Nft,
            pass,
            packet: packet.filter(|packet| !packet.is_empty()),
            ip,
            input: known.input,
            output: known.output,
            mark,
            table: self.names.keep(table),
            inet: message.family == table::INET,
            chain: self.names.keep(chain),
            place,
            verdict,
        })
    }
}

/// Parses a verdict (Linux v6.12, `include/uapi/linux/netfilter.h` and `netfilter/nf_tables.h`). Of
/// other numbers only the lower byte is the verdict: the rest is the error of a drop or the number
/// of a queue.
fn verdict(code: i32, chain: Option<&str>) -> Option<Verdict> {
    Some(match code {
        -1 => Verdict::Continue,
        -3 => Verdict::Jump(chain?.to_owned()),
        -4 => Verdict::Goto(chain?.to_owned()),
        -5 => Verdict::Return,
        code => match code & 0xff {
            0 => Verdict::Drop,
            1 => Verdict::Accept,
            2 | 3 => Verdict::Stolen,
            _ => return None,
        },
    })
}
