//! System calls and paths for a process that may not allocate memory.

use std::io::Write as _;
use std::os::fd::RawFd;

use nix::errno::Errno;
use nix::libc::{self, c_long};

/// Makes a system call with at most three arguments, which are numbers or addresses that outlive
/// it.
pub(super) fn call(number: c_long, arguments: [c_long; 3]) -> nix::Result<()> {
    let [first, second, third] = arguments;
    // SAFETY: the callers pass valid arguments of the system call.
    let result = unsafe { libc::syscall(number, first, second, third) };
    Errno::result(result).map(drop)
}

/// Returns the path of an open descriptor, without allocation.
pub(super) fn path_of(descriptor: RawFd, buffer: &mut [u8; 40]) -> &std::ffi::CStr {
    let mut rest = &mut buffer[..];
    let _ = write!(rest, "/proc/self/fd/{descriptor}\0");
    std::ffi::CStr::from_bytes_until_nul(buffer).unwrap_or(c"")
}
