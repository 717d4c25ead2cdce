//! Terminals for programs: a pair of descriptors, one for the program and one for
//! who reads and writes on its behalf.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::stat::Mode;

use svclab_model::protocol::stream::Size;

nix::ioctl_write_ptr_bad!(set_size, nix::libc::TIOCSWINSZ, nix::libc::winsize);

/// A terminal of that size: our end, and the program's.
///
/// # Errors
///
/// When the kernel gives no more of them.
pub fn open_pair(size: Size) -> io::Result<(OwnedFd, OwnedFd)> {
    let ours = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname_r(&ours)?;
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let theirs = open(name.as_str(), flags, Mode::empty())?;
    let ours: OwnedFd = ours.into();
    resize(&ours, size)?;
    Ok((ours, theirs))
}

/// Tells a terminal how large it is.
///
/// # Errors
///
/// When the descriptor is none of a terminal.
pub fn resize(terminal: &impl AsFd, size: Size) -> io::Result<()> {
    let size = nix::libc::winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the kernel reads the structure, which outlives the call.
    unsafe { set_size(terminal.as_fd().as_raw_fd(), &raw const size) }?;
    Ok(())
}
