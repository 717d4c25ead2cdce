//! Captures every packet on every interface of a namespace, with one `AF_PACKET` socket per
//! namespace.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType,
    SockaddrStorage, recvmsg, setsockopt, socket,
};
use nix::sys::time::TimeSpec;
use tokio::io::unix::AsyncFd;
use tokio_util::task::AbortOnDropHandle;

use crate::net::netns::NetNs;
use crate::runtime::closing::ClosingSockets;
use crate::runtime::{failure, poll};
use crate::watch::packet_clock::PacketClock;
use crate::watch::set_receive_buffer;
use svclab_model::evidence::{Direction, MAX_PACKETS, Packet};
use svclab_model::protocol::Failure;

/// Maximum number of bytes kept of each packet. A whole Ethernet frame fits.
const MAX_PACKET_BYTES: usize = 1600;

/// Size of the receive buffer in bytes.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Packets captured so far in all namespaces of a lab.
#[derive(Debug, Default)]
pub(crate) struct CaptureBuffer {
    clock: PacketClock,
    packets: Vec<Packet>,
    missed: u64,
    /// Time after which no packet is kept.
    end_time: Option<u64>,
}

impl CaptureBuffer {
    /// Returns the number of packets in the buffer.
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns the number of captured packets, including those that did not fit.
    pub(crate) fn count_captured(&self) -> u64 {
        u64::try_from(self.packets.len())
            .unwrap_or(u64::MAX)
            .saturating_add(self.missed)
    }

    /// Returns the current time on the clock of the packet timestamps.
    pub(crate) fn now(&mut self) -> u64 {
        self.clock.now()
    }

    /// Discards all packets after `time`, including those already in the buffer.
    pub(crate) fn end_at(&mut self, time: u64) {
        self.end_time = Some(time);
        self.packets.retain(|packet| packet.time <= time);
    }

    /// Returns the same as [`CaptureBuffer::take`], but keeps the packets.
    pub(crate) fn snapshot(&self) -> (Vec<Packet>, u64) {
        let mut packets = self.packets.clone();
        packets.sort_by_key(|packet| packet.time);
        (packets, self.missed)
    }

    /// Removes all packets. Returns them in order of time, and the number of packets that did not
    /// fit.
    pub(crate) fn take(&mut self) -> (Vec<Packet>, u64) {
        let mut packets = std::mem::take(&mut self.packets);
        packets.sort_by_key(|packet| packet.time);
        (packets, std::mem::take(&mut self.missed))
    }
}

/// Capture of the packets of one namespace.
pub(crate) struct Capture {
    fd: Rc<AsyncFd<OwnedFd>>,
    namespace: Rc<str>,
    names: Rc<HashMap<u32, String>>,
    buffer: Rc<RefCell<CaptureBuffer>>,
    reader: AbortOnDropHandle<()>,
}

impl Capture {
    /// Starts a capture. `names` maps the indexes of the namespace's interfaces to names.
    pub(crate) fn start(
        ns: &NetNs,
        namespace: &str,
        names: HashMap<u32, String>,
        buffer: Rc<RefCell<CaptureBuffer>>,
    ) -> Result<Self, Failure> {
        let fd = open(ns, namespace)?;
        let (fd, namespace, names) = (Rc::new(fd), Rc::from(namespace), Rc::new(names));
        let reader = AbortOnDropHandle::new(tokio::task::spawn_local(read_packets(
            Rc::clone(&fd),
            Rc::clone(&namespace),
            Rc::clone(&names),
            Rc::clone(&buffer),
        )));
        Ok(Self {
            fd,
            namespace,
            names,
            buffer,
            reader,
        })
    }

    /// Reads all packets that the kernel holds now, and adds the number of packets that the kernel
    /// dropped.
    pub(crate) fn drain(&self) {
        while let Ok(packet) = receive(self.fd.get_ref().as_raw_fd(), &self.namespace, &self.names)
        {
            store(&self.buffer, packet);
        }
        self.buffer.borrow_mut().missed += take_drop_count(self.fd.get_ref().as_raw_fd());
    }
}

/// Ends captures. When this function returns, their sockets are closed or being closed by the
/// kernel (Linux v6.12, `net/packet/af_packet.c`, `packet_release`).
pub(crate) async fn end(captures: Vec<Capture>) -> ClosingSockets {
    let mut sockets = Vec::with_capacity(captures.len());
    for Capture { fd, reader, .. } in captures {
        // The reader task holds the socket until its abort completes.
        reader.abort();
        let _ = reader.await;
        sockets.extend(Rc::into_inner(fd).map(AsyncFd::into_inner));
    }
    ClosingSockets::start(sockets)
}

/// Opens a socket that receives every packet of a namespace.
pub(crate) fn open(ns: &NetNs, namespace: &str) -> Result<AsyncFd<OwnedFd>, Failure> {
    let open = || -> io::Result<OwnedFd> {
        let fd = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
            SockProtocol::EthAll,
        )?;
        setsockopt(&fd, ReceiveTimestampns, &true)?;
        set_receive_buffer(&fd, RECEIVE_BUFFER_BYTES)?;
        Ok(fd)
    };
    ns.enter(open)
        .and_then(|opened| opened)
        .and_then(poll::register)
        .map_err(|error| {
            failure::host(
                format!("cannot capture packets in {namespace}: {error}"),
                &error,
            )
        })
}

/// Returns the number of packets dropped for lack of buffer space since the previous call.
pub(crate) fn take_drop_count(socket: RawFd) -> u64 {
    let mut counts = nix::libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut length = nix::libc::socklen_t::try_from(size_of_val(&counts)).unwrap_or(0);
    // SAFETY: the kernel writes at most `length` bytes to `counts`, which may contain any value.
    let got = unsafe {
        nix::libc::getsockopt(
            socket,
            nix::libc::SOL_PACKET,
            nix::libc::PACKET_STATISTICS,
            std::ptr::from_mut(&mut counts).cast(),
            &raw mut length,
        )
    };
    // Every open packet socket has these counts (Linux v6.12, `net/packet/af_packet.c`).
    if got == 0 { counts.tp_drops.into() } else { 0 }
}

async fn read_packets(
    fd: Rc<AsyncFd<OwnedFd>>,
    namespace: Rc<str>,
    names: Rc<HashMap<u32, String>>,
    buffer: Rc<RefCell<CaptureBuffer>>,
) {
    while let Ok(mut ready) = fd.readable().await {
        while let Ok(Ok(packet)) =
            ready.try_io(|fd| receive(fd.get_ref().as_raw_fd(), &namespace, &names))
        {
            store(&buffer, packet);
        }
    }
}

fn store(buffer: &RefCell<CaptureBuffer>, packet: Option<Packet>) {
    let mut basket = buffer.borrow_mut();
    if let Some(mut packet) = packet {
        packet.time = basket.clock.time(packet.time);
        if basket.end_time.is_some_and(|end| packet.time > end) {
            return;
        }
        if basket.packets.len() < MAX_PACKETS {
            basket.packets.push(packet);
        } else {
            basket.missed += 1;
        }
    }
}

/// Receives the next packet. Returns `None` for a packet of an interface outside the plan.
fn receive(
    socket: RawFd,
    namespace: &str,
    names: &HashMap<u32, String>,
) -> io::Result<Option<Packet>> {
    receive_in(&mut [0; MAX_PACKET_BYTES], socket, namespace, names)
}

/// Receives the next packet and keeps as much of it as fits into `bytes`. Returns `None` for a
/// packet of an interface outside the plan.
///
/// # Errors
///
/// When no packet is available.
pub(crate) fn receive_in(
    bytes: &mut [u8],
    socket: RawFd,
    namespace: &str,
    names: &HashMap<u32, String>,
) -> io::Result<Option<Packet>> {
    let snap = bytes.len();
    let mut slices = [IoSliceMut::new(bytes)];
    let mut room = nix::cmsg_space!(TimeSpec);
    let message = recvmsg::<SockaddrStorage>(
        socket,
        &mut slices,
        Some(&mut room),
        // With this flag, the kernel returns the length of the whole packet, not of the stored
        // part.
        MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC,
    )?;
    let length = message.bytes;
    let time = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => Some(time),
        _ => None,
    });
    let address = message.address;
    let Some(link) = address.as_ref().and_then(SockaddrStorage::as_link_addr) else {
        return Ok(None);
    };
    let Some(interface) = u32::try_from(link.ifindex())
        .ok()
        .and_then(|index| names.get(&index))
    else {
        return Ok(None);
    };
    let direction = if link.pkttype() == nix::libc::PACKET_OUTGOING {
        Direction::Out
    } else {
        Direction::In
    };
    let time = time.map_or(0, |time| {
        u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000_000_000
            + u64::try_from(time.tv_nsec()).unwrap_or(0)
    });
    Ok(Some(Packet {
        time,
        namespace: namespace.to_owned(),
        interface: interface.clone(),
        direction,
        length: u32::try_from(length).unwrap_or(u32::MAX),
        bytes: bytes[..length.min(snap)].to_vec(),
    }))
}
