//! Manages an nftables table that makes the kernel trace every packet before any other rule.
//!
//! Its rules set `nf_trace` of a packet. `nf_tables` reports traced packets to subscribed sockets
//! (Linux v6.12, `net/netfilter/nf_tables_trace.c`). `ip_tables` and `ip6_tables` report them to
//! the log (`net/ipv4/netfilter/ip_tables.c`, `trace_packet`). The table has the family `inet`,
//! which iptables ignores.

use std::io;

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};
use netlink_sys::Socket;

use super::attributes::Written;
use crate::netns::NetNs;
use crate::nfnetlink::{self, Request};

/// Name of the table.
pub const NAME: &str = "svclab-trace";

/// `NFPROTO_INET`.
pub const INET: u8 = 1;

const NEW_TABLE: u16 = 0x0a00;
const DELETE_TABLE: u16 = 0x0a00 | 2;
const NEW_CHAIN: u16 = 0x0a00 | 3;
const NEW_RULE: u16 = 0x0a00 | 6;

/// Hooks of incoming packets and of locally generated packets (`NF_INET_PRE_ROUTING`,
/// `NF_INET_LOCAL_OUT`).
const HOOKS: [(&str, u32); 2] = [("prerouting", 0), ("output", 3)];

/// Priority before all other chains (`NF_IP_PRI_FIRST`).
const FIRST: i32 = i32::MIN;

/// Register for the value.
const REGISTER: u32 = 1;

/// Verdict register (`NFT_REG_VERDICT`), and the verdict (`NF_ACCEPT`).
const VERDICT: u32 = 0;
const ACCEPT: u32 = 1;

/// `NFT_META_NFTRACE`.
const TRACED: u32 = 12;

/// Table in one namespace. Dropping the value removes the table.
#[derive(Debug)]
pub struct Table {
    /// Netlink socket; `None` once the table was removed.
    socket: Option<Socket>,
}

impl Table {
    /// Creates the table.
    ///
    /// # Errors
    ///
    /// When the namespace cannot be entered, or the kernel rejects the table.
    pub fn make(ns: &NetNs) -> io::Result<Self> {
        let named = Written::default().text(1, NAME);
        let mut all = vec![(NEW_TABLE, NLM_F_CREATE, named)];
        for (chain, hook) in HOOKS {
            let hook = Written::default()
                .word(1, hook)
                .word(2, FIRST.cast_unsigned());
            let about = Written::default()
                .text(1, NAME)
                .text(3, chain)
                .nest(4, &hook)
                .text(7, "filter");
            all.push((NEW_CHAIN, NLM_F_CREATE, about));
        }
        for (chain, _) in HOOKS {
            let about = Written::default()
                .text(1, NAME)
                .text(2, chain)
                .nest(4, &trace());
            all.push((NEW_RULE, NLM_F_CREATE | NLM_F_APPEND, about));
        }
        let requests: Vec<_> = all
            .iter()
            .map(|(what, flags, attributes)| request(*what, *flags, attributes))
            .collect();
        let socket = ns.enter(nfnetlink::open)??;
        nfnetlink::ask_together(&socket, &requests)?;
        Ok(Self {
            socket: Some(socket),
        })
    }

    /// Removes the table. Returns its netlink socket, or `None` if the table was removed before.
    /// Closing a netfilter socket makes the kernel wait until removed objects of all namespaces are
    /// freed (Linux v6.12, `net/netfilter/nf_tables_api.c`, `nft_rcv_nl_event`).
    pub fn take_away(&mut self) -> Option<Socket> {
        let socket = self.socket.take()?;
        let named = Written::default().text(1, NAME);
        // The deletion fails if another program has removed the table.
        let _ = nfnetlink::ask_together(&socket, &[request(DELETE_TABLE, 0, &named)]);
        Some(socket)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        drop(self.take_away());
    }
}

fn request(what: u16, flags: u16, attributes: &Written) -> Request<'_> {
    Request {
        what,
        flags,
        family: INET,
        about: 0,
        attributes: attributes.bytes(),
    }
}

/// Returns the expressions of `meta nftrace set 1 accept`. Without `accept`, the kernel would also
/// report the following events of the chain.
fn trace() -> Written {
    let one = Written::default().with(1, &[1]);
    let load = Written::default().word(1, REGISTER).nest(2, &one);
    let set = Written::default().word(2, TRACED).word(3, REGISTER);
    let accept = Written::default().nest(2, &Written::default().word(1, ACCEPT));
    let end = Written::default().word(1, VERDICT).nest(2, &accept);
    let expression = |name, about| Written::default().text(1, name).nest(2, about);
    Written::default()
        .nest(1, &expression("immediate", &load))
        .nest(1, &expression("meta", &set))
        .nest(1, &expression("immediate", &end))
}
