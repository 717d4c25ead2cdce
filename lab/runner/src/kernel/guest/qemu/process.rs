//! Child process that was not started with the runtime's own `Command`.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

/// Child process. Dropping it kills the process and waits for its end.
#[derive(Debug)]
pub(crate) struct Process {
    id: Pid,
    state: ProcessState,
}

#[derive(Debug, Clone, Copy)]
enum ProcessState {
    Running,
    /// The process was waited for. `None` if its exit status cannot be determined.
    Ended(Option<WaitStatus>),
}

impl Process {
    /// Creates the handle of a child process for which nothing else waits.
    pub(crate) const fn new(id: Pid) -> Self {
        Self {
            id,
            state: ProcessState::Running,
        }
    }

    /// Returns the process ID. `None` once the process has ended.
    pub(crate) fn id(&self) -> Option<u32> {
        matches!(self.state, ProcessState::Running).then(|| self.id.as_raw().unsigned_abs())
    }

    /// Sends `SIGKILL` to the process.
    pub(crate) fn kill(&self) {
        if let ProcessState::Running = self.state {
            // The process ID is not reused until the process is waited for.
            let _ = kill(self.id, Signal::SIGKILL);
        }
    }

    /// Waits for the end of the process. `None` if its exit status cannot be determined.
    pub(crate) async fn wait(&mut self) -> Option<WaitStatus> {
        let mut changes = signal(SignalKind::child()).ok()?;
        loop {
            if let ProcessState::Ended(status) = self.poll(Some(WaitPidFlag::WNOHANG)) {
                return status;
            }
            changes.recv().await?;
        }
    }

    fn poll(&mut self, flags: Option<WaitPidFlag>) -> ProcessState {
        if let ProcessState::Running = self.state {
            self.state = match waitpid(self.id, flags) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => ProcessState::Running,
                Ok(status) => ProcessState::Ended(Some(status)),
                // The process was waited for elsewhere.
                Err(_) => ProcessState::Ended(None),
            };
        }
        self.state
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        while let ProcessState::Running = self.poll(None) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a child that sleeps until it is killed.
    fn sleeper() -> Process {
        let child = std::process::Command::new("sleep").arg("1000").spawn();
        let id = i32::try_from(child.unwrap().id()).unwrap();
        Process::new(Pid::from_raw(id))
    }

    #[tokio::test]
    async fn process_killed_reports_its_signal() {
        let mut process = sleeper();
        let id = process.id().unwrap();
        process.kill();
        let status = process.wait().await;
        let expected = Pid::from_raw(id.cast_signed());
        assert_eq!(
            status,
            Some(WaitStatus::Signaled(expected, Signal::SIGKILL, false))
        );
        assert_eq!(process.id(), None);
    }

    #[tokio::test]
    async fn process_waited_for_elsewhere_has_no_status() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = i32::try_from(child.id()).unwrap();
        assert!(child.wait().unwrap().success());
        let mut process = Process::new(Pid::from_raw(id));
        assert_eq!(process.wait().await, None);
        assert_eq!(process.id(), None);
    }

    #[test]
    fn process_dropped_has_ended() {
        let process = sleeper();
        let id = process.id.as_raw();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    }
}
