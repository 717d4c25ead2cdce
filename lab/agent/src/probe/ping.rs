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

use crate::probe::exchange::{Exchange, ExchangeResult, verdict_from_error};
use crate::probe::icmp_errors;
use crate::runtime::max_wait;
use svclab_model::evidence::Verdict;
use svclab_model::plan::Probe;

/// Size of the request that `ping` sends by default, in bytes: the header and 56 bytes.
const REQUEST_BYTES: usize = 64;

/// Sends an echo request from the namespace of the calling thread. The namespace must permit ICMP
/// sockets (`net.ipv4.ping_group_range`).
pub(crate) fn start(probe: &Probe) -> io::Result<Exchange> {
    let peer = probe.target.address;
    let protocol = match peer {
        IpAddr::V4(_) => Protocol::ICMPV4,
        IpAddr::V6(_) => Protocol::ICMPV6,
    };
    let target = SocketAddr::new(peer, 0);
    let socket = Socket::new(
        Domain::for_address(target),
        Type::DGRAM.nonblocking().cloexec(),
        Some(protocol),
    )?;
    icmp_errors::enable(&socket, peer)?;
    if let Some(address) = probe.bind {
        socket.bind(&SocketAddr::new(address, 0).into())?;
    }
    let sent = socket
        .connect(&target.into())
        .and_then(|()| socket.send(&request(peer)).map(drop));
    if let Err(error) = sent {
        return Ok(Exchange::rejected(error));
    }
    let socket = UdpSocket::from_std(socket.into())?;
    let local = socket.local_addr().ok();
    Ok(Exchange::new(local, exchange(socket, probe.max_wait)))
}

/// Creates an echo request. The kernel fills in the identifier and the checksum.
fn request(peer: IpAddr) -> Vec<u8> {
    let mut bytes = vec![0; REQUEST_BYTES];
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

async fn exchange(socket: UdpSocket, max_wait: Duration) -> ExchangeResult {
    let local = socket.local_addr().ok();
    let mut reply = [0; 2 * REQUEST_BYTES];
    match max_wait::within(max_wait, socket.recv(&mut reply)).await {
        Err(nothing) => ExchangeResult::timed_out(Verdict::Timeout, local, nothing),
        Ok(Err(error)) => {
            ExchangeResult::without_answer(verdict_from_error(&error), local, Some(error))
        }
        Ok(Ok(_)) => ExchangeResult::without_answer(Verdict::Answered, local, None),
    }
}
