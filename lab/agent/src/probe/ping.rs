//! Sends ICMP echo requests as a probe.

use std::io;
use std::net::{IpAddr, SocketAddr};

use pnet::packet::icmp::IcmpTypes;
use pnet::packet::icmp::echo_request::MutableEchoRequestPacket;
use pnet::packet::icmpv6::Icmpv6Types;
use pnet::packet::icmpv6::echo_request::MutableEchoRequestPacket as MutableEchoRequestPacketV6;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use crate::probe::exchange::Exchange;
use crate::probe::{datagrams, icmp_errors};
use crate::servers::payload;
use svclab_model::plan::Probe;

/// Size of the header of an echo request, in bytes.
const HEADER_BYTES: usize = 8;

/// Size of the payload that `ping` sends by default, in bytes.
const DEFAULT_PAYLOAD_BYTES: usize = 56;

/// Sends the first echo request from the namespace of the calling thread. The namespace must permit
/// ICMP sockets (`net.ipv4.ping_group_range`).
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
    let payload = probe.bytes.map_or(DEFAULT_PAYLOAD_BYTES, payload::to_size);
    if let Err(error) = socket.connect(&target.into()) {
        return Ok(Exchange::rejected(None, error));
    }
    let sent = socket.send(&request(peer, 1, payload));
    let socket = UdpSocket::from_std(socket.into())?;
    let (local, probe) = (socket.local_addr().ok(), probe.clone());
    if let Err(error) = sent {
        return Ok(Exchange::rejected(local, error));
    }
    Ok(Exchange::new(local, async move {
        let next = |number| request(peer, number, payload);
        datagrams::exchange(&socket, &probe, 1, next, |_| true).await
    }))
}

/// Creates an echo request. The kernel fills in the identifier and the checksum.
fn request(peer: IpAddr, number: u32, payload: usize) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES + payload];
    // The sequence number has 16 bits.
    let number = u16::try_from(number).unwrap_or(u16::MAX);
    match peer {
        IpAddr::V4(_) => {
            if let Some(mut packet) = MutableEchoRequestPacket::new(&mut bytes) {
                packet.set_icmp_type(IcmpTypes::EchoRequest);
                packet.set_sequence_number(number);
            }
        }
        IpAddr::V6(_) => {
            if let Some(mut packet) = MutableEchoRequestPacketV6::new(&mut bytes) {
                packet.set_icmpv6_type(Icmpv6Types::EchoRequest);
                packet.set_sequence_number(number);
            }
        }
    }
    bytes
}
