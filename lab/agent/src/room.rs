//! Where programs of labs run: a PID namespace with a `/proc` of its own, in which the
//! agent has no number and therefore cannot be signalled, traced or looked at.
//!
//! A thread whose children are in the room starts them. The agent's own PID namespace
//! belongs to a user namespace around the agent's, so what has left it for its children
//! cannot come back (Linux v6.12, `kernel/pid_namespace.c`, `pidns_install`), and could
//! start no threads (`kernel/fork.c`, `copy_process`).

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

use super::rootfs;

/// Where the kernel lists the keys that a user may see: those of the user who started
/// svclab, where programs have no other one (Linux v6.12, `security/keys/proc.c`).
const KEYS: [&str; 2] = ["/proc/keys", "/proc/key-users"];

/// A PID namespace and the mount namespace that shows it. When this is dropped, the
/// kernel ends every process in it.
#[derive(Debug)]
pub struct Room {
    mounts: OwnedFd,
    /// The inode number of the PID namespace.
    number: u64,
    /// Asks the thread to start a process.
    ask: SyncSender<Ask>,
}

/// Starts a process of whatever it holds, and returns the number and the descriptor.
type Start = Box<dyn FnOnce() -> nix::Result<(Pid, OwnedFd)> + Send>;

type Ask = (Start, SyncSender<nix::Result<(Pid, OwnedFd)>>);

impl Room {
    /// Makes a room. With `seals_settings`, all of `/proc/sys` but the network's is
    /// read-only in it.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub fn new(seals_settings: bool) -> nix::Result<Self> {
        let (made, is_made) = sync_channel(1);
        let (ask, asked) = sync_channel(1);
        let is_wanted = Arc::new(AtomicBool::new(true));
        let wanted = Arc::clone(&is_wanted);
        thread::Builder::new()
            .name("programs".to_owned())
            .spawn(move || {
                let first = match begin(seals_settings) {
                    Ok((first, mounts, number)) => {
                        let _ = made.send(Ok((first, mounts, number)));
                        first
                    }
                    Err(errno) => {
                        let _ = made.send(Err(errno));
                        return;
                    }
                };
                serve(&asked);
                wanted.store(false, Ordering::SeqCst);
                let _ = kill(first, Signal::SIGKILL);
            })
            .map_err(|error| os(&error))?;
        let (first, mounts, number) = is_made.recv().unwrap_or(Err(Errno::EIO))?;
        // Not by that thread, which cannot start any.
        watch(first, is_wanted);
        Ok(Self {
            mounts,
            number,
            ask,
        })
    }

    /// What the kernel calls the PID namespace.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The mount namespace, which a process that is started enters itself.
    pub fn mounts(&self) -> BorrowedFd<'_> {
        self.mounts.as_fd()
    }

    /// Has a process started whose place is the room, and waits until it was.
    ///
    /// # Errors
    ///
    /// What `start` says.
    pub fn start(&self, start: Start) -> nix::Result<(Pid, OwnedFd)> {
        let (say, said) = sync_channel(1);
        self.ask
            .send((start, say))
            .ok()
            .and_then(|()| said.recv().ok())
            .unwrap_or(Err(Errno::EIO))
    }
}

/// Starts processes until nobody asks for any.
fn serve(asked: &Receiver<Ask>) {
    for (start, answer) in asked {
        let _ = answer.send(start());
    }
}

/// Waits for the end of a room's first process. If that was not wanted, no more programs
/// can be started and those that ran have ended: the agent ends, too.
fn watch(first: Pid, is_wanted: Arc<AtomicBool>) {
    // Without a thread it is not waited for, and nothing else is lost.
    let _ = thread::Builder::new().spawn(move || {
        let _ = waitpid(first, None);
        if is_wanted.load(Ordering::SeqCst) {
            eprintln!("svclab agent: the first process beside its programs was ended");
            // SAFETY: nothing of this process is of use any more.
            unsafe { libc::_exit(1) }
        }
    });
}

/// Makes the room that this thread's next processes are in. Returns its first process and
/// its mounts, and the inode number of its PID namespace.
fn begin(seals_settings: bool) -> nix::Result<(Pid, OwnedFd, u64)> {
    let (ready, is_ready) = pipe2(OFlag::O_CLOEXEC)?;
    unshare(CloneFlags::CLONE_NEWPID)?;
    // SAFETY: the child makes system calls and nothing that takes a lock.
    let first = match unsafe { fork() }? {
        ForkResult::Child => live(is_ready, seals_settings),
        ForkResult::Parent { child } => child,
    };
    drop(is_ready);
    let mut said = [0; 4];
    let errno = match File::from(ready).read_exact(&mut said) {
        Ok(()) => i32::from_ne_bytes(said),
        Err(error) => os(&error) as i32,
    };
    let mounts = if errno == 0 {
        let number = || std::fs::metadata(format!("/proc/{first}/ns/pid"));
        File::open(format!("/proc/{first}/ns/mnt"))
            .and_then(|mounts| Ok((mounts, number()?.ino())))
            .map_err(|error| os(&error))
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

/// The first process of a room: it makes the room's `/proc`, reports an error number,
/// 0 for none, and waits for its end.
fn live(report: OwnedFd, seals_settings: bool) -> ! {
    let made = make(seals_settings);
    let errno = made.err().map_or(0, |errno| errno as i32);
    let mut report = File::from(report);
    let _ = report.write_all(&errno.to_ne_bytes());
    if errno == 0 {
        // All that it has from the agent, the report included.
        // SAFETY: the call takes numbers, and nothing here uses a descriptor any more.
        unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
        for fd in 0..=report.as_raw_fd() {
            let _ = nix::unistd::close(fd);
        }
        loop {
            pause();
        }
    }
    // SAFETY: ends the process without running what the agent has registered.
    unsafe { libc::_exit(1) }
}

fn make(seals_settings: bool) -> nix::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // Whoever ends in here without a parent is nobody's to wait for.
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: no function is called by this handler.
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
    for keys in KEYS {
        match mount(Some("/dev/null"), keys, none, MsFlags::MS_BIND, none) {
            // A kernel without keyrings has no such files.
            Err(Errno::ENOENT) => {}
            hidden => hidden?,
        }
    }
    if seals_settings {
        rootfs::seal_settings()?;
    }
    Ok(())
}

fn os(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
