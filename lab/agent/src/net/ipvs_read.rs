//! Reads the virtual servers of a namespace from the kernel.
//!
//! The responses follow Linux v6.12, `ip_vs_genl_dump_services` and `ip_vs_genl_dump_dests` in
//! `net/netfilter/ipvs/ip_vs_ctl.c`.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use futures_util::StreamExt as _;
use genetlink::GenetlinkHandle;
use netlink_packet_core::{
    DefaultNla, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, NlaBuffer, NlasIterator,
};
use netlink_packet_generic::GenlMessage;

use crate::net::ipvs::{
    IpvsMessage, PERSISTENT, SCHEDULER_FALLBACK, SCHEDULER_PORT, TABLE_LOCK, connect,
    key_attributes, nested,
};
use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::plan::VirtualServer;
use svclab_model::protocol::Failure;
use svclab_ruleset::ipvs::{Forwarding, RealServer, SchedulerFlags, Transport, VirtualServerKey};

const GET_SERVICE: u8 = 4;
const GET_DEST: u8 = 8;

/// Nested attributes of a response: the virtual server, and the real server.
const SERVICE: u16 = 1;
const DEST: u16 = 2;

/// Returns all virtual servers of a namespace, each with its real servers.
///
/// # Errors
///
/// When the kernel has no IPVS, or its response is invalid.
pub async fn read_virtual_servers(ns: &NetNs, name: &str) -> Result<Vec<VirtualServer>, Failure> {
    let (mut handle, driver) = connect(ns, name)?;
    let servers = read_until_stable(&mut handle).await;
    driver.abort();
    servers.ok_or_else(|| failure::bug(format!("cannot read the virtual servers in {name}")))
}

/// Maximum number of dumps before the list counts as unstable.
const MAX_READS: usize = 20;

/// Repeats the dump until two consecutive dumps without duplicates are equal. Returns `None` after
/// [`MAX_READS`] dumps, or when a dump fails.
///
/// The kernel sends the list in parts, and its position counts the servers of all namespaces (Linux
/// v6.12, `net/netfilter/ipvs/ip_vs_ctl.c`, `ip_vs_genl_dump_services`). When servers of another
/// namespace change between two parts, the kernel repeats or skips servers. The lock keeps the labs
/// of this agent unchanged, but not other namespaces.
async fn read_until_stable(handle: &mut GenetlinkHandle) -> Option<Vec<VirtualServer>> {
    let mut previous: Option<Vec<VirtualServer>> = None;
    for _ in 0..MAX_READS {
        let current = {
            let _table = TABLE_LOCK.lock().await;
            read(handle).await?
        };
        if !has_no_duplicates(&current) {
            continue;
        }
        if previous.as_ref() == Some(&current) {
            return previous;
        }
        previous = Some(current);
    }
    None
}

fn has_no_duplicates(servers: &[VirtualServer]) -> bool {
    let mut seen = HashSet::new();
    servers.iter().all(|server| seen.insert(&server.key))
}

async fn read(handle: &mut GenetlinkHandle) -> Option<Vec<VirtualServer>> {
    let mut servers = Vec::new();
    for message in dump(handle, GET_SERVICE, Vec::new()).await? {
        let mut server = parse_service(&Attributes::nested_in(&message, SERVICE)?)?;
        let filter = vec![nested(SERVICE, &key_attributes(&server.key))];
        for message in dump(handle, GET_DEST, filter).await? {
            server.servers.push(parse_destination(
                &Attributes::nested_in(&message, DEST)?,
                &server.key,
            )?);
        }
        servers.push(server);
    }
    Some(servers)
}

/// Returns the payload of every message of a dump, or `None` if the dump fails.
async fn dump(
    handle: &mut GenetlinkHandle,
    command: u8,
    attributes: Vec<DefaultNla>,
) -> Option<Vec<Vec<u8>>> {
    let request = IpvsMessage {
        command,
        attributes,
        response: Vec::new(),
    };
    let mut message = NetlinkMessage::from(GenlMessage::from_payload(request));
    message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut answers = handle.request(message).await.ok()?;
    let mut payloads = Vec::new();
    while let Some(answer) = answers.next().await {
        match answer.ok()?.payload {
            NetlinkPayload::InnerMessage(message) => payloads.push(message.payload.response),
            NetlinkPayload::Error(error) if error.raw_code() != 0 => return None,
            _ => {}
        }
    }
    Some(payloads)
}

fn parse_service(attributes: &Attributes) -> Option<VirtualServer> {
    let v6 = i32::from(attributes.get_u16(1)?) == nix::libc::AF_INET6;
    let takes = if let Some(mark) = attributes.get_u32(5) {
        VirtualServerKey::FwMark { mark, is_v6: v6 }
    } else {
        VirtualServerKey::Address {
            protocol: match i32::from(attributes.get_u16(2)?) {
                nix::libc::IPPROTO_TCP => Transport::Tcp,
                nix::libc::IPPROTO_UDP => Transport::Udp,
                nix::libc::IPPROTO_SCTP => Transport::Sctp,
                _ => return None,
            },
            address: attributes.address(3, v6)?,
            port: attributes.port(4)?,
        }
    };
    let scheduler = attributes.bytes(6)?;
    let scheduler = scheduler.strip_suffix(&[0]).unwrap_or(scheduler);
    // The flags are followed by a mask.
    let flags = attributes.get_u32(7)?;
    let persistent = flags & PERSISTENT != 0;
    Some(VirtualServer {
        key: takes,
        scheduler: String::from_utf8(scheduler.to_vec()).ok()?,
        persistence: if persistent {
            Some(attributes.get_u32(8)?)
        } else {
            None
        },
        flags: SchedulerFlags {
            fallback: flags & SCHEDULER_FALLBACK != 0,
            hash_port: flags & SCHEDULER_PORT != 0,
        },
        servers: Vec::new(),
    })
}

fn parse_destination(attributes: &Attributes, behind: &VirtualServerKey) -> Option<RealServer> {
    let v6 = match (attributes.get_u16(11), behind) {
        (Some(family), _) => i32::from(family) == nix::libc::AF_INET6,
        (None, VirtualServerKey::Address { address, .. }) => address.is_ipv6(),
        (None, VirtualServerKey::FwMark { is_v6: v6, .. }) => *v6,
    };
    Some(RealServer {
        address: SocketAddr::new(attributes.address(1, v6)?, attributes.port(2)?),
        weight: attributes.get_u32(4)?,
        // The lower bits of the connection flags (`IP_VS_CONN_F_FWD_MASK`).
        method: match attributes.get_u32(3)? & 7 {
            0 => Forwarding::Masquerade,
            2 => Forwarding::Tunnel,
            3 => Forwarding::Route,
            _ => return None,
        },
    })
}

/// Attributes of an object, by number.
struct Attributes(Vec<(u16, Vec<u8>)>);

impl Attributes {
    /// Parses the attributes inside the nested attribute `kind` of a message.
    fn nested_in(message: &[u8], kind: u16) -> Option<Self> {
        let parse = |bytes: &[u8]| -> Option<Vec<(u16, Vec<u8>)>> {
            NlasIterator::new(bytes)
                .map(|each: Result<NlaBuffer<&[u8]>, _>| {
                    let each = each.ok()?;
                    Some((each.kind(), each.value().to_vec()))
                })
                .collect()
        };
        let (_, inside) = parse(message)?.into_iter().find(|(own, _)| *own == kind)?;
        parse(&inside).map(Self)
    }

    fn bytes(&self, kind: u16) -> Option<&[u8]> {
        let found = self.0.iter().find(|(own, _)| *own == kind);
        found.map(|(_, bytes)| bytes.as_slice())
    }

    fn get_u32(&self, kind: u16) -> Option<u32> {
        let bytes = self.bytes(kind)?.first_chunk::<4>()?;
        Some(u32::from_ne_bytes(*bytes))
    }

    fn get_u16(&self, kind: u16) -> Option<u16> {
        let bytes = self.bytes(kind)?.first_chunk::<2>()?;
        Some(u16::from_ne_bytes(*bytes))
    }

    fn port(&self, kind: u16) -> Option<u16> {
        let bytes = self.bytes(kind)?.first_chunk::<2>()?;
        Some(u16::from_be_bytes(*bytes))
    }

    fn address(&self, kind: u16, v6: bool) -> Option<IpAddr> {
        let bytes = self.bytes(kind)?;
        Some(if v6 {
            Ipv6Addr::from(*bytes.first_chunk::<16>()?).into()
        } else {
            Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()
        })
    }
}
