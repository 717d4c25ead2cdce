//! Opens pseudo-terminals for programs: one descriptor for the program, one for the agent.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::stat::Mode;

use svclab_model::protocol::stream::TerminalSize;

nix::ioctl_write_ptr_bad!(set_size, nix::libc::TIOCSWINSZ, nix::libc::winsize);

/// Opens a pseudo-terminal of the given size. Returns the master and the slave side.
///
/// # Errors
///
/// When the kernel's limit of terminals is reached.
pub(crate) fn open_pair(size: TerminalSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname_r(&master)?;
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let slave = open(name.as_str(), flags, Mode::empty())?;
    let ours: OwnedFd = master.into();
    resize(&ours, size)?;
    Ok((ours, slave))
}

/// Sets the size of a terminal.
///
/// # Errors
///
/// When the descriptor is not a terminal.
pub(crate) fn resize(terminal: &impl AsFd, size: TerminalSize) -> io::Result<()> {
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
