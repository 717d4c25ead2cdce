//! Records evidence: packets, trace events, drops, counters and the state of the kernel.

pub(crate) mod capture;
pub(crate) mod counters;
pub mod drops;
pub(crate) mod environment;
pub(crate) mod kernel_state;
pub(crate) mod live_capture;
mod network;
pub(crate) mod packet_clock;
pub(crate) mod reported_drops;
pub(crate) mod sysctls;
pub(crate) mod timestamps;
pub(crate) mod trace;

use std::os::fd::AsFd;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce};

/// Sets the size of a socket's receive buffer in bytes. Root in a user namespace gets at most
/// `net.core.rmem_max`.
fn set_receive_buffer(socket: &impl AsFd, bytes: usize) -> nix::Result<()> {
    setsockopt(socket, RcvBufForce, &bytes).or_else(|_| setsockopt(socket, RcvBuf, &bytes))
}
