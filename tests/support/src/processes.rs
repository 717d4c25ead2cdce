//! Processes held by pidfds, which become readable when a process ends, and processes of a session,
//! which outlive their parents.

use std::fs;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd as _;

/// Maximum time until a killed process has ended, on a busy machine.
const MAX_END_TIME: Duration = Duration::from_secs(20);

/// A process held by a pidfd, so that its PID is not reused unnoticed.
pub struct HeldProcess(pub OwnedFd);

impl HeldProcess {
    /// Opens the pidfd of a running process.
    pub fn new(process: i32) -> Self {
        // SAFETY: the call takes only numbers and returns a new descriptor.
        let opened = unsafe {
            let opened = nix::libc::syscall(nix::libc::SYS_pidfd_open, process, 0);
            assert!(opened >= 0, "{process}: {}", Errno::last());
            OwnedFd::from_raw_fd(i32::try_from(opened).expect("a descriptor is a small number"))
        };
        Self(opened)
    }

    /// Waits until the process has ended.
    pub fn wait_for_end(&self) {
        let timeout = PollTimeout::try_from(MAX_END_TIME).expect("a short wait");
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut polled, timeout) {
                Ok(1) => return,
                Ok(_) => panic!("the process still runs"),
                Err(Errno::EINTR) => {}
                Err(errno) => panic!("{errno}"),
            }
        }
    }

    /// Waits asynchronously until the process has ended.
    pub async fn wait_for_end_async(self) {
        // SAFETY: the descriptor is open until the wait is over.
        let ended = unsafe { tokio::io::unix::AsyncFd::register(self.0) };
        let ended = ended.map_err(std::io::Error::from).expect("a runtime");
        let within = tokio::time::timeout(MAX_END_TIME, ended.readable()).await;
        drop(within.expect("the process still runs").expect("a runtime"));
    }
}

/// Returns the PIDs and names of the running processes of a session.
pub fn session_processes(session: i32) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("/proc can be read");
    entries
        .filter_map(|entry| {
            let stat = fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
            // `PID (NAME) STATE PARENT GROUP SESSION …`; a name may contain any character.
            let (name, rest) = stat.rsplit_once(") ")?;
            let mut rest = rest.split(' ');
            let state = rest.next()?;
            let session_of_process: i32 = rest.nth(2)?.parse().ok()?;
            // A zombie does not run.
            (session_of_process == session && state != "Z" && state != "X").then(|| name.to_owned())
        })
        .collect()
}

/// Whether a process is QEMU, starting or running.
pub fn is_qemu(process: i32) -> bool {
    fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.starts_with("qemu"))
}
