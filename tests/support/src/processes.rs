//! Descendants of a process, processes of a session, which outlive their parents, and pidfds, which
//! become readable when a process ends.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Maximum time until a killed process has ended, on a busy machine.
const MAX_END_TIME: Duration = Duration::from_secs(20);

/// Returns the children of a process, of all its threads.
pub fn children(process: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let lists = tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            let numbers = list.split_whitespace().map(str::to_owned);
            numbers.collect::<Vec<_>>()
        })
        .filter_map(|child| child.parse().ok())
        .collect()
}

/// Returns all descendants of a process, the nearest first.
pub fn descendants(process: i32) -> Vec<i32> {
    let mut processes = children(process);
    let mut index = 0;
    while let Some(next) = processes.get(index) {
        processes.extend(children(*next));
        index += 1;
    }
    processes
}

/// Returns the PIDs and names of the running processes of a session.
pub fn session_processes(session: i32) -> BTreeMap<i32, String> {
    let entries = fs::read_dir("/proc").expect("/proc can be read");
    entries
        .filter_map(|entry| {
            let stat = fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
            // `PID (NAME) STATE PARENT GROUP SESSION …`; a name may contain any character.
            let (process, rest) = stat.split_once(" (")?;
            let (name, rest) = rest.rsplit_once(") ")?;
            let mut rest = rest.split(' ');
            let state = rest.next()?;
            let session_of_process: i32 = rest.nth(2)?.parse().ok()?;
            // A zombie does not run.
            let runs = session_of_process == session && state != "Z" && state != "X";
            runs.then_some((process.parse().ok()?, name.to_owned()))
        })
        .collect()
}

/// Waits until all processes of a session have ended. Returns those that run after the deadline.
pub fn wait_for_session_end(session: i32, deadline: Instant) -> BTreeMap<i32, String> {
    loop {
        let processes = session_processes(session);
        for process in processes.keys() {
            let Some(watched) = open_pidfd(*process) else {
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut polled = [PollFd::new(watched.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut polled, left);
        }
        if processes.is_empty() || Instant::now() >= deadline {
            return session_processes(session);
        }
    }
}

/// Opens a pidfd; `None` if the process has ended.
pub fn open_pidfd(process: i32) -> Option<OwnedFd> {
    // SAFETY: the call takes two integers and returns a new descriptor or -1.
    let descriptor = unsafe { nix::libc::syscall(nix::libc::SYS_pidfd_open, process, 0) };
    let descriptor = i32::try_from(descriptor).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the descriptor is new and has no other owner.
    Some(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A process held by a pidfd, so that its PID is not reused unnoticed.
pub struct HeldProcess(pub OwnedFd);

impl HeldProcess {
    /// Opens the pidfd of a running process.
    pub fn new(process: i32) -> Self {
        Self(open_pidfd(process).unwrap_or_else(|| panic!("{process}: {}", Errno::last())))
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

/// Whether a process is QEMU, starting or running.
pub fn is_qemu(process: i32) -> bool {
    fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.starts_with("qemu"))
}
