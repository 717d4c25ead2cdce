//! Running machine: QEMU as a child process, with the connections to it.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sys::wait::WaitStatus;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::confine::{self, Access, Listener};
use super::console::{OutputTail, describe_end};
use super::process::Process;
use super::qmp::Qmp;
use crate::kernel::error::guest::GuestError;
use crate::kernel::guest::qemu::{self, Accel, Machine, MemorySource, Qemu, StartMode};

/// Maximum time for QEMU to end after it has closed its streams.
const MAX_EXIT: Duration = Duration::from_secs(2);

/// Running machine. Dropping it ends the machine.
#[derive(Debug)]
pub(crate) struct RunningMachine {
    process: Process,
    console: OutputTail,
    errors: OutputTail,
    reading: JoinHandle<()>,
    pub agent: UnixStream,
    control: UnixStream,
    listener: Option<Listener>,
}

impl RunningMachine {
    /// Starts QEMU. `memory` is the memory with its size in MiB. QEMU inherits the descriptors in
    /// `inherited`. The end of its streams shows that QEMU ended immediately after its start.
    pub(crate) fn start(
        qemu: &Qemu,
        accel: Accel,
        memory: (MemorySource, u32),
        start: StartMode,
        inherited: &[BorrowedFd<'_>],
    ) -> Result<Self, GuestError> {
        let unstarted = |source: io::Error| GuestError::Spawn {
            program: qemu.path.clone(),
            source,
        };
        let (memory, size) = memory;
        let (agent, far_agent) = socket_pair().map_err(unstarted)?;
        let (control, far_control) = socket_pair().map_err(unstarted)?;
        let machine = Machine {
            accel,
            memory,
            memory_mib: size,
            start,
            agent: far_agent.as_raw_fd(),
            control: far_control.as_raw_fd(),
        };
        let descriptors: Vec<BorrowedFd<'_>> = [far_agent.as_fd(), far_control.as_fd()]
            .into_iter()
            .chain(inherited.iter().copied())
            .collect();
        let access = Access {
            descriptors: &descriptors,
            kvm: accel == Accel::Kvm,
            can_write: matches!(machine.memory, MemorySource::Kept(_)),
            asks: matches!(machine.memory, MemorySource::CopyOf(_)),
        };
        let program = std::fs::canonicalize(&qemu.path).map_err(unstarted)?;
        let confined = confine::spawn(&program, &qemu::arguments(qemu, &machine), &access)?;
        let process = confined.process;
        tracing::debug!("QEMU runs process={}", process.id().unwrap_or_default());
        if !confined.disallowed.is_empty() {
            tracing::info!("QEMU runs without {}", confined.disallowed);
        }
        let (out, err) = (confined.stdout, confined.stderr);
        let (console, errors) = (OutputTail::default(), OutputTail::default());
        let (to_console, to_errors) = (console.clone(), errors.clone());
        let reading = tokio::spawn(async move {
            tokio::join!(to_console.follow(out), to_errors.follow(err));
        });
        Ok(Self {
            process,
            console,
            errors,
            reading,
            agent: UnixStream::from_std(agent).map_err(unstarted)?,
            control: UnixStream::from_std(control).map_err(unstarted)?,
            listener: confined.listener,
        })
    }

    /// Returns the process ID of QEMU. `None` once it has ended.
    pub(crate) fn process(&self) -> Option<u32> {
        self.process.id()
    }

    /// Connects to QEMU itself.
    pub(crate) async fn control(&mut self) -> Result<Qmp<'_>, GuestError> {
        Qmp::new(&mut self.control, self.process.id()).await
    }

    /// Takes the listener, which answers for files that QEMU opens to read and write.
    pub(crate) const fn take_listener(&mut self) -> Option<Listener> {
        self.listener.take()
    }

    /// Returns the end of the output so far.
    pub(crate) fn output(&self) -> String {
        combined_output(&self.console, &self.errors)
    }

    /// Returns the error of a machine that does not work: the description of its end, or
    /// `default_error` if it has not ended. Ends the machine.
    pub(crate) async fn loss_error(
        &mut self,
        kernel: &str,
        default_error: GuestError,
    ) -> GuestError {
        let exit = tokio::time::timeout(MAX_EXIT, self.process.wait()).await;
        let Ok(status) = exit else {
            self.end().await;
            return default_error;
        };
        // The last output may still be in the pipe.
        let _ = (&mut self.reading).await;
        let output = self.output();
        GuestError::Ended {
            kernel: kernel.to_owned(),
            cause: describe_exit(status, &output),
            output,
        }
    }

    /// Ends the machine and waits for its end.
    pub(crate) async fn end(&mut self) {
        self.process.kill();
        let _ = self.process.wait().await;
    }

    /// Splits the machine into three parts: the connection to the agent, a future that completes
    /// with the end of the machine, and a sender that ends the machine.
    pub(crate) fn into_agent(
        mut self,
    ) -> (
        UnixStream,
        impl Future<Output = (String, String)> + Send + 'static,
        oneshot::Sender<()>,
    ) {
        let (kill, killed) = oneshot::channel::<()>();
        let exit_info = async move {
            let status = tokio::select! {
                status = self.process.wait() => status,
                _ = killed => {
                    self.process.kill();
                    self.process.wait().await
                }
            };
            let _ = self.reading.await;
            let output = combined_output(&self.console, &self.errors);
            (describe_exit(status, &output), output)
        };
        (self.agent, exit_info, kill)
    }
}

/// Creates a connected pair of sockets: an end for this process, and an end that QEMU inherits.
fn socket_pair() -> io::Result<(std::os::unix::net::UnixStream, OwnedFd)> {
    let (near, far) = std::os::unix::net::UnixStream::pair()?;
    near.set_nonblocking(true)?;
    Ok((near, far.into()))
}

fn combined_output(console: &OutputTail, errors: &OutputTail) -> String {
    let parts = [console.text(), errors.text()];
    let parts: Vec<&str> = parts
        .iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("\n")
}

fn describe_exit(status: Option<WaitStatus>, output: &str) -> String {
    if let Some(cause) = describe_end(output) {
        return cause;
    }
    match status {
        Some(WaitStatus::Exited(_, 0)) => "the guest powered off".to_owned(),
        Some(WaitStatus::Exited(_, code)) => format!("QEMU exited with status {code}"),
        Some(WaitStatus::Signaled(_, signal, _)) => {
            format!("QEMU was killed by signal {}", signal as i32)
        }
        _ => "QEMU exited".to_owned(),
    }
}
