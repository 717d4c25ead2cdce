//! Processes held by pidfds, which become readable when a process ends.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use svclab_test_support::processes::{descendants, open_pidfd};

/// Maximum time for the kernel to clean up a process; long enough for a busy machine.
const MAX_CLEANUP_TIME: Duration = Duration::from_secs(1);

/// A process and its descendants, the top process first.
pub struct Processes {
    processes: Vec<(i32, OwnedFd)>,
}

impl Processes {
    /// Returns the current descendants of `top`. The top process must live during this call.
    pub fn below(top: u32) -> Self {
        let top = i32::try_from(top).expect("the PID fits");
        let processes = std::iter::once(top)
            .chain(descendants(top))
            .filter_map(|pid| Some((pid, open_pidfd(pid)?)));
        Self {
            processes: processes.collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.processes.len()
    }

    /// Returns the link target of a descriptor, such as `net:[4026532281]`. Searches from the
    /// lowest process up: the process below the agent holds the namespaces for its programs.
    pub fn lowest_descriptor_target(&self, descriptor: i32) -> String {
        let target =
            |(pid, _): &(i32, OwnedFd)| fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok();
        let target = self.processes.iter().rev().find_map(target);
        target.expect("an open descriptor").display().to_string()
    }

    pub fn kill(&self, index: usize) {
        self.signal(index, nix::libc::SIGKILL);
    }

    /// Sends a signal to the agent: the topmost process that is the first of a PID namespace. Its
    /// programs are below it.
    pub fn signal_agent(&self, signal: i32) {
        let is_first = |(pid, _): &(i32, OwnedFd)| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            numbers.is_some_and(|numbers| {
                let numbers: Vec<&str> = numbers.split_whitespace().collect();
                numbers.len() > 1 && numbers.last() == Some(&"1")
            })
        };
        let agent = self.processes.iter().position(is_first).expect("an agent");
        self.signal(agent, signal);
    }

    fn signal(&self, index: usize, signal: i32) {
        use std::os::fd::AsRawFd as _;
        // SAFETY: the descriptor is open, and the signal information may be null.
        let sent = unsafe {
            nix::libc::syscall(
                nix::libc::SYS_pidfd_send_signal,
                self.processes[index].1.as_raw_fd(),
                signal,
                std::ptr::null::<nix::libc::siginfo_t>(),
                0,
            )
        };
        assert_eq!(sent, 0, "{}", std::io::Error::last_os_error());
    }

    /// Asserts that all processes end within [`MAX_CLEANUP_TIME`].
    pub fn assert_ended(&self) {
        let deadline = Instant::now() + MAX_CLEANUP_TIME;
        for (pid, process) in &self.processes {
            assert!(
                wait_until_readable(process, deadline),
                "{pid} still runs: {}",
                fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()
            );
        }
    }
}

/// Waits until the descriptor is readable or at its end. Returns false if the deadline passes.
pub fn wait_until_readable(descriptor: &impl AsFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let milliseconds = u16::try_from(left.as_millis()).expect("a short wait");
        let mut polled = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, milliseconds) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => panic!("{errno}"),
        }
    }
}
