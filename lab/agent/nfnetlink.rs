//! Asking netfilter by netlink for one thing, without a word about a family.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

/// A netlink header, and netfilter's own.
const HEADERS: usize = 16 + 4;

/// Asks in the namespace that the thread is in, and waits for the answer. `what`
/// is the part of netfilter, in the upper byte, and what it is to do; attributes
/// are as the kernel reads them.
///
/// # Errors
///
/// What the kernel refuses.
pub fn ask(what: u16, flags: u16, attributes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(HEADERS + attributes.len()).map_err(io::Error::other)?;
    let mut message = Vec::with_capacity(HEADERS + attributes.len());
    message.extend_from_slice(&length.to_ne_bytes());
    message.extend_from_slice(&what.to_ne_bytes());
    message.extend_from_slice(&(NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
    message.extend_from_slice(&[0; 8 + 4]);
    message.extend_from_slice(attributes);
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.send_to(&message, &SocketAddr::new(0, 0), 0)?;
    // The answer is there when the request has been taken.
    let (answer, _) = socket.recv_from_full()?;
    let code = answer
        .get(16..20)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::Error::other("netfilter's answer is too short")),
    }
}
