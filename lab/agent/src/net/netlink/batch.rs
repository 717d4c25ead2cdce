//! Sends several requests to the kernel in one message.
//!
//! The kernel handles the requests of a message in order, before the system call returns (Linux
//! v6.12, `net/netlink/af_netlink.c`, `netlink_rcv_skb`). A request in a message of its own costs
//! two system calls and a wait for the socket, which takes longer than the request itself.

use std::io;
use std::num::NonZeroI32;

use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use super::NamespaceNetlink;
use crate::net::netfilter::nfnetlink;
use svclab_model::protocol::Failure;

/// Flags of a request that creates an object which must not exist.
pub(super) const CREATE: u16 = NLM_F_CREATE | NLM_F_EXCL;

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
        message.finalize();
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
        let encoded: Vec<Vec<u8>> = self
            .requests
            .iter()
            .map(|request| encode(&request.message))
            .collect();
        let Err((index, error)) = nfnetlink::send_each(&self.netlink.batches, &encoded) else {
            return Ok(());
        };
        let rejected = self.requests.into_iter().nth(index);
        rejected.map_or(Ok(()), |request| {
            Err((request.to_failure)(to_netlink_error(&error)))
        })
    }
}

/// Opens a socket for batches in the namespace of the calling thread.
pub(super) fn open_socket() -> io::Result<Socket> {
    let socket = nfnetlink::open_for(NETLINK_ROUTE)?;
    // Acknowledgements then contain only the header of the request.
    socket.set_cap_ack(true)?;
    Ok(socket)
}

/// Encodes a message. Messages are aligned to 4 bytes.
fn encode(message: &NetlinkMessage<RouteNetlinkMessage>) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len().next_multiple_of(4)];
    message.serialize(&mut bytes);
    bytes
}

fn to_netlink_error(error: &io::Error) -> rtnetlink::Error {
    let mut message = ErrorMessage::default();
    message.code = error.raw_os_error().and_then(|code| NonZeroI32::new(-code));
    rtnetlink::Error::NetlinkError(message)
}
