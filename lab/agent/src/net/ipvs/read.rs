//! Reads the virtual servers of a namespace from the kernel.
//!
//! The responses follow Linux v6.12, `ip_vs_genl_dump_services` and `ip_vs_genl_dump_dests` in
//! `net/netfilter/ipvs/ip_vs_ctl.c`.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use super::socket::IpvsSocket;
use super::{
    DEST, IPV6, METHODS, PERSISTENT, PROTOCOLS, SCHEDULER_FALLBACK, SCHEDULER_PORT, SERVICE, is_v6,
    key_attributes,
};
use crate::net::netfilter::attributes::{EncodedAttributes, ReceivedAttributes};
use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::plan::VirtualServer;
use svclab_model::protocol::Failure;
use svclab_ruleset::ipvs::{RealServer, SchedulerFlags, VirtualServerKey};

const GET_SERVICE: u8 = 4;
const GET_DEST: u8 = 8;

/// Mask of the forwarding method (`IP_VS_CONN_F_FWD_MASK`).
const METHOD_MASK: u32 = 7;

/// Returns all virtual servers of a namespace, each with its real servers.
///
/// # Errors
///
/// When the kernel has no IPVS, or its response is invalid.
pub(crate) fn read_virtual_servers(ns: &NetNs, name: &str) -> Result<Vec<VirtualServer>, Failure> {
    let servers = read_until_stable(&IpvsSocket::open(ns, name)?);
    servers.ok_or_else(|| failure::bug(format!("cannot read the virtual servers in {name}")))
}

/// Maximum number of dumps before the list counts as unstable.
const MAX_READS: usize = 20;

/// Repeats the dump until two consecutive dumps without duplicates are equal. Returns `None` after
/// [`MAX_READS`] dumps, or when a dump fails.
///
/// The kernel sends the list in parts, and its position counts the servers of all namespaces (Linux
/// v6.12, `net/netfilter/ipvs/ip_vs_ctl.c`, `ip_vs_genl_dump_services`). When servers of another
/// namespace change between two parts, the kernel repeats or skips servers. This agent changes no
/// lab meanwhile, because this function does not wait. Other programs may change others.
fn read_until_stable(socket: &IpvsSocket) -> Option<Vec<VirtualServer>> {
    let mut previous: Option<Vec<VirtualServer>> = None;
    for _ in 0..MAX_READS {
        let current = read(socket)?;
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

fn read(socket: &IpvsSocket) -> Option<Vec<VirtualServer>> {
    let mut servers = Vec::new();
    let everything = EncodedAttributes::default();
    let messages = socket.list(GET_SERVICE, &everything);
    for message in messages.ok()? {
        let mut server = parse_service(ReceivedAttributes(&message).get_nested(SERVICE)?)?;
        let filter = everything
            .clone()
            .with_nested(SERVICE, &key_attributes(&server.key));
        let messages = socket.list(GET_DEST, &filter);
        for message in messages.ok()? {
            let attributes = ReceivedAttributes(&message).get_nested(DEST)?;
            let real = parse_destination(attributes, &server.key)?;
            server.servers.push(real);
        }
        servers.push(server);
    }
    Some(servers)
}

fn parse_service(attributes: ReceivedAttributes<'_>) -> Option<VirtualServer> {
    let is_v6 = native_u16(attributes, 1)? == IPV6;
    let key = if let Some(mark) = native_u32(attributes, 5) {
        VirtualServerKey::FwMark { mark, is_v6 }
    } else {
        VirtualServerKey::Address {
            protocol: name(&PROTOCOLS, &native_u16(attributes, 2)?)?,
            address: address(attributes, 3, is_v6)?,
            port: attributes.get_u16(4)?,
        }
    };
    // The flags are followed by a mask.
    let flags = native_u32(attributes, 7)?;
    let persistence = if flags & PERSISTENT != 0 {
        Some(native_u32(attributes, 8)?)
    } else {
        None
    };
    Some(VirtualServer {
        key,
        scheduler: attributes.text(6)?.to_owned(),
        persistence,
        flags: SchedulerFlags {
            fallback: flags & SCHEDULER_FALLBACK != 0,
            hash_port: flags & SCHEDULER_PORT != 0,
        },
        servers: Vec::new(),
    })
}

fn parse_destination(
    attributes: ReceivedAttributes<'_>,
    behind: &VirtualServerKey,
) -> Option<RealServer> {
    let is_v6 = native_u16(attributes, 11).map_or_else(|| is_v6(behind), |family| family == IPV6);
    Some(RealServer {
        address: SocketAddr::new(address(attributes, 1, is_v6)?, attributes.get_u16(2)?),
        weight: native_u32(attributes, 4)?,
        method: name(&METHODS, &(native_u32(attributes, 3)? & METHOD_MASK))?,
    })
}

fn native_u16(attributes: ReceivedAttributes<'_>, kind: u16) -> Option<u16> {
    attributes.get_bytes(kind).map(u16::from_ne_bytes)
}

fn native_u32(attributes: ReceivedAttributes<'_>, kind: u16) -> Option<u32> {
    attributes.get_bytes(kind).map(u32::from_ne_bytes)
}

fn address(attributes: ReceivedAttributes<'_>, kind: u16, is_v6: bool) -> Option<IpAddr> {
    if is_v6 {
        attributes.get_ipv6(kind)
    } else {
        attributes.get_ipv4(kind)
    }
}

/// Returns the name of a number, or `None` for an unknown number.
fn name<T: Copy, N: PartialEq>(table: &[(T, N)], number: &N) -> Option<T> {
    let entry = table.iter().find(|(_, each)| each == number);
    entry.map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::super::{destination_attributes, service_attributes};
    use super::*;
    use svclab_ruleset::Protocol;
    use svclab_ruleset::ipvs::Forwarding;

    #[test]
    fn encoded_servers_are_parsed_back() {
        let keys = [
            VirtualServerKey::Address {
                protocol: Protocol::Udp,
                address: "10.96.0.10".parse().unwrap(),
                port: 53,
            },
            VirtualServerKey::Address {
                protocol: Protocol::Sctp,
                address: "fd00::10".parse().unwrap(),
                port: 80,
            },
            VirtualServerKey::FwMark {
                mark: 7,
                is_v6: true,
            },
        ];
        for (key, persistence) in keys.into_iter().zip([None, Some(10_800), None]) {
            let server = VirtualServer {
                key,
                scheduler: "sh".to_owned(),
                persistence,
                flags: SchedulerFlags {
                    fallback: true,
                    hash_port: false,
                },
                servers: Vec::new(),
            };
            let encoded = service_attributes(&server);
            let parsed = parse_service(ReceivedAttributes(encoded.bytes()));
            assert_eq!(parsed, Some(server));
        }
    }

    #[test]
    fn encoded_real_servers_are_parsed_back() {
        let mark = VirtualServerKey::FwMark {
            mark: 7,
            is_v6: false,
        };
        for (address, method) in [
            ("10.0.0.1:8080", Forwarding::Masquerade),
            ("[fd00::1]:8080", Forwarding::Tunnel),
            ("10.0.0.2:0", Forwarding::Route),
        ] {
            let real = RealServer {
                address: address.parse().unwrap(),
                weight: 3,
                method,
            };
            let encoded = destination_attributes(&real);
            let parsed = parse_destination(ReceivedAttributes(encoded.bytes()), &mark);
            assert_eq!(parsed, Some(real));
        }
    }
}
