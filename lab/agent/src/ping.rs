//! Sends one ICMP echo request as a probe.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use pnet::packet::icmp::IcmpTypes;
use pnet::packet::icmp::echo_request::MutableEchoRequestPacket;
use pnet::packet::icmpv6::Icmpv6Types;
use pnet::packet::icmpv6::echo_request::MutableEchoRequestPacket as MutableEchoRequestPacketV6;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::exchange::{Exchange, Outcome, verdict_of};
use super::{icmp_errors, patience};
use svclab_model::evidence::Verdict;
use svclab_model::plan::Probe;

/// Size of the request that `ping` sends by default, in bytes: the header and 56 bytes.
const SIZE: usize = 64;

/// Sends an echo request from the namespace of the calling thread. The namespace must permit ICMP
/// sockets (`net.ipv4.ping_group_range`).
///
/// # Errors
///
/// When no socket can be opened or the source address is unavailable.
pub fn begin(probe: &Probe) -> io::Result<Exchange> {
    let peer = probe.to.address;
    let protocol = match peer {
        IpAddr::V4(_) => Protocol::ICMPV4,
        IpAddr::V6(_) => Protocol::ICMPV6,
    };
    let to = SocketAddr::new(peer, 0);
    let socket = Socket::new(
        Domain::for_address(to),
        Type::DGRAM.nonblocking().cloexec(),
        Some(protocol),
    )?;
    icmp_errors::report(&socket, peer)?;
    if let Some(address) = probe.bind {
        socket.bind(&SocketAddr::new(address, 0).into())?;
    }
    let sent = socket
        .connect(&to.into())
        .and_then(|()| socket.send(&request(peer)).map(drop));
    if let Err(error) = sent {
        return Ok(Exchange::refused(error));
    }
    let socket = UdpSocket::from_std(socket.into())?;
    let local = socket.local_addr().ok();
    Ok(Exchange::begun(local, exchange(socket, probe.patience)))
}

/// Creates an echo request. The kernel fills in the identifier and the checksum.
fn request(peer: IpAddr) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    match peer {
        IpAddr::V4(_) => {
            if let Some(mut packet) = MutableEchoRequestPacket::new(&mut bytes) {
                packet.set_icmp_type(IcmpTypes::EchoRequest);
                packet.set_sequence_number(1);
            }
        }
        IpAddr::V6(_) => {
            if let Some(mut packet) = MutableEchoRequestPacketV6::new(&mut bytes) {
                packet.set_icmpv6_type(Icmpv6Types::EchoRequest);
                packet.set_sequence_number(1);
            }
        }
    }
    bytes
}

async fn exchange(socket: UdpSocket, patience: Duration) -> Outcome {
    let local = socket.local_addr().ok();
    let mut reply = [0; 2 * SIZE];
    match patience::within(patience, socket.recv(&mut reply)).await {
        Err(nothing) => Outcome::unanswered(Verdict::Timeout, local, nothing),
        Ok(Err(error)) => Outcome::ended(verdict_of(&error), local, Some(error)),
        Ok(Ok(_)) => Outcome::ended(Verdict::Answered, local, None),
    }
}
