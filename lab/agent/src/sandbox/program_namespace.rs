//! Manages the PID namespace in which a lab's programs run. It has its own `/proc`. The agent has
//! no process ID there, so that programs cannot signal, trace or inspect the agent.
//!
//! A thread whose children belong to the room starts the programs. The agent's own PID namespace
//! belongs to a user namespace around the agent's. Therefore a thread that has left the PID
//! namespace for its children cannot return (Linux v6.12, `kernel/pid_namespace.c`,
//! `pidns_install`) and cannot start threads (`kernel/fork.c`, `copy_process`).

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pause, pipe2};

use crate::sandbox::rootfs;

/// Files with the keys that a user can see. Where programs have no user of their own, these are the
/// keys of the user who started svclab (Linux v6.12, `security/keys/proc.c`).
const KEY_FILES: [&str; 2] = ["/proc/keys", "/proc/key-users"];

/// PID namespace with a mount namespace that shows it. Dropping the value makes the kernel kill
/// every process in it.
#[derive(Debug)]
pub(crate) struct ProgramNamespace {
    mounts: OwnedFd,
    /// Inode number of the PID namespace.
    inode: u64,
    /// Channel to the thread that starts processes.
    requests: SyncSender<StartRequest>,
}

/// Function that creates a process and returns its process ID and pidfd.
type StartProcess = Box<dyn FnOnce() -> nix::Result<(Pid, OwnedFd)> + Send>;

type StartRequest = (StartProcess, SyncSender<nix::Result<(Pid, OwnedFd)>>);

impl ProgramNamespace {
    /// Creates a room. With `seals_settings`, `/proc/sys` is read-only in the room, except
    /// `/proc/sys/net`.
    pub(crate) fn new(seals_settings: bool) -> nix::Result<Self> {
        let (result_sender, result_receiver) = sync_channel(1);
        let (requests, request_receiver) = sync_channel(1);
        let is_wanted = Arc::new(AtomicBool::new(true));
        let wanted = Arc::clone(&is_wanted);
        thread::Builder::new()
            .name("programs".to_owned())
            .spawn(move || {
                let first = match create(seals_settings) {
                    Ok((first, mounts, number)) => {
                        let _ = result_sender.send(Ok((first, mounts, number)));
                        first
                    }
                    Err(errno) => {
                        let _ = result_sender.send(Err(errno));
                        return;
                    }
                };
                start_processes(&request_receiver);
                wanted.store(false, Ordering::SeqCst);
                let _ = kill(first, Signal::SIGKILL);
            })
            .map_err(|error| to_errno(&error))?;
        let (first, mounts, number) = result_receiver.recv().unwrap_or(Err(Errno::EIO))?;
        // The thread of the room cannot start other threads.
        watch_first_process(first, is_wanted);
        Ok(Self {
            mounts,
            inode: number,
            requests,
        })
    }

    /// Returns the inode number of the PID namespace.
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns the mount namespace, which each started process enters itself.
    pub(crate) fn mounts(&self) -> BorrowedFd<'_> {
        self.mounts.as_fd()
    }

    /// Starts a process in the room and waits until it was started.
    pub(crate) fn start(&self, start: StartProcess) -> nix::Result<(Pid, OwnedFd)> {
        let (result_sender, result_receiver) = sync_channel(1);
        self.requests
            .send((start, result_sender))
            .ok()
            .and_then(|()| result_receiver.recv().ok())
            .unwrap_or(Err(Errno::EIO))
    }
}

/// Starts processes until all senders are dropped.
fn start_processes(requests: &Receiver<StartRequest>) {
    for (start, result_sender) in requests {
        let _ = result_sender.send(start());
    }
}

/// Waits for the exit of a room's first process. After an unexpected exit, all programs have been
/// killed and no program can be started, so that the agent exits too.
fn watch_first_process(first: Pid, is_wanted: Arc<AtomicBool>) {
    // Without this thread, only the detection of the exit is lost.
    let _ = thread::Builder::new().spawn(move || {
        let _ = waitpid(first, None);
        if is_wanted.load(Ordering::SeqCst) {
            crate::print_error(
                "svclab agent: the init process of the program namespace exited unexpectedly",
            );
            // SAFETY: no state of this process is needed any more.
            unsafe { libc::_exit(1) }
        }
    });
}

/// Creates the room of this thread's future child processes. Returns its first process, its mount
/// namespace, and the inode number of its PID namespace.
fn create(seals_settings: bool) -> nix::Result<(Pid, OwnedFd, u64)> {
    let (ready, is_ready) = pipe2(OFlag::O_CLOEXEC)?;
    unshare(CloneFlags::CLONE_NEWPID)?;
    // SAFETY: the child only makes system calls and calls no function that needs a lock.
    let first = match unsafe { fork() }? {
        ForkResult::Child => run_first_process(is_ready, seals_settings),
        ForkResult::Parent { child } => child,
    };
    drop(is_ready);
    let mut error_bytes = [0; 4];
    let errno = match File::from(ready).read_exact(&mut error_bytes) {
        Ok(()) => i32::from_ne_bytes(error_bytes),
        Err(error) => to_errno(&error) as i32,
    };
    let mounts = if errno == 0 {
        let number = || std::fs::metadata(format!("/proc/{first}/ns/pid"));
        File::open(format!("/proc/{first}/ns/mnt"))
            .and_then(|mounts| Ok((mounts, number()?.ino())))
            .map_err(|error| to_errno(&error))
    } else {
        Err(Errno::from_raw(errno))
    };
    match mounts {
        Ok((mounts, number)) => Ok((first, mounts.into(), number)),
        Err(errno) => {
            let _ = kill(first, Signal::SIGKILL);
            let _ = waitpid(first, None);
            Err(errno)
        }
    }
}

/// Runs as the first process of a room: mounts its `/proc`, reports an error number (0 for success)
/// and waits until it is killed.
fn run_first_process(report: OwnedFd, seals_settings: bool) -> ! {
    let result = set_up_namespaces(seals_settings);
    let errno = result.err().map_or(0, |errno| errno as i32);
    let mut report = File::from(report);
    let _ = report.write_all(&errno.to_ne_bytes());
    if errno == 0 {
        // Closes all descriptors of the agent, including the report.
        //
        // SAFETY: all arguments are numbers, and this process no longer uses any descriptor.
        unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
        for fd in 0..=report.as_raw_fd() {
            let _ = nix::unistd::close(fd);
        }
        loop {
            pause();
        }
    }
    // SAFETY: exits the process without running the agent's exit handlers.
    unsafe { libc::_exit(1) }
}

fn set_up_namespaces(seals_settings: bool) -> nix::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The kernel reaps orphaned processes of the namespace automatically.
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: this action calls no function.
    unsafe { sigaction(Signal::SIGCHLD, &ignore) }?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none = None::<&str>;
    mount(
        Some("proc"),
        "/proc",
        Some("proc"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
        none,
    )?;
    for keys in KEY_FILES {
        match mount(Some("/dev/null"), keys, none, MsFlags::MS_BIND, none) {
            // A kernel without keyrings has no such files.
            Err(Errno::ENOENT) => {}
            result => result?,
        }
    }
    if seals_settings {
        rootfs::make_sysctls_read_only()?;
    }
    Ok(())
}

fn to_errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
