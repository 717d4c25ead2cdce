//! Child process that was not started with the runtime's own `Command`.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

/// Child process. Dropping it kills the process and waits for its end.
#[derive(Debug)]
pub struct Process {
    id: Pid,
    /// Exit status. `None` until the process has ended and was waited for.
    status: Option<WaitStatus>,
}

impl Process {
    /// Creates the handle of a child process for which nothing else waits.
    pub const fn new(id: Pid) -> Self {
        Self { id, status: None }
    }

    /// Returns the process ID. `None` once the process has ended.
    pub fn id(&self) -> Option<u32> {
        self.status
            .is_none()
            .then(|| self.id.as_raw().unsigned_abs())
    }

    /// Sends `SIGKILL` to the process.
    pub fn kill(&self) {
        if self.status.is_none() {
            // The process ID is not reused until the process is waited for.
            let _ = kill(self.id, Signal::SIGKILL);
        }
    }

    /// Waits for the end of the process. `None` if its exit status cannot be determined.
    pub async fn wait(&mut self) -> Option<WaitStatus> {
        let mut changes = signal(SignalKind::child()).ok()?;
        loop {
            if let Some(status) = self.poll() {
                return Some(status);
            }
            changes.recv().await?;
        }
    }

    fn poll(&mut self) -> Option<WaitStatus> {
        if self.status.is_none() {
            self.status = match waitpid(self.id, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => None,
                Ok(status) => Some(status),
                // The process was waited for elsewhere.
                Err(_) => Some(WaitStatus::Exited(self.id, 0)),
            };
        }
        self.status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        while self.status.is_none() {
            self.status = match waitpid(self.id, None) {
                Err(Errno::EINTR) => None,
                Ok(status) => Some(status),
                Err(_) => Some(WaitStatus::Exited(self.id, 0)),
            };
        }
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

    #[test]
    fn process_dropped_has_ended() {
        let process = sleeper();
        let id = process.id.as_raw();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    }
}
