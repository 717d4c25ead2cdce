//! A running machine: QEMU as a child process, and what leads to it.

use std::fs;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use nix::unistd::geteuid;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::confine::confine;
use super::console::{Tail, death};
use super::error::GuestError;
use super::qemu::{self, Accel, Beginning, Machine, Memory, Qemu};
use super::qmp::Qmp;

/// How long a QEMU that closes its streams may take to end.
const ENDING: Duration = Duration::from_secs(2);

/// QEMU's process. Dropping it ends it and waits for its end, so that nothing of
/// it is left when svclab itself ends.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It has none once it was waited for.
        let Some(id) = self.0.id().and_then(|id| i32::try_from(id).ok()) else {
            return;
        };
        if self.0.start_kill().is_ok() {
            let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            let _ = waitid(Id::Pid(Pid::from_raw(id)), ended);
        }
    }
}
/// What QEMU keeps of the environment.
const ENVIRONMENT: [&str; 2] = ["PATH", "LD_LIBRARY_PATH"];

/// A machine that runs. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    child: Process,
    console: Tail,
    errors: Tail,
    reading: JoinHandle<()>,
    /// The way to the agent.
    pub agent: UnixStream,
    control: UnixStream,
}

impl Running {
    /// Starts QEMU with so many MiB of memory; it inherits the descriptors that it
    /// is `handed`.
    ///
    /// # Errors
    ///
    /// When the system gives no process or no sockets. A QEMU that starts and
    /// ends at once shows as the end of its streams.
    pub fn start(
        qemu: &Qemu,
        accel: Accel,
        memory: (Memory, u32),
        begins: Beginning,
        handed: &[BorrowedFd<'_>],
    ) -> Result<Self, GuestError> {
        let unstarted = |source: io::Error| GuestError::Start {
            program: qemu.path.clone(),
            source,
        };
        let (memory, size) = memory;
        let (agent, far_agent) = pair().map_err(unstarted)?;
        let (control, far_control) = pair().map_err(unstarted)?;
        let machine = Machine {
            accel,
            memory,
            size,
            begins,
            agent: far_agent.as_raw_fd(),
            control: far_control.as_raw_fd(),
        };
        let inherited: Vec<RawFd> = [far_agent.as_fd(), far_control.as_fd()]
            .iter()
            .chain(handed)
            .map(AsRawFd::as_raw_fd)
            .collect();
        let privileges = needs_privileges(&machine);
        let mut command = Command::new(&qemu.path);
        command
            .args(qemu::arguments(qemu, &machine))
            // Where it may find its libraries; all else that the caller's
            // environment holds is none of a guest's business.
            .env_clear()
            .envs(ENVIRONMENT.iter().filter_map(|name| {
                let value = std::env::var_os(name)?;
                Some((name, value))
            }))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is the front end's to act on.
            .process_group(0)
            .kill_on_drop(true);
        // SAFETY: between fork and exec only system calls are made, which may
        // be made there.
        unsafe {
            command.pre_exec(move || {
                confine(privileges)?;
                for fd in &inherited {
                    keep_open(*fd)?;
                }
                Ok(())
            });
        }
        let mut child = command.spawn().map_err(unstarted)?;
        tracing::debug!("QEMU runs process={}", child.id().unwrap_or_default());
        let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
            unreachable!("both streams were asked for");
        };
        let (console, errors) = (Tail::default(), Tail::default());
        let (to_console, to_errors) = (console.clone(), errors.clone());
        let reading = tokio::spawn(async move {
            tokio::join!(to_console.follow(out), to_errors.follow(err));
        });
        Ok(Self {
            child: Process(child),
            console,
            errors,
            reading,
            agent: UnixStream::from_std(agent).map_err(unstarted)?,
            control: UnixStream::from_std(control).map_err(unstarted)?,
        })
    }

    /// QEMU's process.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.child.0.id()
    }

    /// The way to QEMU itself.
    ///
    /// # Errors
    ///
    /// When QEMU is gone.
    pub async fn control(&mut self) -> Result<Qmp<'_>, GuestError> {
        Qmp::new(&mut self.control).await
    }

    /// What it said so far.
    #[must_use]
    pub fn said(&self) -> String {
        said(&self.console, &self.errors)
    }

    /// What became of it, now that it does not do what it should: how it ended,
    /// or `otherwise` if it has not. It is ended after that.
    pub async fn lost(&mut self, kernel: &str, otherwise: GuestError) -> GuestError {
        let ended = tokio::time::timeout(ENDING, self.child.0.wait()).await;
        let Ok(status) = ended else {
            self.end().await;
            return otherwise;
        };
        // What it wrote last may still be in the pipe.
        let _ = (&mut self.reading).await;
        let said = self.said();
        GuestError::Died {
            kernel: kernel.to_owned(),
            how: how(status.ok(), &said),
            said,
        }
    }

    /// Ends it and waits until it is no more.
    pub async fn end(&mut self) {
        let _ = self.child.0.kill().await;
    }

    /// Parts with it: the way to the agent, and what tells of the machine's end
    /// and brings it about.
    pub fn into_agent(
        mut self,
    ) -> (
        UnixStream,
        impl Future<Output = (String, String)> + Send + 'static,
        oneshot::Sender<()>,
    ) {
        let (kill, killed) = oneshot::channel::<()>();
        let obituary = async move {
            let status = tokio::select! {
                status = self.child.0.wait() => status,
                _ = killed => {
                    let _ = self.child.0.start_kill();
                    self.child.0.wait().await
                }
            };
            let _ = self.reading.await;
            let said = said(&self.console, &self.errors);
            (how(status.ok(), &said), said)
        };
        (self.agent, obituary, kill)
    }
}

/// Whether QEMU could open its files only by being root: they are somebody
/// else's, as in the cache of the user who became root.
fn needs_privileges(machine: &Machine) -> bool {
    let (Memory::Kept(memory) | Memory::CopyOf(memory)) = &machine.memory;
    let booted: &[&PathBuf] = match &machine.begins {
        Beginning::Boot { kernel, initramfs } => &[kernel, initramfs],
        Beginning::GoOn => &[],
    };
    let own = geteuid().as_raw();
    booted
        .iter()
        .copied()
        .chain([memory])
        .any(|file| fs::metadata(file).is_ok_and(|found| found.uid() != own))
}

/// A connected pair: our end, and the end that QEMU inherits.
fn pair() -> io::Result<(std::os::unix::net::UnixStream, OwnedFd)> {
    let (near, far) = std::os::unix::net::UnixStream::pair()?;
    near.set_nonblocking(true)?;
    Ok((near, far.into()))
}

/// Makes a descriptor outlive the start of another program.
fn keep_open(fd: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor is open until after the start: its owner waits
    // for it.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(())
}

fn said(console: &Tail, errors: &Tail) -> String {
    let parts = [console.text(), errors.text()];
    let parts: Vec<&str> = parts
        .iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("\n")
}

fn how(status: Option<ExitStatus>, said: &str) -> String {
    if let Some(death) = death(said) {
        return death;
    }
    match status {
        Some(status) => match (status.code(), status.signal()) {
            (Some(0), _) => "the guest powered off".to_owned(),
            (Some(code), _) => format!("QEMU ended with status {code}"),
            (None, Some(signal)) => format!("QEMU was ended by signal {signal}"),
            (None, None) => "QEMU ended".to_owned(),
        },
        None => "QEMU ended".to_owned(),
    }
}
