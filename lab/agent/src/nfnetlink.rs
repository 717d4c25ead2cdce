//! Asking netfilter by netlink: for one thing, for several at once, for a list.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

/// A netlink header, and netfilter's own.
const HEADERS: usize = 16 + 4;

/// A message that refuses or grants, and one that ends a list.
const ANSWER: u16 = 2;
const DONE: u16 = 3;

/// What brackets messages that are done together or not at all (Linux v6.12,
/// `include/uapi/linux/netfilter/nfnetlink.h`).
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

/// How much of a list is read at once, in bytes; the kernel divides it into pieces
/// that fit (Linux v6.12, `net/netlink/af_netlink.c`, `netlink_dump`).
pub const ROOM: usize = 1 << 16;

/// One thing that is asked of netfilter.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The part of netfilter, in the upper byte, and what it is to do.
    pub what: u16,
    /// Netlink's flags, besides those of every request.
    pub flags: u16,
    /// The address family, or 0.
    pub family: u8,
    /// What the part of netfilter takes it for.
    pub about: u16,
    /// Attributes, as the kernel reads them.
    pub attributes: &'a [u8],
}

impl Request<'_> {
    /// As netlink carries it.
    ///
    /// # Errors
    ///
    /// When it is longer than a message can be.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let length = HEADERS + self.attributes.len();
        let mut message = Vec::with_capacity(length);
        let length = u32::try_from(length).map_err(io::Error::other)?;
        message.extend_from_slice(&length.to_ne_bytes());
        message.extend_from_slice(&self.what.to_ne_bytes());
        message.extend_from_slice(&(NLM_F_REQUEST | self.flags).to_ne_bytes());
        message.extend_from_slice(&[0; 8]);
        message.extend_from_slice(&[self.family, 0]);
        message.extend_from_slice(&self.about.to_be_bytes());
        message.extend_from_slice(self.attributes);
        message.resize(message.len().next_multiple_of(4), 0);
        Ok(message)
    }
}

/// A message of netfilter's, as it was received.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// The part of netfilter, and what it says.
    pub what: u16,
    /// The address family, or 0.
    pub family: u8,
    /// Attributes; of a message of netlink's own, what is behind its header and four
    /// bytes more.
    pub attributes: &'a [u8],
    /// The first four bytes behind netlink's header, as a number.
    first: i32,
}

/// The messages in what was received at once. One that is cut off is left out.
pub fn messages(mut received: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*received.first_chunk()?);
        let length = usize::try_from(length).ok()?;
        let message = received.get(..length)?;
        received = received
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
        Some(Message {
            what: u16::from_ne_bytes(*message.get(4..)?.first_chunk()?),
            family: *message.get(16)?,
            attributes: message.get(HEADERS..)?,
            first: i32::from_ne_bytes(*message.get(16..)?.first_chunk()?),
        })
    })
}

/// Asks in the namespace that the thread is in, and waits for the answer. `what`
/// is the part of netfilter, in the upper byte, and what it is to do; attributes
/// are as the kernel reads them.
///
/// # Errors
///
/// What the kernel refuses.
pub fn ask(what: u16, flags: u16, attributes: &[u8]) -> io::Result<()> {
    let request = Request {
        what,
        flags: flags | NLM_F_ACK,
        family: 0,
        about: 0,
        attributes,
    };
    answered(&open()?, &request.bytes()?, 1)
}

/// Asks about something of an address family, likewise.
///
/// # Errors
///
/// What the kernel refuses.
pub fn ask_of(family: u8, what: u16, attributes: &[u8]) -> io::Result<()> {
    let request = Request {
        what,
        flags: NLM_F_ACK,
        family,
        about: 0,
        attributes,
    };
    answered(&open()?, &request.bytes()?, 1)
}

/// Asks on a socket that stays open, and waits for the answer.
///
/// # Errors
///
/// What the kernel refuses.
pub fn ask_on(socket: &Socket, request: &Request<'_>) -> io::Result<()> {
    let flags = request.flags | NLM_F_ACK;
    let request = Request { flags, ..*request };
    answered(socket, &request.bytes()?, 1)
}

/// Asks a part of netfilter on a socket that stays open for several things that are done
/// together or not at all.
///
/// # Errors
///
/// What the kernel refuses.
pub fn ask_together(socket: &Socket, requests: &[Request<'_>]) -> io::Result<()> {
    let Some(first) = requests.first() else {
        return Ok(());
    };
    let bracket = |what| Request {
        what,
        flags: 0,
        family: 0,
        about: first.what >> 8,
        attributes: &[],
    };
    let mut all = bracket(BATCH_BEGIN).bytes()?;
    for request in requests {
        let flags = request.flags | NLM_F_ACK;
        all.extend(Request { flags, ..*request }.bytes()?);
    }
    all.extend(bracket(BATCH_END).bytes()?);
    answered(socket, &all, requests.len())
}

/// Asks for a list, in the namespace that the thread is in, and hands on each
/// message of it.
///
/// # Errors
///
/// What the kernel refuses.
pub fn list(what: u16, mut each: impl FnMut(Message<'_>)) -> io::Result<()> {
    let request = Request {
        what,
        flags: NLM_F_DUMP,
        family: 0,
        about: 0,
        attributes: &[],
    };
    let socket = open()?;
    socket.send_to(&request.bytes()?, &SocketAddr::new(0, 0), 0)?;
    let mut received = Vec::with_capacity(ROOM);
    loop {
        received.clear();
        socket.recv(&mut received, 0)?;
        for message in messages(&received) {
            match (message.what, message.first) {
                (ANSWER | DONE, 0) => return Ok(()),
                (ANSWER | DONE, code) => return Err(io::Error::from_raw_os_error(-code)),
                _ => each(message),
            }
        }
    }
}

/// A socket to ask on, in the namespace that the thread is in.
///
/// # Errors
///
/// When no descriptor is left.
pub fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    // An answer is there when the request has been taken.
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// Sends requests and reads as many answers.
fn answered(socket: &Socket, requests: &[u8], wanted: usize) -> io::Result<()> {
    socket.send_to(requests, &SocketAddr::new(0, 0), 0)?;
    let mut answers = 0;
    let mut received = Vec::with_capacity(ROOM);
    while answers < wanted {
        received.clear();
        socket.recv(&mut received, 0)?;
        for message in messages(&received) {
            match (message.what, message.first) {
                (ANSWER, 0) => answers += 1,
                (ANSWER, code) => return Err(io::Error::from_raw_os_error(-code)),
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
    fn what_is_asked_can_be_read_again() {
        let request = Request {
            what: 0x0a06,
            flags: 0,
            family: 2,
            about: 7,
            attributes: &[5, 0, 1, 0, 9],
        };
        let mut both = request.bytes().unwrap();
        assert_eq!(both.len() % 4, 0);
        both.extend(request.bytes().unwrap());
        let read: Vec<_> = messages(&both)
            .map(|each| (each.what, each.family, each.attributes))
            .collect();
        let one = (0x0a06, 2, [5, 0, 1, 0, 9].as_slice());
        assert_eq!(read, [one, one]);
    }

    #[test]
    fn a_message_that_is_cut_off_is_left_out() {
        let request = Request {
            what: 1,
            flags: 0,
            family: 0,
            about: 0,
            attributes: &[1; 8],
        };
        let whole = request.bytes().unwrap();
        for length in 0..whole.len() {
            assert_eq!(messages(&whole[..length]).count(), 0, "{length}");
        }
        assert_eq!(messages(&[0; 64]).count(), 0);
    }
}
