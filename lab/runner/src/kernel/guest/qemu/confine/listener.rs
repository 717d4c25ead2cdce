//! Answers an `openat` of a confined process in place of the kernel: the process gets a
//! descriptor that it could not open itself.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::libc::{
    self, SECCOMP_ADDFD_FLAG_SEND, SECCOMP_USER_NOTIF_FLAG_CONTINUE, seccomp_data, seccomp_notif,
    seccomp_notif_addfd, seccomp_notif_resp,
};
use svclab_agent::poll;
use tokio::io::unix::AsyncFd;

mod request {
    use nix::libc::{seccomp_notif, seccomp_notif_addfd, seccomp_notif_resp};

    // Linux v6.12, `include/uapi/linux/seccomp.h`.
    nix::ioctl_readwrite!(receive, b'!', 0, seccomp_notif);
    nix::ioctl_readwrite!(send, b'!', 1, seccomp_notif_resp);
    nix::ioctl_write_ptr!(add_descriptor, b'!', 3, seccomp_notif_addfd);
}

const EMPTY_CALL: seccomp_notif = seccomp_notif {
    id: 0,
    pid: 0,
    flags: 0,
    data: seccomp_data {
        nr: 0,
        arch: 0,
        instruction_pointer: 0,
        args: [0; 6],
    },
};

/// Receives each `openat` of a confined process with exactly `O_RDWR`. While this exists, such
/// a call waits for an answer; afterwards it ends with `ENOSYS`.
#[derive(Debug)]
pub(crate) struct Listener(AsyncFd<OwnedFd>);

/// Descriptor that a process got for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenResult {
    /// Descriptor of the other file.
    Replaced,
    /// Descriptor from the kernel. This process may not read the memory of the other one
    /// (`CAP_SYS_PTRACE`), or the kernel adds no descriptors (before 5.14).
    ByKernel,
}

/// Comparison of the path that a process opens with another path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathMatch {
    Same,
    Other,
    /// The memory of the process cannot be read.
    Unreadable,
}

impl Listener {
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        Ok(Self(poll::register(descriptor)?))
    }

    /// Waits until the process opens `path`, and has the call return a descriptor of `file`
    /// with the access that this process has.
    pub(crate) async fn replace(self, path: &Path, file: &File) -> io::Result<OpenResult> {
        let path = path.as_os_str().as_bytes();
        loop {
            let call = self.receive().await?;
            match compare_path(&call, path) {
                PathMatch::Same if self.add_descriptor(call.id, file).is_ok() => {
                    return Ok(OpenResult::Replaced);
                }
                PathMatch::Other => self.let_kernel_open(call.id)?,
                PathMatch::Same | PathMatch::Unreadable => {
                    self.let_kernel_open(call.id)?;
                    return Ok(OpenResult::ByKernel);
                }
            }
        }
    }

    async fn receive(&self) -> io::Result<seccomp_notif> {
        loop {
            let mut ready = self.0.readable().await?;
            if ready.ready().is_read_closed() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut call = EMPTY_CALL;
            // SAFETY: the kernel fills in the structure, which outlives the call.
            match unsafe { request::receive(self.0.as_raw_fd(), &raw mut call) } {
                Ok(_) => return Ok(call),
                // A signal has ended the call.
                Err(Errno::ENOENT | Errno::EINTR) => ready.clear_ready(),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn add_descriptor(&self, id: u64, file: &File) -> nix::Result<()> {
        let added = seccomp_notif_addfd {
            id,
            flags: flag(SECCOMP_ADDFD_FLAG_SEND),
            srcfd: file.as_raw_fd().unsigned_abs(),
            newfd: 0,
            newfd_flags: libc::O_CLOEXEC.unsigned_abs(),
        };
        // SAFETY: the kernel reads the structure, which outlives the call.
        unsafe { request::add_descriptor(self.0.as_raw_fd(), &raw const added) }.map(drop)
    }

    fn let_kernel_open(&self, id: u64) -> io::Result<()> {
        let mut answer = seccomp_notif_resp {
            id,
            val: 0,
            error: 0,
            flags: flag(SECCOMP_USER_NOTIF_FLAG_CONTINUE),
        };
        // SAFETY: the kernel reads the structure, which outlives the call.
        match unsafe { request::send(self.0.as_raw_fd(), &raw mut answer) } {
            // A signal has ended the call meanwhile.
            Ok(_) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn compare_path(call: &seccomp_notif, path: &[u8]) -> PathMatch {
    match opened_path(call, path.len()) {
        Ok(opened) if opened == path => PathMatch::Same,
        Ok(_) => PathMatch::Other,
        Err(_) => PathMatch::Unreadable,
    }
}

/// Reads the path of an `openat`, of which at most `length` bytes and the null byte matter.
fn opened_path(call: &seccomp_notif, length: usize) -> io::Result<Vec<u8>> {
    let memory = File::open(format!("/proc/{}/mem", call.pid))?;
    let mut path = vec![0; length + 1];
    let read = memory.read_at(&mut path, call.data.args[1])?;
    path.truncate(read);
    if let Some(end) = path.iter().position(|byte| *byte == 0) {
        path.truncate(end);
    }
    Ok(path)
}

fn flag(flag: libc::c_ulong) -> u32 {
    u32::try_from(flag).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compare_path_reads_memory_of_the_process() {
        let opened = c"/memory/file";
        let mut call = EMPTY_CALL;
        call.pid = std::process::id();
        call.data.args[1] = opened.as_ptr() as u64;
        assert_eq!(compare_path(&call, b"/memory/file"), PathMatch::Same);
        for other in [&b"/memory"[..], b"/memory/files", b"/other"] {
            assert_eq!(compare_path(&call, other), PathMatch::Other);
        }
        // Nothing is mapped at address 0.
        call.data.args[1] = 0;
        assert_eq!(compare_path(&call, b"/memory/file"), PathMatch::Unreadable);
    }
}
