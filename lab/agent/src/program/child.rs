//! Manages a started program: its streams and its exit status.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Output};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use crate::runtime::poll;
use crate::runtime::profile::ProgramSpan;
use crate::sandbox::reaper;

/// Bytes per read.
const CHUNK_BYTES: usize = 16 << 10;

/// Program that the agent started. Dropping the value kills the program.
#[derive(Debug)]
pub(crate) struct Child {
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
    process: Pid,
    /// Readable once the program has exited.
    descriptor: AsyncFd<OwnedFd>,
    status: Option<ExitStatus>,
    profiled: Option<ProgramSpan>,
}

impl Child {
    /// Creates a handle from a process ID, a pidfd and the agent's ends of the process's streams.
    pub(crate) fn new(
        process: Pid,
        descriptor: OwnedFd,
        streams: Option<[OwnedFd; 3]>,
        profiled: Option<ProgramSpan>,
    ) -> io::Result<Self> {
        let (mut stdin, mut stdout, mut stderr) = (None, None, None);
        reaper::reap();
        let mut child = Self {
            stdin: None,
            stdout: None,
            stderr: None,
            process,
            descriptor: poll::register(descriptor)?,
            status: None,
            profiled,
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

    /// Returns the process ID, or `None` once the exit status was collected.
    pub(crate) fn id(&self) -> Option<Pid> {
        self.status.is_none().then_some(self.process)
    }

    /// Waits until the program exits.
    ///
    /// # Errors
    ///
    /// When the exit status was collected elsewhere.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.stdin = None;
        loop {
            if let Some(status) = self.status {
                return Ok(status);
            }
            let mut ready = self.descriptor.readable().await?;
            ready.clear_ready();
            drop(ready);
            self.try_wait()?;
        }
    }

    /// Waits until the program exits and reads all that it printed until then. Processes that the
    /// program left behind may keep the streams open; this function does not wait for them.
    ///
    /// # Errors
    ///
    /// When reading or waiting fails. Returns `Ok(Err(TooMuchOutputError))` when the program prints
    /// more than `max_bytes` bytes.
    pub(crate) async fn wait_with_output(
        mut self,
        max_bytes: u64,
    ) -> io::Result<Result<Output, TooMuchOutputError>> {
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let remaining = Cell::new(max_bytes.saturating_add(1));
        let (mut stdout, mut stderr) = (
            OutputReader::new(stdout, &remaining),
            OutputReader::new(stderr, &remaining),
        );
        let status = {
            let reading = async { tokio::try_join!(stdout.read(), stderr.read()).map(drop) };
            let is_whole = tokio::select! {
                status = self.wait() => Err(status?),
                read = reading => match read {
                    Err(_) if remaining.get() == 0 => return Ok(Err(TooMuchOutputError)),
                    read => Ok(read?),
                },
            };
            match is_whole {
                Err(status) => status,
                Ok(()) => self.wait().await?,
            }
        };
        stdout.read_now();
        stderr.read_now();
        if remaining.get() == 0 {
            return Ok(Err(TooMuchOutputError));
        }
        Ok(Ok(Output {
            status,
            stdout: stdout.text,
            stderr: stderr.text,
        }))
    }

    /// Stores the exit status if the program has exited.
    fn try_wait(&mut self) -> io::Result<()> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
        let collect = || waitid(Id::Pid(self.process), flags);
        let status = match ProgramSpan::record(self.profiled.as_ref(), collect) {
            Ok(WaitStatus::Exited(_, code)) => ExitStatus::from_raw((code & 0xff) << 8),
            Ok(WaitStatus::Signaled(_, signal, _)) => ExitStatus::from_raw(signal as i32),
            Ok(_) | Err(Errno::EINTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        self.status = Some(status);
        Ok(())
    }

    pub(crate) fn kill(&self) {
        if self.status.is_none() {
            let _ = kill(self.process, Signal::SIGKILL);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.status.is_some() || self.try_wait().is_err() || self.status.is_some() {
            return;
        }
        self.kill();
        reaper::register(self.process);
    }
}

/// Error: a program printed more than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMuchOutputError;

/// Output stream of a program, and the text read from it.
struct OutputReader<'l, S> {
    stream: Option<S>,
    text: Vec<u8>,
    /// Number of bytes that all streams may still print, plus 1. 0 means that the limit is
    /// exceeded.
    remaining: &'l Cell<u64>,
}

impl<'l, S: AsyncRead + AsFd + Unpin> OutputReader<'l, S> {
    fn new(stream: Option<S>, remaining: &'l Cell<u64>) -> Self {
        Self {
            stream,
            text: Vec::new(),
            remaining,
        }
    }

    /// Reads to the end of the stream. Returns an error when the limit is exceeded.
    async fn read(&mut self) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        loop {
            let length = stream.read(&mut chunk).await?;
            if length == 0 {
                return Ok(());
            }
            if !append_within_limit(&mut self.text, &chunk[..length], self.remaining) {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
    }

    /// Reads the bytes that are available. The runtime has set the stream to non-blocking mode.
    fn read_now(&mut self) {
        let mut chunk = [0; CHUNK_BYTES];
        let Some(stream) = &self.stream else {
            return;
        };
        while let Ok(length @ 1..) = nix::unistd::read(stream, &mut chunk) {
            if !append_within_limit(&mut self.text, &chunk[..length], self.remaining) {
                return;
            }
        }
    }
}

/// Appends a piece if the limit permits. Returns whether the limit permits more.
fn append_within_limit(text: &mut Vec<u8>, piece: &[u8], left: &Cell<u64>) -> bool {
    let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
    left.set(left.get().saturating_sub(length));
    if left.get() > 0 {
        text.extend_from_slice(piece);
    }
    left.get() > 0
}
