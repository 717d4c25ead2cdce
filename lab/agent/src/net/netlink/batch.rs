//! Sends several requests to the kernel in one message.
//!
//! The kernel handles the requests of a message in order, before the system call returns (Linux
//! v6.12, `net/netlink/af_netlink.c`, `netlink_rcv_skb`). A request in a message of its own costs
//! two system calls and a wait for the socket, which takes longer than the request itself.

use std::io;
use std::num::NonZeroI32;

use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::libc::MSG_DONTWAIT;

use super::NamespaceNetlink;
use svclab_model::protocol::Failure;

/// Flags of a request that creates an object which must not exist.
pub(super) const CREATE: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// Maximum number of requests in a message. Their acknowledgements must fit in the receive buffer
/// of the socket, of which each takes about 1 KiB of at least 200 KiB.
const MAX_REQUESTS: usize = 64;

/// Maximum size of an acknowledgement in bytes. With `NETLINK_CAP_ACK`, it contains only the header
/// of the request.
const ACK_BYTES: usize = 1 << 10;

/// Requests of one namespace that are sent together.
pub(super) struct Batch<'n> {
    netlink: &'n NamespaceNetlink,
    requests: Vec<QueuedRequest<'n>>,
}

struct QueuedRequest<'n> {
    message: NetlinkMessage<RouteNetlinkMessage>,
    to_failure: Box<dyn FnOnce(rtnetlink::Error) -> Failure + 'n>,
}

impl<'n> Batch<'n> {
    pub(super) fn new(netlink: &'n NamespaceNetlink) -> Self {
        Self {
            netlink,
            requests: Vec::new(),
        }
    }

    /// Adds a request with flags such as [`CREATE`]. `to_failure` describes its failure.
    pub(super) fn push(
        &mut self,
        request: RouteNetlinkMessage,
        flags: u16,
        to_failure: impl FnOnce(rtnetlink::Error) -> Failure + 'n,
    ) {
        let mut message = NetlinkMessage::from(request);
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        self.requests.push(QueuedRequest {
            message,
            to_failure: Box::new(to_failure),
        });
    }

    /// Sends all requests and waits for their acknowledgements.
    ///
    /// # Errors
    ///
    /// When the kernel rejects a request. Later requests may have been executed.
    pub(super) fn send(self) -> Result<(), Failure> {
        let mut requests = self.requests.into_iter();
        loop {
            let part: Vec<_> = requests.by_ref().take(MAX_REQUESTS).collect();
            if part.is_empty() {
                return Ok(());
            }
            send_part(&self.netlink.batches, part)?;
        }
    }
}

/// Opens a socket for batches in the namespace of the calling thread.
pub(super) fn open_socket() -> io::Result<Socket> {
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.set_cap_ack(true)?;
    Ok(socket)
}

fn send_part(socket: &Socket, mut requests: Vec<QueuedRequest<'_>>) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    for (number, request) in (1..).zip(&mut requests) {
        request.message.header.sequence_number = number;
        request.message.finalize();
        let begin = bytes.len();
        // Messages are aligned to 4 bytes.
        bytes.resize(begin + request.message.buffer_len().next_multiple_of(4), 0);
        request.message.serialize(&mut bytes[begin..]);
    }
    let sent = socket.send_to(&bytes, &SocketAddr::new(0, 0), 0);
    let mut result = sent.map(drop).map_err(|error| to_netlink_error(&error));
    // The kernel answers in the order of the requests. All answers are received after an error too,
    // so that none is taken for the answer to a later request.
    let mut rejected = None;
    for request in requests {
        if result.is_ok() {
            result = receive_ack(socket);
        } else {
            let _ = receive_ack(socket);
        }
        if rejected.is_none() && result.is_err() {
            rejected = Some(request);
        }
    }
    match (result, rejected) {
        (Err(error), Some(request)) => Err((request.to_failure)(error)),
        _ => Ok(()),
    }
}

/// Receives the acknowledgement of a request that the kernel has handled.
fn receive_ack(socket: &Socket) -> Result<(), rtnetlink::Error> {
    let mut bytes = Vec::with_capacity(ACK_BYTES);
    socket
        .recv(&mut bytes, MSG_DONTWAIT)
        .map_err(|error| to_netlink_error(&error))?;
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes).map(|ack| ack.payload) {
        Ok(NetlinkPayload::Error(error)) if error.code.is_none() => Ok(()),
        Ok(NetlinkPayload::Error(error)) => Err(rtnetlink::Error::NetlinkError(error)),
        _ => Err(rtnetlink::Error::RequestFailed),
    }
}

fn to_netlink_error(error: &io::Error) -> rtnetlink::Error {
    let mut message = ErrorMessage::default();
    message.code = error.raw_os_error().and_then(|code| NonZeroI32::new(-code));
    rtnetlink::Error::NetlinkError(message)
}
