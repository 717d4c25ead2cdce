//! Adds, changes and removes the virtual and real servers of IPVS in a namespace, over generic
//! netlink.
//!
//! The messages follow Linux v6.12, `include/uapi/linux/ip_vs.h` and
//! `net/netfilter/ipvs/ip_vs_ctl.c`. No maintained crate supports them.

use std::net::IpAddr;

use futures_util::StreamExt as _;
use genetlink::GenetlinkHandle;
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
    ParseableParametrized,
};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use nix::errno::Errno;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::plan::Namespace;
use svclab_model::plan::health::GuardedServer;
use svclab_model::protocol::{Failure, FailureKind, IPVSADM};
use svclab_ruleset::ipvs::{Forwarding, RealServer, Transport, VirtualServer, VirtualServerKey};

const NEW_SERVICE: u8 = 1;
const DEL_SERVICE: u8 = 3;
const NEW_DEST: u8 = 5;
const SET_DEST: u8 = 6;
const SET_CONFIG: u8 = 12;

/// Flag of a virtual server that keeps each client on the same real server.
pub(crate) const PERSISTENT: u32 = 1;

/// Flags `fallback` and `port` of the schedulers `sh` and `mh` (Linux v6.12,
/// `include/uapi/linux/ip_vs.h`).
pub(crate) const SCHEDULER_FALLBACK: u32 = 0x8;
pub(crate) const SCHEDULER_PORT: u32 = 0x10;

/// Lock for adding, removing or reading virtual servers.
///
/// The kernel dumps virtual servers in parts, and its position counts the servers of all namespaces
/// (`ipvs_read`). If the agent changed other labs between such parts, two dumps in sequence could
/// return the same wrong list.
pub(crate) static TABLE_LOCK: Mutex<()> = Mutex::const_new(());

/// Request to or response from the kernel's IPVS.
#[derive(Debug, Clone)]
pub(crate) struct IpvsMessage {
    /// Command.
    pub(crate) command: u8,
    /// Attributes of a request.
    pub(crate) attributes: Vec<DefaultNla>,
    /// Attributes of a response, as raw bytes.
    pub(crate) response: Vec<u8>,
}

impl GenlFamily for IpvsMessage {
    fn family_name() -> &'static str {
        "IPVS"
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for IpvsMessage {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for IpvsMessage {
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        Ok(Self {
            command: header.cmd,
            attributes: Vec::new(),
            response: bytes.to_vec(),
        })
    }
}

/// Adds the virtual servers of a namespace, each with its real servers.
///
/// # Errors
///
/// When the kernel has no IPVS, lacks a scheduler, or rejects a server.
pub async fn add(ns: &NetNs, plan: &Namespace) -> Result<(), Failure> {
    if !plan.uses_ipvs() {
        return Ok(());
    }
    let (mut handle, driver) = connect(ns, &plan.name)?;
    let _table = TABLE_LOCK.lock().await;
    let result = async {
        set_timeouts(&mut handle, plan).await?;
        add_servers(&mut handle, plan).await
    }
    .await;
    driver.abort();
    result
}

/// Removes virtual servers with their real servers.
///
/// # Errors
///
/// When the kernel rejects the request.
pub async fn remove(ns: &NetNs, name: &str, servers: &[VirtualServer]) -> Result<(), Failure> {
    if servers.is_empty() {
        return Ok(());
    }
    let (mut handle, driver) = connect(ns, name)?;
    let _table = TABLE_LOCK.lock().await;
    let mut result = Ok(());
    for server in servers {
        let attributes = vec![nested(1, &key_attributes(&server.key))];
        result = request(&mut handle, DEL_SERVICE, attributes)
            .await
            .map_err(|errno| {
                failure::bug(format!(
                    "cannot remove virtual server {} in {name}: {}",
                    server.key,
                    errno.desc()
                ))
            });
        if result.is_err() {
            break;
        }
    }
    driver.abort();
    result
}

/// Changes the weight of real servers. A real server with weight 0 receives no new connections.
///
/// # Errors
///
/// When the kernel rejects the request.
pub async fn set_weights(
    ns: &NetNs,
    name: &str,
    servers: &[GuardedServer],
    weight: u32,
) -> Result<(), Failure> {
    let (mut handle, driver) = connect(ns, name)?;
    let mut result = Ok(());
    for server in servers {
        let real = RealServer {
            address: server.address,
            weight,
            method: Forwarding::Masquerade,
        };
        let attributes = vec![
            nested(1, &key_attributes(&server.key)),
            nested(2, &destination_attributes(&real)),
        ];
        result = request(&mut handle, SET_DEST, attributes)
            .await
            .map_err(|errno| {
                change_failure(
                    name,
                    &format!("set the weight of {} in {}", server.address, server.key),
                    errno,
                )
            });
        if result.is_err() {
            break;
        }
    }
    driver.abort();
    result
}

/// Opens a generic netlink connection in a namespace. Returns its handle and the task that drives
/// it.
///
/// # Errors
///
/// When the namespace cannot be entered.
pub(crate) fn connect(
    ns: &NetNs,
    name: &str,
) -> Result<(GenetlinkHandle, JoinHandle<()>), Failure> {
    let (connection, handle, _) = ns
        .enter(genetlink::new_connection)
        .and_then(|opened| opened)
        .map_err(|error| failure::cannot_enter(name, &error))?;
    Ok((handle, tokio::task::spawn_local(connection)))
}

async fn set_timeouts(handle: &mut GenetlinkHandle, plan: &Namespace) -> Result<(), Failure> {
    let Some(times) = &plan.ipvs_timeouts else {
        return Ok(());
    };
    // The value 0 keeps the current timeout (Linux v6.12, `net/netfilter/ipvs/ip_vs_ctl.c`,
    // `ip_vs_set_timeout`).
    let attributes = vec![
        u32_attribute(4, times.tcp),
        u32_attribute(5, times.tcp_fin),
        u32_attribute(6, times.udp),
    ];
    request(handle, SET_CONFIG, attributes)
        .await
        .map_err(|errno| change_failure(&plan.name, "set the IPVS timeouts", errno))
}

async fn add_servers(handle: &mut GenetlinkHandle, plan: &Namespace) -> Result<(), Failure> {
    for server in &plan.ipvs {
        let description = || format!("virtual server {}", server.key);
        let rejected = |object: &str, errno| {
            let failure = change_failure(&plan.name, &format!("add {object}"), errno);
            failure::with_rejected_input(failure, &plan.name, IPVSADM, server.key.to_string())
        };
        request(
            handle,
            NEW_SERVICE,
            vec![nested(1, &service_attributes(server))],
        )
        .await
        .map_err(|errno| rejected(&description(), errno))?;
        for real in &server.servers {
            let attributes = vec![
                nested(1, &key_attributes(&server.key)),
                nested(2, &destination_attributes(real)),
            ];
            request(handle, NEW_DEST, attributes)
                .await
                .map_err(|errno| {
                    rejected(
                        &format!("real server {} to {}", real.address, description()),
                        errno,
                    )
                })?;
        }
    }
    Ok(())
}

async fn request(
    handle: &mut GenetlinkHandle,
    command: u8,
    attributes: Vec<DefaultNla>,
) -> Result<(), Errno> {
    let mut message = NetlinkMessage::from(GenlMessage::from_payload(IpvsMessage {
        command,
        attributes,
        response: Vec::new(),
    }));
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    // On a kernel without the family, the lookup of the family's number fails with ENOENT.
    let mut answers = handle
        .request(message)
        .await
        .map_err(|_| Errno::ENOPROTOOPT)?;
    match answers.next().await {
        Some(Ok(answer)) => match answer.payload {
            NetlinkPayload::Error(error) if error.raw_code() != 0 => {
                Err(Errno::from_raw(-error.raw_code()))
            }
            _ => Ok(()),
        },
        // The end of the responses acknowledges the request.
        None => Ok(()),
        Some(Err(_)) => Err(Errno::EPROTO),
    }
}

/// Returns the attributes that identify a virtual server.
pub(crate) fn key_attributes(key: &VirtualServerKey) -> Vec<DefaultNla> {
    let family = |v6: bool| {
        if v6 {
            nix::libc::AF_INET6
        } else {
            nix::libc::AF_INET
        }
    };
    match key {
        VirtualServerKey::Address {
            protocol,
            address,
            port,
        } => {
            let protocol = match protocol {
                Transport::Tcp => nix::libc::IPPROTO_TCP,
                Transport::Udp => nix::libc::IPPROTO_UDP,
                Transport::Sctp => nix::libc::IPPROTO_SCTP,
            };
            vec![
                u16_attribute(1, family(address.is_ipv6())),
                u16_attribute(2, protocol),
                DefaultNla::new(3, padded(*address)),
                DefaultNla::new(4, port.to_be_bytes().to_vec()),
            ]
        }
        VirtualServerKey::FwMark { mark, is_v6: v6 } => {
            vec![u16_attribute(1, family(*v6)), u32_attribute(5, *mark)]
        }
    }
}

fn service_attributes(server: &VirtualServer) -> Vec<DefaultNla> {
    let mut scheduler = server.scheduler.clone().into_bytes();
    scheduler.push(0);
    let mut flags = 0;
    for (set, flag) in [
        (server.persistence.is_some(), PERSISTENT),
        (server.flags.fallback, SCHEDULER_FALLBACK),
        (server.flags.hash_port, SCHEDULER_PORT),
    ] {
        if set {
            flags |= flag;
        }
    }
    let mut flags_and_mask = flags.to_ne_bytes().to_vec();
    flags_and_mask.extend_from_slice(&u32::MAX.to_ne_bytes());
    let v6 = match server.key {
        VirtualServerKey::Address { address, .. } => address.is_ipv6(),
        VirtualServerKey::FwMark { is_v6: v6, .. } => v6,
    };
    // Clients are distinguished by their whole address.
    let netmask = if v6 { 128 } else { u32::MAX };
    let mut attributes = key_attributes(&server.key);
    attributes.extend([
        DefaultNla::new(6, scheduler),
        DefaultNla::new(7, flags_and_mask),
        u32_attribute(8, server.persistence.unwrap_or(0)),
        u32_attribute(9, netmask),
    ]);
    attributes
}

fn destination_attributes(real: &RealServer) -> Vec<DefaultNla> {
    let method = match real.method {
        Forwarding::Masquerade => 0,
        Forwarding::Tunnel => 2,
        Forwarding::Route => 3,
    };
    let family = if real.address.is_ipv6() {
        nix::libc::AF_INET6
    } else {
        nix::libc::AF_INET
    };
    vec![
        DefaultNla::new(1, padded(real.address.ip())),
        DefaultNla::new(2, real.address.port().to_be_bytes().to_vec()),
        u32_attribute(3, method),
        u32_attribute(4, real.weight),
        u32_attribute(5, 0),
        u32_attribute(6, 0),
        u16_attribute(11, family),
    ]
}

/// Creates an attribute that contains other attributes.
pub(crate) fn nested(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    DefaultNla::new(kind | netlink_packet_core::NLA_F_NESTED, bytes)
}

fn u32_attribute(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

fn u16_attribute(kind: u16, value: i32) -> DefaultNla {
    DefaultNla::new(
        kind,
        u16::try_from(value).unwrap_or(0).to_ne_bytes().to_vec(),
    )
}

/// Returns an address padded to 16 bytes, the size of the kernel's union.
fn padded(address: IpAddr) -> Vec<u8> {
    let mut bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    bytes.resize(16, 0);
    bytes
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
