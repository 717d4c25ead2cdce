//! Receives UDP datagrams together with their destination address, and sends answers from that
//! address.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, RawFd};

use nix::sys::socket::sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
};

/// Makes the kernel report the destination address of each datagram.
pub(super) fn enable(socket: &impl AsFd, local: IpAddr) -> io::Result<()> {
    match local {
        IpAddr::V4(_) => setsockopt(socket, Ipv4PacketInfo, &true)?,
        IpAddr::V6(_) => setsockopt(socket, Ipv6RecvPacketInfo, &true)?,
    }
    Ok(())
}

/// Received datagram without its content.
pub(super) struct ReceivedDatagram {
    pub source: SocketAddr,
    pub destination: IpAddr,
    /// Number of bytes of the content.
    pub bytes: usize,
}

/// Receives a datagram and drops its content.
///
/// # Errors
///
/// `WouldBlock` when no datagram is available.
pub(super) fn receive(socket: RawFd) -> io::Result<ReceivedDatagram> {
    let mut first_byte = [0];
    let mut slices = [IoSliceMut::new(&mut first_byte)];
    let mut room = nix::cmsg_space!(nix::libc::in6_pktinfo);
    // With `MSG_TRUNC`, the kernel returns the number of bytes of the whole datagram.
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
    let message = recvmsg::<SockaddrStorage>(socket, &mut slices, Some(&mut room), flags)?;
    let peer = message
        .address
        .as_ref()
        .and_then(socket_address)
        .ok_or_else(|| io::Error::other("received a datagram without a source address"))?;
    let destination = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            Some(IpAddr::V4(u32::from_be(info.ipi_addr.s_addr).into()))
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => {
            Some(IpAddr::V6(info.ipi6_addr.s6_addr.into()))
        }
        _ => None,
    });
    let asked = destination
        .ok_or_else(|| io::Error::other("received a datagram without a destination address"))?;
    Ok(ReceivedDatagram {
        source: peer,
        destination: asked,
        bytes: message.bytes,
    })
}

/// Sends a datagram from one of the namespace's addresses.
pub(super) fn send(
    socket: RawFd,
    bytes: &[u8],
    target: SocketAddr,
    source: IpAddr,
) -> io::Result<()> {
    let slices = [IoSlice::new(bytes)];
    let to = SockaddrStorage::from(target);
    match source {
        IpAddr::V4(from) => {
            let info = nix::libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: nix::libc::in_addr {
                    s_addr: u32::from(from).to_be(),
                },
                ipi_addr: nix::libc::in_addr { s_addr: 0 },
            };
            sendmsg(
                socket,
                &slices,
                &[ControlMessage::Ipv4PacketInfo(&info)],
                MsgFlags::MSG_DONTWAIT,
                Some(&to),
            )?;
        }
        IpAddr::V6(from) => {
            let info = nix::libc::in6_pktinfo {
                ipi6_addr: nix::libc::in6_addr {
                    s6_addr: from.octets(),
                },
                ipi6_ifindex: 0,
            };
            sendmsg(
                socket,
                &slices,
                &[ControlMessage::Ipv6PacketInfo(&info)],
                MsgFlags::MSG_DONTWAIT,
                Some(&to),
            )?;
        }
    }
    Ok(())
}

fn socket_address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    storage
        .as_sockaddr_in()
        .map(|v4| SocketAddr::from((v4.ip(), v4.port())))
        .or_else(|| {
            storage
                .as_sockaddr_in6()
                .map(|v6| SocketAddr::from((v6.ip(), v6.port())))
        })
}
