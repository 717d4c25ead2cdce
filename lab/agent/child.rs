//! A program that runs: its streams, and its end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Output};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::{orphans, poll};

/// A program that the agent started. It is killed when this is dropped.
#[derive(Debug)]
pub struct Child {
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
    process: Pid,
    /// Readable when it has ended.
    descriptor: AsyncFd<OwnedFd>,
    ended: Option<ExitStatus>,
}

impl Child {
    /// A process of that number and descriptor, with the agent's ends of its streams.
    ///
    /// # Errors
    ///
    /// When a descriptor cannot be waited for.
    pub fn new(
        process: Pid,
        descriptor: OwnedFd,
        streams: Option<[OwnedFd; 3]>,
    ) -> io::Result<Self> {
        let (mut stdin, mut stdout, mut stderr) = (None, None, None);
        orphans::reap();
        let mut child = Self {
            stdin: None,
            stdout: None,
            stderr: None,
            process,
            descriptor: poll::register(descriptor)?,
            ended: None,
        };
        if let Some([input, output, errors]) = streams {
            stdin = Some(ChildStdin::from_std(input.into())?);
            stdout = Some(ChildStdout::from_std(output.into())?);
            stderr = Some(ChildStderr::from_std(errors.into())?);
        }
        child.stdin = stdin.take();
        child.stdout = stdout.take();
        child.stderr = stderr.take();
        Ok(child)
    }

    /// Its number; none when it has ended and was waited for.
    pub fn id(&self) -> Option<Pid> {
        self.ended.is_none().then_some(self.process)
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// When somebody else has waited for it.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.stdin = None;
        loop {
            if let Some(status) = self.ended {
                return Ok(status);
            }
            let mut ready = self.descriptor.readable().await?;
            ready.clear_ready();
            drop(ready);
            self.look()?;
        }
    }

    /// Reads what it prints until it, and whoever has its streams, has ended.
    ///
    /// # Errors
    ///
    /// What reading or waiting says.
    pub async fn wait_with_output(mut self) -> io::Result<Output> {
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let (status, stdout, stderr) = tokio::try_join!(self.wait(), read(stdout), read(stderr))?;
        Ok(Output {
            status,
            stdout,
            stderr,
        })
    }

    /// Takes note of its end, if it has ended.
    fn look(&mut self) -> io::Result<()> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
        let status = match waitid(Id::Pid(self.process), flags) {
            Ok(WaitStatus::Exited(_, code)) => ExitStatus::from_raw((code & 0xff) << 8),
            Ok(WaitStatus::Signaled(_, signal, _)) => ExitStatus::from_raw(signal as i32),
            Ok(_) | Err(Errno::EINTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        self.ended = Some(status);
        Ok(())
    }

    pub fn kill(&self) {
        if self.ended.is_none() {
            let _ = kill(self.process, Signal::SIGKILL);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended.is_some() || self.look().is_err() || self.ended.is_some() {
            return;
        }
        self.kill();
        orphans::abandon(self.process);
    }
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut read).await?;
    }
    Ok(read)
}
