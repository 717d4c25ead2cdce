//! Sends requests to netfilter over netlink: single requests, batches and dumps.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

/// Bytes of the netlink header and the netfilter header.
const HEADER_BYTES: usize = 16 + 4;

/// Messages that acknowledge or reject a request, and that end a dump.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// Messages that enclose an atomic batch (Linux v6.12, `include/uapi/linux/netfilter/nfnetlink.h`).
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

/// Maximum number of requests that are sent at once. The receive buffer of a socket must hold their
/// acknowledgements, of which each takes about 1 KiB of at least 200 KiB.
const MAX_REQUESTS: usize = 64;

/// Buffer size in bytes for reading a dump. The kernel splits the dump into parts that fit (Linux
/// v6.12, `net/netlink/af_netlink.c`, `netlink_dump`).
pub(crate) const BUFFER_BYTES: usize = 1 << 16;

/// Request to netfilter.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Request<'a> {
    /// Netfilter subsystem in the upper byte, and command.
    pub(crate) command: u16,
    /// Netlink flags in addition to `NLM_F_REQUEST`.
    pub(crate) flags: u16,
    /// Address family, or 0.
    pub(crate) family: u8,
    /// Resource ID (`res_id`), whose meaning depends on the subsystem.
    pub(crate) resource_id: u16,
    /// Attributes in netlink encoding.
    pub(crate) attributes: &'a [u8],
}

impl Request<'_> {
    /// Encodes the request as a netlink message.
    ///
    /// # Errors
    ///
    /// When the request exceeds the maximum length of a message.
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        let length = HEADER_BYTES + self.attributes.len();
        let mut message = Vec::with_capacity(length);
        let length = u32::try_from(length).map_err(io::Error::other)?;
        message.extend_from_slice(&length.to_ne_bytes());
        message.extend_from_slice(&self.command.to_ne_bytes());
        message.extend_from_slice(&(NLM_F_REQUEST | self.flags).to_ne_bytes());
        message.extend_from_slice(&[0; 8]);
        message.extend_from_slice(&[self.family, 0]);
        message.extend_from_slice(&self.resource_id.to_be_bytes());
        message.extend_from_slice(self.attributes);
        message.resize(message.len().next_multiple_of(4), 0);
        Ok(message)
    }
}

/// Received netfilter message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    /// Netfilter subsystem in the upper byte, and message type.
    pub(crate) kind: u16,
    /// Address family, or 0.
    pub(crate) family: u8,
    /// Attributes. For a control message of netlink, the data from 4 bytes after its header.
    pub(crate) attributes: &'a [u8],
    /// First 4 bytes after the netlink header, as a number.
    first_word: i32,
}

/// Parses the messages of one received buffer. Incomplete messages are skipped.
pub(crate) fn messages(mut received: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*received.first_chunk()?);
        let length = usize::try_from(length).ok()?;
        let message = received.get(..length)?;
        received = received
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
        Some(Message {
            kind: u16::from_ne_bytes(*message.get(4..)?.first_chunk()?),
            family: *message.get(16)?,
            attributes: message.get(HEADER_BYTES..)?,
            first_word: i32::from_ne_bytes(*message.get(16..)?.first_chunk()?),
        })
    })
}

/// Sends a request in the namespace of the calling thread, and waits for the response.
pub(crate) fn request(request: &Request<'_>) -> io::Result<()> {
    request_on(&open()?, request)
}

/// Sends a request on an open socket and waits for the response.
pub(crate) fn request_on(socket: &Socket, request: &Request<'_>) -> io::Result<()> {
    let flags = request.flags | NLM_F_ACK;
    let request = Request { flags, ..*request };
    exchange(socket, &request.encode()?, Ends::Acks(1), |_| ())
}

/// Sends a batch of requests to a netfilter subsystem on an open socket. The kernel applies all of
/// them or none.
pub(crate) fn request_batch(socket: &Socket, requests: &[Request<'_>]) -> io::Result<()> {
    let Some(first) = requests.first() else {
        return Ok(());
    };
    let batch_marker = |command| Request {
        command,
        resource_id: first.command >> 8,
        ..Request::default()
    };
    let mut batch = batch_marker(BATCH_BEGIN).encode()?;
    for request in requests {
        let flags = request.flags | NLM_F_ACK;
        batch.extend(Request { flags, ..*request }.encode()?);
    }
    batch.extend(batch_marker(BATCH_END).encode()?);
    exchange(socket, &batch, Ends::Acks(requests.len()), |_| ())
}

/// Requests a dump in the namespace of the calling thread, and passes each message to `on_message`.
pub(crate) fn dump(command: u16, on_message: impl FnMut(Message<'_>)) -> io::Result<()> {
    let request = Request {
        command,
        flags: NLM_F_DUMP,
        ..Request::default()
    };
    exchange(&open()?, &request.encode()?, Ends::Dump, on_message)
}

/// Sends requests on an open socket, as [`send_each`] does.
pub(crate) fn request_each(
    socket: &Socket,
    requests: &[Request<'_>],
) -> Result<(), (usize, io::Error)> {
    let mut encoded = Vec::with_capacity(requests.len());
    for (index, request) in requests.iter().enumerate() {
        let flags = request.flags | NLM_F_ACK;
        let request = Request { flags, ..*request };
        encoded.push(request.encode().map_err(|error| (index, error))?);
    }
    send_each(socket, &encoded)
}

/// Sends encoded requests with `NLM_F_ACK` of any netlink protocol on an open socket. The kernel
/// executes them one after the other. An error has the index of the first rejected request. Later
/// requests may have been executed.
pub(crate) fn send_each(socket: &Socket, requests: &[Vec<u8>]) -> Result<(), (usize, io::Error)> {
    for (part, requests) in requests.chunks(MAX_REQUESTS).enumerate() {
        let at = |index: usize| move |error| (part * MAX_REQUESTS + index, error);
        let address = SocketAddr::new(0, 0);
        socket
            .send_to(&requests.concat(), &address, 0)
            .map_err(at(0))?;
        // All answers are received, so that none is taken for that of a later request.
        let mut answers = (0..requests.len())
            .map(|index| receive(socket, Ends::Acks(1), &mut |_| ()).map_err(at(index)))
            .collect::<Vec<_>>()
            .into_iter();
        answers.try_for_each(|answer| answer)?;
    }
    Ok(())
}

/// Sends a query on an open socket, and passes each message of the response to `on_message`: one
/// message, or with `NLM_F_DUMP` a list.
pub(crate) fn query_on(
    socket: &Socket,
    query: &Request<'_>,
    on_message: impl FnMut(Message<'_>),
) -> io::Result<()> {
    let is_dump = query.flags & NLM_F_DUMP == NLM_F_DUMP;
    let ends = if is_dump { Ends::Dump } else { Ends::Acks(1) };
    let flags = query.flags | NLM_F_ACK;
    let query = Request { flags, ..*query };
    exchange(socket, &query.encode()?, ends, on_message)
}

/// Opens a socket for requests in the namespace of the calling thread.
pub(crate) fn open() -> io::Result<Socket> {
    open_for(NETLINK_NETFILTER)
}

/// Opens a socket of a netlink protocol, such as `NETLINK_NETFILTER`, for requests in the namespace
/// of the calling thread.
pub(crate) fn open_for(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    // The kernel has queued the response when the send call returns.
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// Messages that end an exchange. Logged packets end with the message of a dump, too, and can arrive
/// before an acknowledgement.
#[derive(Debug, Clone, Copy)]
enum Ends {
    /// Number of acknowledgements.
    Acks(usize),
    /// End of one dump.
    Dump,
}

/// Sends encoded requests. Passes each response to `on_message` until the exchange ends.
fn exchange(
    socket: &Socket,
    requests: &[u8],
    ends: Ends,
    mut on_message: impl FnMut(Message<'_>),
) -> io::Result<()> {
    socket.send_to(requests, &SocketAddr::new(0, 0), 0)?;
    receive(socket, ends, &mut on_message)
}

/// Receives the answers to requests. Passes each message to `on_message` until the exchange ends.
fn receive(socket: &Socket, ends: Ends, on_message: &mut dyn FnMut(Message<'_>)) -> io::Result<()> {
    let (mut missing, is_dump) = match ends {
        Ends::Acks(count) => (count, false),
        Ends::Dump => (1, true),
    };
    let mut received = Vec::with_capacity(BUFFER_BYTES);
    while missing > 0 {
        received.clear();
        socket.recv(&mut received, 0)?;
        for message in messages(&received) {
            let is_end = message.kind == NLMSG_ERROR || is_dump && message.kind == NLMSG_DONE;
            match message.first_word {
                _ if !is_end => on_message(message),
                0 => missing = missing.saturating_sub(1),
                code => return Err(io::Error::from_raw_os_error(code.wrapping_neg())),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_requests_are_parsed_back() {
        let request = Request {
            command: 0x0a06,
            flags: 0,
            family: 2,
            resource_id: 7,
            attributes: &[5, 0, 1, 0, 9],
        };
        let mut both = request.encode().unwrap();
        assert_eq!(both.len() % 4, 0);
        both.extend(request.encode().unwrap());
        let read: Vec<_> = messages(&both)
            .map(|each| (each.kind, each.family, each.attributes))
            .collect();
        let expected = (0x0a06, 2, [5, 0, 1, 0, 9].as_slice());
        assert_eq!(read, [expected, expected]);
    }

    #[test]
    fn incomplete_message_is_skipped() {
        let request = Request {
            command: 1,
            attributes: &[1; 8],
            ..Request::default()
        };
        let whole = request.encode().unwrap();
        for length in 0..whole.len() {
            assert_eq!(messages(&whole[..length]).count(), 0, "{length}");
        }
        assert_eq!(messages(&[0; 64]).count(), 0);
    }
}
