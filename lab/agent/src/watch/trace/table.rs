//! Manages an nftables table that makes the kernel trace every packet before any other rule.
//!
//! Its rules set `nf_trace` of a packet. `nf_tables` reports traced packets to subscribed sockets
//! (Linux v6.12, `net/netfilter/nf_tables_trace.c`). `ip_tables` and `ip6_tables` report them to
//! the log (`net/ipv4/netfilter/ip_tables.c`, `trace_packet`). The table has the family `inet`,
//! which iptables ignores.

use std::io;

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};
use netlink_sys::Socket;

use crate::net::netfilter::attributes::EncodedAttributes;
use crate::net::netfilter::nfnetlink::{self, Request};
use crate::net::netns::NetNs;

/// Name of the table.
pub(super) const NAME: &str = "svclab-trace";

/// `NFPROTO_INET`.
pub(super) const INET: u8 = 1;

const NEW_TABLE: u16 = 0x0a00;
const DELETE_TABLE: u16 = 0x0a00 | 2;
const NEW_CHAIN: u16 = 0x0a00 | 3;
const NEW_RULE: u16 = 0x0a00 | 6;

/// Hooks of incoming packets and of locally generated packets (`NF_INET_PRE_ROUTING`,
/// `NF_INET_LOCAL_OUT`).
const HOOKS: [(&str, u32); 2] = [("prerouting", 0), ("output", 3)];

/// Priority before all other chains (`NF_IP_PRI_FIRST`).
const PRIORITY_FIRST: i32 = i32::MIN;

/// Register for the value.
const VALUE_REGISTER: u32 = 1;

/// Verdict register (`NFT_REG_VERDICT`), and the verdict (`NF_ACCEPT`).
const VERDICT_REGISTER: u32 = 0;
const ACCEPT: u32 = 1;

/// `NFT_META_NFTRACE`.
const META_NFTRACE: u32 = 12;

/// Table in one namespace. Dropping the value removes the table.
#[derive(Debug)]
pub(super) struct TraceTable {
    /// Netlink socket; `None` once the table was removed.
    socket: Option<Socket>,
}

impl TraceTable {
    /// Creates the table.
    pub(super) fn create(ns: &NetNs) -> io::Result<Self> {
        let table_name = EncodedAttributes::default().with_text(1, NAME);
        let mut parts = vec![(NEW_TABLE, NLM_F_CREATE, table_name)];
        for (chain, hook) in HOOKS {
            let hook = EncodedAttributes::default()
                .with_u32(1, hook)
                .with_u32(2, PRIORITY_FIRST.cast_unsigned());
            let chain_attributes = EncodedAttributes::default()
                .with_text(1, NAME)
                .with_text(3, chain)
                .with_nested(4, &hook)
                .with_text(7, "filter");
            parts.push((NEW_CHAIN, NLM_F_CREATE, chain_attributes));
        }
        for (chain, _) in HOOKS {
            let rule_attributes = EncodedAttributes::default()
                .with_text(1, NAME)
                .with_text(2, chain)
                .with_nested(4, &trace_expressions());
            parts.push((NEW_RULE, NLM_F_CREATE | NLM_F_APPEND, rule_attributes));
        }
        let requests: Vec<_> = parts
            .iter()
            .map(|(what, flags, attributes)| request(*what, *flags, attributes))
            .collect();
        let socket = ns.enter(nfnetlink::open)??;
        nfnetlink::request_batch(&socket, &requests)?;
        Ok(Self {
            socket: Some(socket),
        })
    }

    /// Removes the table. Returns its netlink socket, or `None` if the table was removed before.
    /// Closing a netfilter socket makes the kernel wait until removed objects of all namespaces are
    /// freed (Linux v6.12, `net/netfilter/nf_tables_api.c`, `nft_rcv_nl_event`).
    pub(super) fn remove(&mut self) -> Option<Socket> {
        let socket = self.socket.take()?;
        let table_name = EncodedAttributes::default().with_text(1, NAME);
        // The deletion fails if another program has removed the table.
        let _ = nfnetlink::request_batch(&socket, &[request(DELETE_TABLE, 0, &table_name)]);
        Some(socket)
    }
}

impl Drop for TraceTable {
    fn drop(&mut self) {
        drop(self.remove());
    }
}

fn request(command: u16, flags: u16, attributes: &EncodedAttributes) -> Request<'_> {
    Request {
        command,
        flags,
        family: INET,
        attributes: attributes.bytes(),
        ..Request::default()
    }
}

/// Returns the expressions of `meta nftrace set 1 accept`. Without `accept`, the kernel would also
/// report the following events of the chain.
fn trace_expressions() -> EncodedAttributes {
    let value = EncodedAttributes::default().with(1, &[1]);
    let load = EncodedAttributes::default()
        .with_u32(1, VALUE_REGISTER)
        .with_nested(2, &value);
    let set = EncodedAttributes::default()
        .with_u32(2, META_NFTRACE)
        .with_u32(3, VALUE_REGISTER);
    let accept = EncodedAttributes::default()
        .with_nested(2, &EncodedAttributes::default().with_u32(1, ACCEPT));
    let end = EncodedAttributes::default()
        .with_u32(1, VERDICT_REGISTER)
        .with_nested(2, &accept);
    let expression = |name, about| {
        EncodedAttributes::default()
            .with_text(1, name)
            .with_nested(2, about)
    };
    EncodedAttributes::default()
        .with_nested(1, &expression("immediate", &load))
        .with_nested(1, &expression("meta", &set))
        .with_nested(1, &expression("immediate", &end))
}
