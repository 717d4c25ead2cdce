//! A table of our own that has the kernel trace every packet, before anything else
//! looks at it.
//!
//! Its rules set `nf_trace` of a packet, of which `nf_tables` tells to whom it may
//! concern (Linux v6.12, `net/netfilter/nf_tables_trace.c`), and `ip_tables` and
//! `ip6_tables` to the log (`net/ipv4/netfilter/ip_tables.c`, `trace_packet`). The
//! table is of the family `inet`, which no iptables looks at.

use std::io;

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};
use netlink_sys::Socket;

use super::attributes::Written;
use crate::netns::NetNs;
use crate::nfnetlink::{self, Request};

/// What it is called.
pub const NAME: &str = "svclab-trace";

/// `NFPROTO_INET`.
pub const INET: u8 = 1;

const NEW_TABLE: u16 = 0x0a00;
const DELETE_TABLE: u16 = 0x0a00 | 2;
const NEW_CHAIN: u16 = 0x0a00 | 3;
const NEW_RULE: u16 = 0x0a00 | 6;

/// Where packets come from: other interfaces, and the machine itself, with the
/// number of the hook (`NF_INET_PRE_ROUTING`, `NF_INET_LOCAL_OUT`).
const HOOKS: [(&str, u32); 2] = [("prerouting", 0), ("output", 3)];

/// Comes before everything else (`NF_IP_PRI_FIRST`).
const FIRST: i32 = i32::MIN;

/// The register that a value passes through.
const REGISTER: u32 = 1;

/// The register that ends a chain (`NFT_REG_VERDICT`), and how (`NF_ACCEPT`).
const VERDICT: u32 = 0;
const ACCEPT: u32 = 1;

/// `NFT_META_NFTRACE`.
const TRACED: u32 = 12;

/// The table in one namespace, which goes when this is dropped.
#[derive(Debug)]
pub struct Table {
    /// None once the table is gone.
    socket: Option<Socket>,
}

impl Table {
    /// Makes it.
    ///
    /// # Errors
    ///
    /// When the namespace cannot be entered, or the kernel refuses the table.
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

    /// Takes it away. Returns the socket by which it was asked for, if it was not gone
    /// yet: when a socket of netfilter's is closed, the kernel waits until what was taken
    /// away of any namespace is free (Linux v6.12, `net/netfilter/nf_tables_api.c`,
    /// `nft_rcv_nl_event`).
    pub fn take_away(&mut self) -> Option<Socket> {
        let socket = self.socket.take()?;
        let named = Written::default().text(1, NAME);
        // A table that somebody else took away is gone.
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

/// The expressions of `meta nftrace set 1 accept`; without the last, what follows
/// would be told as well.
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
