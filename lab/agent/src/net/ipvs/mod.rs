//! Adds, changes and removes the virtual and real servers of IPVS in a namespace, over generic
//! netlink.
//!
//! The messages follow Linux v6.12, `include/uapi/linux/ip_vs.h` and
//! `net/netfilter/ipvs/ip_vs_ctl.c`. No maintained crate supports them.

pub(crate) mod read;
mod socket;

use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;

use crate::net::netfilter::attributes::EncodedAttributes;
use crate::net::netns::NetNs;
use crate::runtime::failure;
use socket::IpvsSocket;
use svclab_model::plan::Namespace;
use svclab_model::plan::health::GuardedServer;
use svclab_model::protocol::{Failure, FailureKind, IPVSADM};
use svclab_ruleset::Protocol;
use svclab_ruleset::ipvs::{Forwarding, RealServer, VirtualServer, VirtualServerKey};

const NEW_SERVICE: u8 = 1;
const DEL_SERVICE: u8 = 3;
const NEW_DEST: u8 = 5;
const SET_DEST: u8 = 6;
const SET_CONFIG: u8 = 12;

/// Nested attributes of a message: the virtual server, and the real server.
const SERVICE: u16 = 1;
const DEST: u16 = 2;

/// Flag of a virtual server that keeps each client on the same real server.
const PERSISTENT: u32 = 1;

/// Flags `fallback` and `port` of the schedulers `sh` and `mh` (Linux v6.12,
/// `include/uapi/linux/ip_vs.h`).
const SCHEDULER_FALLBACK: u32 = 0x8;
const SCHEDULER_PORT: u32 = 0x10;

/// `AF_INET` and `AF_INET6`.
const IPV4: u16 = 2;
const IPV6: u16 = 10;

/// Protocol numbers of IP.
const PROTOCOLS: [(Protocol, u16); 3] = [
    (Protocol::Tcp, 6),
    (Protocol::Udp, 17),
    (Protocol::Sctp, 132),
];

/// Forwarding methods: the lower bits of the connection flags (`IP_VS_CONN_F_FWD_MASK`).
const METHODS: [(Forwarding, u32); 3] = [
    (Forwarding::Masquerade, 0),
    (Forwarding::Tunnel, 2),
    (Forwarding::Route, 3),
];

/// Adds the virtual servers of a namespace, each with its real servers.
///
/// # Errors
///
/// When the kernel has no IPVS, lacks a scheduler, or rejects a server.
pub(crate) fn add(ns: &NetNs, plan: &Namespace) -> Result<(), Failure> {
    if !plan.uses_ipvs() {
        return Ok(());
    }
    let socket = IpvsSocket::open(ns, &plan.name)?;
    set_timeouts(&socket, plan)?;
    add_servers(&socket, plan)
}

/// Removes virtual servers with their real servers.
pub(crate) fn remove(ns: &NetNs, name: &str, servers: &[VirtualServer]) -> Result<(), Failure> {
    if servers.is_empty() {
        return Ok(());
    }
    let keys = servers.iter().map(|server| &server.key);
    let requests = keys
        .clone()
        .map(|key| request(DEL_SERVICE, &key_attributes(key), None));
    let requests: Vec<_> = requests.collect();
    let socket = IpvsSocket::open(ns, name)?;
    socket.request_all(&requests).map_err(|(index, errno)| {
        let server = keys
            .clone()
            .nth(index)
            .map_or_else(String::new, ToString::to_string);
        failure::bug(format!(
            "cannot remove virtual server {server} in {name}: {}",
            errno.desc()
        ))
    })
}

/// Changes the weight of real servers. A real server with weight 0 receives no new connections.
pub(crate) fn set_weights(
    ns: &NetNs,
    name: &str,
    servers: &[GuardedServer],
    weight: u32,
) -> Result<(), Failure> {
    let to_request = |GuardedServer { key, address }: &GuardedServer| {
        let real = RealServer {
            address: *address,
            weight,
            method: Forwarding::Masquerade,
        };
        request(SET_DEST, &key_attributes(key), Some(&real))
    };
    let requests: Vec<_> = servers.iter().map(to_request).collect();
    let socket = IpvsSocket::open(ns, name)?;
    socket.request_all(&requests).map_err(|(index, errno)| {
        let server = servers.get(index);
        let action = server.map_or_else(String::new, |GuardedServer { key, address }| {
            format!("set the weight of {address} in {key}")
        });
        change_failure(name, &action, errno)
    })
}

fn set_timeouts(socket: &IpvsSocket, plan: &Namespace) -> Result<(), Failure> {
    let Some(times) = &plan.ipvs_timeouts else {
        return Ok(());
    };
    // The value 0 keeps the current timeout (Linux v6.12, `net/netfilter/ipvs/ip_vs_ctl.c`,
    // `ip_vs_set_timeout`).
    let attributes = EncodedAttributes::default()
        .with(4, &times.tcp.to_ne_bytes())
        .with(5, &times.tcp_fin.to_ne_bytes())
        .with(6, &times.udp.to_ne_bytes());
    socket
        .request_all(&[(SET_CONFIG, attributes)])
        .map_err(|(_, errno)| change_failure(&plan.name, "set the IPVS timeouts", errno))
}

fn add_servers(socket: &IpvsSocket, plan: &Namespace) -> Result<(), Failure> {
    let mut requests = Vec::new();
    // Virtual server of each request, and its real server if the request adds one.
    let mut added: Vec<(&VirtualServerKey, Option<SocketAddr>)> = Vec::new();
    for server in &plan.ipvs {
        requests.push(request(NEW_SERVICE, &service_attributes(server), None));
        added.push((&server.key, None));
        for real in &server.servers {
            requests.push(request(NEW_DEST, &key_attributes(&server.key), Some(real)));
            added.push((&server.key, Some(real.address)));
        }
    }
    socket.request_all(&requests).map_err(|(index, errno)| {
        let (key, real) = added[index];
        let action = match real {
            Some(address) => format!("add real server {address} to virtual server {key}"),
            None => format!("add virtual server {key}"),
        };
        let failure = change_failure(&plan.name, &action, errno);
        failure::with_rejected_input(failure, &plan.name, IPVSADM, key.to_string())
    })
}

/// Returns a request about a virtual server, and about one of its real servers.
fn request(
    command: u8,
    service: &EncodedAttributes,
    real: Option<&RealServer>,
) -> (u8, EncodedAttributes) {
    let mut attributes = EncodedAttributes::default().with_nested(SERVICE, service);
    if let Some(real) = real {
        attributes = attributes.with_nested(DEST, &destination_attributes(real));
    }
    (command, attributes)
}

/// Returns the attributes that identify a virtual server.
fn key_attributes(key: &VirtualServerKey) -> EncodedAttributes {
    let attributes = EncodedAttributes::default().with(1, &family(is_v6(key)).to_ne_bytes());
    match key {
        VirtualServerKey::Address {
            protocol,
            address,
            port,
        } => attributes
            .with(2, &number(&PROTOCOLS, protocol).to_ne_bytes())
            .with(3, &padded(*address))
            .with_u16(4, *port),
        VirtualServerKey::FwMark { mark, .. } => attributes.with(5, &mark.to_ne_bytes()),
    }
}

fn service_attributes(server: &VirtualServer) -> EncodedAttributes {
    let flags = [
        (server.persistence.is_some(), PERSISTENT),
        (server.flags.fallback, SCHEDULER_FALLBACK),
        (server.flags.hash_port, SCHEDULER_PORT),
    ];
    let flags = flags.iter().filter(|(is_set, _)| *is_set);
    let flags = flags.fold(0, |all, (_, flag)| all | flag);
    let flags_and_mask = [flags.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat();
    // Clients are distinguished by their whole address.
    let netmask = if is_v6(&server.key) { 128 } else { u32::MAX };
    key_attributes(&server.key)
        .with_text(6, &server.scheduler)
        .with(7, &flags_and_mask)
        .with(8, &server.persistence.unwrap_or(0).to_ne_bytes())
        .with(9, &netmask.to_ne_bytes())
}

fn destination_attributes(real: &RealServer) -> EncodedAttributes {
    let RealServer {
        address,
        weight,
        method,
    } = real;
    let no_limit = 0_u32.to_ne_bytes();
    EncodedAttributes::default()
        .with(1, &padded(address.ip()))
        .with_u16(2, address.port())
        .with(3, &number(&METHODS, method).to_ne_bytes())
        .with(4, &weight.to_ne_bytes())
        .with(5, &no_limit)
        .with(6, &no_limit)
        .with(11, &family(address.is_ipv6()).to_ne_bytes())
}

fn is_v6(key: &VirtualServerKey) -> bool {
    match key {
        VirtualServerKey::Address { address, .. } => address.is_ipv6(),
        VirtualServerKey::FwMark { is_v6, .. } => *is_v6,
    }
}

fn family(is_v6: bool) -> u16 {
    if is_v6 { IPV6 } else { IPV4 }
}

/// Returns the number of a name in a table that contains all names.
fn number<T: PartialEq, N: Copy + Default>(table: &[(T, N)], name: &T) -> N {
    let entry = table.iter().find(|(each, _)| each == name);
    entry.map_or_else(N::default, |(_, number)| *number)
}

/// Returns an address padded to 16 bytes, the size of the kernel's union.
fn padded(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}

fn change_failure(name: &str, action: &str, errno: Errno) -> Failure {
    let (why, remedy) = match errno {
        Errno::ENOPROTOOPT => (
            "this kernel has no IPVS".to_owned(),
            Some("run `modprobe ip_vs` as root, or use a guest kernel (`--kernel auto`)"),
        ),
        Errno::ENOENT => (
            "this kernel does not have the scheduler".to_owned(),
            Some("run `modprobe ip_vs_rr ip_vs_wrr ip_vs_sh` as root"),
        ),
        Errno::EPERM => (
            "IPVS requires privileges in the initial user namespace".to_owned(),
            Some("use a guest kernel (`--kernel auto`)"),
        ),
        other => (other.desc().to_owned(), None),
    };
    Failure {
        kind: FailureKind::Machine,
        message: format!("cannot {action} in {name}: {why}"),
        remedy: remedy.map(str::to_owned),
        rejected: None,
    }
}
