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

/// Buffer size in bytes for reading a dump. The kernel splits the dump into parts that fit (Linux
/// v6.12, `net/netlink/af_netlink.c`, `netlink_dump`).
pub const BUFFER_BYTES: usize = 1 << 16;

/// Request to netfilter.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Netfilter subsystem in the upper byte, and command.
    pub command: u16,
    /// Netlink flags in addition to `NLM_F_REQUEST`.
    pub flags: u16,
    /// Address family, or 0.
    pub family: u8,
    /// Resource ID (`res_id`), whose meaning depends on the subsystem.
    pub resource_id: u16,
    /// Attributes in netlink encoding.
    pub attributes: &'a [u8],
}

impl Request<'_> {
    /// Encodes the request as a netlink message.
    ///
    /// # Errors
    ///
    /// When the request exceeds the maximum length of a message.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
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
pub struct Message<'a> {
    /// Netfilter subsystem in the upper byte, and message type.
    pub kind: u16,
    /// Address family, or 0.
    pub family: u8,
    /// Attributes. For a control message of netlink, the data from 4 bytes after its header.
    pub attributes: &'a [u8],
    /// First 4 bytes after the netlink header, as a number.
    first_word: i32,
}

/// Parses the messages of one received buffer. Incomplete messages are skipped.
pub fn messages(mut received: &[u8]) -> impl Iterator<Item = Message<'_>> {
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

/// Sends a request in the namespace of the calling thread, and waits for the response. `command`
/// contains the netfilter subsystem in the upper byte and the command. Attributes are in netlink
/// encoding.
///
/// # Errors
///
/// When the kernel rejects the request.
pub fn request(command: u16, flags: u16, attributes: &[u8]) -> io::Result<()> {
    let request = Request {
        command,
        flags: flags | NLM_F_ACK,
        family: 0,
        resource_id: 0,
        attributes,
    };
    send_and_wait(&open()?, &request.encode()?, 1)
}

/// Sends a request for an address family in the namespace of the calling thread, and waits for the
/// response.
///
/// # Errors
///
/// When the kernel rejects the request.
pub fn request_for_family(family: u8, command: u16, attributes: &[u8]) -> io::Result<()> {
    let request = Request {
        command,
        flags: NLM_F_ACK,
        family,
        resource_id: 0,
        attributes,
    };
    send_and_wait(&open()?, &request.encode()?, 1)
}

/// Sends a request on an open socket and waits for the response.
///
/// # Errors
///
/// When the kernel rejects the request.
pub fn request_on(socket: &Socket, request: &Request<'_>) -> io::Result<()> {
    let flags = request.flags | NLM_F_ACK;
    let request = Request { flags, ..*request };
    send_and_wait(socket, &request.encode()?, 1)
}

/// Sends a batch of requests to a netfilter subsystem on an open socket. The kernel applies all of
/// them or none.
///
/// # Errors
///
/// When the kernel rejects a request.
pub fn request_batch(socket: &Socket, requests: &[Request<'_>]) -> io::Result<()> {
    let Some(first) = requests.first() else {
        return Ok(());
    };
    let batch_marker = |what| Request {
        command: what,
        flags: 0,
        family: 0,
        resource_id: first.command >> 8,
        attributes: &[],
    };
    let mut batch = batch_marker(BATCH_BEGIN).encode()?;
    for request in requests {
        let flags = request.flags | NLM_F_ACK;
        batch.extend(Request { flags, ..*request }.encode()?);
    }
    batch.extend(batch_marker(BATCH_END).encode()?);
    send_and_wait(socket, &batch, requests.len())
}

/// Requests a dump in the namespace of the calling thread, and passes each message to `on_message`.
///
/// # Errors
///
/// When the kernel rejects the request.
pub fn dump(command: u16, mut on_message: impl FnMut(Message<'_>)) -> io::Result<()> {
    let request = Request {
        command,
        flags: NLM_F_DUMP,
        family: 0,
        resource_id: 0,
        attributes: &[],
    };
    let socket = open()?;
    socket.send_to(&request.encode()?, &SocketAddr::new(0, 0), 0)?;
    let mut received = Vec::with_capacity(BUFFER_BYTES);
    loop {
        received.clear();
        socket.recv(&mut received, 0)?;
        for message in messages(&received) {
            match (message.kind, message.first_word) {
                (NLMSG_ERROR | NLMSG_DONE, 0) => return Ok(()),
                (NLMSG_ERROR | NLMSG_DONE, code) => {
                    return Err(io::Error::from_raw_os_error(-code));
                }
                _ => on_message(message),
            }
        }
    }
}

/// Opens a socket for requests in the namespace of the calling thread.
///
/// # Errors
///
/// When no descriptor is left.
pub fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    // The kernel has queued the response when the send call returns.
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// Sends requests and reads one acknowledgement for each.
fn send_and_wait(socket: &Socket, requests: &[u8], expected: usize) -> io::Result<()> {
    socket.send_to(requests, &SocketAddr::new(0, 0), 0)?;
    let mut answers = 0;
    let mut received = Vec::with_capacity(BUFFER_BYTES);
    while answers < expected {
        received.clear();
        socket.recv(&mut received, 0)?;
        for message in messages(&received) {
            match (message.kind, message.first_word) {
                (NLMSG_ERROR, 0) => answers += 1,
                (NLMSG_ERROR, code) => return Err(io::Error::from_raw_os_error(-code)),
                _ => {}
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
            flags: 0,
            family: 0,
            resource_id: 0,
            attributes: &[1; 8],
        };
        let whole = request.encode().unwrap();
        for length in 0..whole.len() {
            assert_eq!(messages(&whole[..length]).count(), 0, "{length}");
        }
        assert_eq!(messages(&[0; 64]).count(), 0);
    }
}
