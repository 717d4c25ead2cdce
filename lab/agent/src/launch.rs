//! Starts programs in a namespace of a lab, as the lab's tenant. The programs have their own user
//! if possible, three capabilities, and a system call filter.
//!
//! Until it executes the program, the new process shares the agent's memory, as with `posix_spawn`.
//! Copying the agent would need much of the start time, especially in a guest. Until then, the new
//! process only makes system calls.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::ptr;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc::{self, c_char, c_int, c_long, c_ulong, c_void};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::sys::stat::{Mode, fchmod};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, pipe2};

use super::child::Child;
use super::netns::NetNs;
use super::rights;
use super::room::Room;

/// Stack size in bytes of a new process before it executes its program.
const STACK: usize = 32 << 10;

/// Program to start.
#[derive(Debug)]
pub struct Launch {
    pub program: PathBuf,
    /// Program name (`argv[0]`) and arguments.
    pub words: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// Terminal for the streams and the session. `None` uses pipes.
    pub terminal: Option<OwnedFd>,
    /// Maximum number of processes and threads of the program's user; `None` for no limit.
    pub processes: Option<u64>,
}

/// Reason why a program was not started.
#[derive(Debug)]
pub enum Refusal {
    /// The network namespace or the mount namespace cannot be entered.
    Inside(io::Error),
    /// The program cannot be executed.
    Program(io::Error),
}

impl Launch {
    /// Starts the program in a namespace, as the leader of a new process group.
    ///
    /// # Errors
    ///
    /// When the namespace cannot be entered, or the program cannot be executed.
    pub fn start(&self, ns: &NetNs) -> Result<Child, Refusal> {
        let streams = Streams::new(self.terminal.as_ref()).map_err(Refusal::Program)?;
        let text = |text: &str| CString::new(text).map_err(io::Error::from);
        let path = self.program.to_string_lossy();
        let path = text(&path).map_err(Refusal::Program)?;
        let words = self.words.iter().map(|word| text(word));
        let words: Vec<CString> = words.collect::<io::Result<_>>().map_err(Refusal::Program)?;
        let set = self.environment.iter();
        let environment = set.map(|(name, value)| text(&format!("{name}={value}")));
        let environment: Vec<CString> = environment
            .collect::<io::Result<_>>()
            .map_err(Refusal::Program)?;
        let ended = |texts: &[CString]| -> Vec<*const c_char> {
            let texts = texts.iter().map(|text| text.as_ptr());
            texts.chain([ptr::null()]).collect()
        };
        let (words, environment) = (ended(&words), ended(&environment));
        let tenant = ns.tenant();
        let filter = tenant.filter().program();
        let mut order = Order {
            network: ns.as_raw_fd(),
            mounts: tenant.room().mounts().as_raw_fd(),
            user: tenant.user(),
            group: tenant.group(),
            work: Work::Execute {
                path: path.as_ptr(),
                words: words.as_ptr(),
                environment: environment.as_ptr(),
                streams: streams.theirs(),
                has_terminal: self.terminal.is_some(),
                processes: self.processes,
                filter: &raw const filter,
            },
            failed: None,
        };
        let (process, descriptor) =
            clone_into(tenant.room(), &mut order).map_err(Refusal::Inside)?;
        if let Some((is_inside, errno)) = order.failed {
            let _ = waitpid(process, None);
            let error = io::Error::from(errno);
            return Err(if is_inside {
                Refusal::Program(error)
            } else {
                Refusal::Inside(error)
            });
        }
        Child::new(process, descriptor, streams.ours()).map_err(Refusal::Program)
    }
}

/// Kills all processes of a user in a room. Without a user, kills all processes except the first.
///
/// # Errors
///
/// When the room cannot be entered.
pub fn end_all(room: &Room, user: Option<u32>) -> io::Result<()> {
    let mut order = Order {
        network: -1,
        mounts: -1,
        user,
        group: user,
        work: Work::EndAll,
        failed: None,
    };
    let (process, _) = clone_into(room, &mut order)?;
    waitpid(process, Some(WaitPidFlag::__WALL))?;
    Ok(())
}

/// Program's three standard streams: the program's ends and the agent's ends.
struct Streams {
    theirs: [OwnedFd; 3],
    ours: Option<[OwnedFd; 3]>,
}

impl Streams {
    fn new(terminal: Option<&OwnedFd>) -> io::Result<Self> {
        if let Some(terminal) = terminal {
            open_to_all(terminal.as_fd())?;
            let copy = || terminal.try_clone();
            return Ok(Self {
                theirs: [copy()?, copy()?, copy()?],
                ours: None,
            });
        }
        let (input, write) = pipe2(OFlag::O_CLOEXEC)?;
        let (output, print) = pipe2(OFlag::O_CLOEXEC)?;
        let (errors, complain) = pipe2(OFlag::O_CLOEXEC)?;
        let theirs = [input, print, complain];
        for end in &theirs {
            open_to_all(end.as_fd())?;
        }
        Ok(Self {
            theirs,
            ours: Some([write, output, errors]),
        })
    }

    fn theirs(&self) -> [RawFd; 3] {
        self.theirs.each_ref().map(AsRawFd::as_raw_fd)
    }

    /// Returns the agent's ends and closes the program's ends.
    fn ours(self) -> Option<[OwnedFd; 3]> {
        self.ours
    }
}

/// Makes the stream accessible to every user. A program can reopen it through `/dev/stdout` or the
/// terminal's name. The agent's user owns the stream, and no other process has a path to it.
fn open_to_all(end: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fchmod(end, Mode::from_bits_truncate(0o666))?)
}

/// Instructions for a new process.
struct Order {
    network: RawFd,
    mounts: RawFd,
    user: Option<u32>,
    group: Option<u32>,
    work: Work,
    /// The error, and whether the process had entered the namespaces before; `None` for success.
    failed: Option<(bool, Errno)>,
}

enum Work {
    Execute {
        path: *const c_char,
        words: *const *const c_char,
        environment: *const *const c_char,
        streams: [RawFd; 3],
        has_terminal: bool,
        processes: Option<u64>,
        filter: *const libc::sock_fprog,
    },
    EndAll,
}

/// Creates a process in a room that follows the order. Returns when the process has executed a
/// program or exited.
fn clone_into(room: &Room, order: &mut Order) -> io::Result<(Pid, OwnedFd)> {
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let order = Shared(ptr::from_mut(order), top);
    let start = move || {
        let Shared(order, top) = { order };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
        let mut descriptor: c_int = -1;
        // The new process has the agent's memory, so that no signal handler of the agent may run
        // there.
        let mut before = SigSet::empty();
        pthread_sigmask(
            SigmaskHow::SIG_SETMASK,
            Some(&SigSet::all()),
            Some(&mut before),
        )?;
        // SAFETY: the requesting thread waits for this result, so that the stack and the order
        // outlive their use. This thread continues when the process has executed a program or
        // exited. The process only makes system calls, and the stack is aligned and large enough
        // for them.
        let process = unsafe {
            libc::clone(
                follow,
                top,
                flags,
                order.cast::<c_void>(),
                &raw mut descriptor,
            )
        };
        let process = Errno::result(process);
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        let process = Pid::from_raw(process?);
        // SAFETY: the kernel has opened the descriptor for this call.
        Ok((process, unsafe { OwnedFd::from_raw_fd(descriptor) }))
    };
    Ok(room.start(Box::new(start))?)
}

/// Data for the thread that starts processes: the order and the top of a stack.
struct Shared(*mut Order, *mut c_void);

// SAFETY: the sending thread waits until the receiving thread no longer uses either pointer.
unsafe impl Send for Shared {}

/// Entry point of the new process.
extern "C" fn follow(order: *mut c_void) -> c_int {
    // SAFETY: the pointer is the order that `clone_into` borrows for as long as this function runs.
    let order = unsafe { &mut *order.cast::<Order>() };
    let mut is_inside = false;
    if let Err(errno) = order.follow(&mut is_inside) {
        order.failed = Some((is_inside, errno));
    }
    // SAFETY: exits this process only, without running the agent's exit handlers.
    unsafe { libc::_exit(127) }
}

/// Makes a system call by number. For some calls, the C library's wrapper affects all threads of
/// the agent.
fn call(number: c_long, arguments: [c_ulong; 5]) -> Result<c_long, Errno> {
    // SAFETY: every caller below passes the arguments that the call expects.
    Errno::result(unsafe {
        libc::syscall(
            number,
            arguments[0],
            arguments[1],
            arguments[2],
            arguments[3],
            arguments[4],
        )
    })
}

fn word(number: impl TryInto<c_ulong>) -> c_ulong {
    number.try_into().unwrap_or(c_ulong::MAX)
}

impl Order {
    /// Follows the order. Returns when a step fails or all processes were killed.
    fn follow(&self, is_inside: &mut bool) -> Result<(), Errno> {
        match self.work {
            Work::EndAll => {
                self.change_user()?;
                // An agent with a user ID other than 0 keeps CAP_KILL as an effective capability.
                // With it, the call would also kill programs of other users (Linux v6.12,
                // `security/commoncap.c`, `cap_emulate_setxuid`).
                rights::keep_those_of_programs()?;
                let everybody = -1_isize;
                call(
                    libc::SYS_kill,
                    [
                        everybody.cast_unsigned() as c_ulong,
                        word(libc::SIGKILL),
                        0,
                        0,
                        0,
                    ],
                )?;
                Ok(())
            }
            Work::Execute {
                path,
                words,
                environment,
                streams,
                has_terminal,
                processes,
                filter,
            } => {
                let enter = |descriptor: RawFd, kind: c_int| {
                    call(libc::SYS_setns, [word(descriptor), word(kind), 0, 0, 0])
                };
                enter(self.network, libc::CLONE_NEWNET)?;
                // From here on, the process uses the root directory of the mount namespace.
                enter(self.mounts, libc::CLONE_NEWNS)?;
                *is_inside = true;
                take_streams(streams)?;
                lead(has_terminal)?;
                take_default_signals();
                processes.map_or(Ok(()), limit)?;
                self.change_user()?;
                rights::keep_those_of_programs()?;
                call(
                    libc::SYS_prctl,
                    [word(libc::PR_SET_NO_NEW_PRIVS), 1, 0, 0, 0],
                )?;
                let kind = word(libc::SECCOMP_MODE_FILTER);
                call(
                    libc::SYS_prctl,
                    [word(libc::PR_SET_SECCOMP), kind, filter as c_ulong, 0, 0],
                )?;
                call(
                    libc::SYS_execve,
                    [
                        path as c_ulong,
                        words as c_ulong,
                        environment as c_ulong,
                        0,
                        0,
                    ],
                )?;
                Ok(())
            }
        }
    }

    /// Changes to the tenant's user and group, and keeps the permitted capabilities.
    fn change_user(&self) -> Result<(), Errno> {
        let Some(user) = self.user.map(word) else {
            return Ok(());
        };
        let group = self.group.map_or(user, word);
        call(libc::SYS_prctl, [word(libc::PR_SET_KEEPCAPS), 1, 0, 0, 0])?;
        call(libc::SYS_setresgid, [group, group, group, 0, 0])?;
        call(libc::SYS_setresuid, [user, user, user, 0, 0])?;
        Ok(())
    }
}

/// Installs the standard streams and closes all other descriptors of the agent.
fn take_streams(streams: [RawFd; 3]) -> Result<(), Errno> {
    for (own, stream) in streams.into_iter().enumerate() {
        call(libc::SYS_dup3, [word(stream), word(own), 0, 0, 0])?;
    }
    // Executing the program closes these descriptors too. A kernel without this call is older than
    // 5.9.
    let most = c_ulong::from(libc::c_uint::MAX);
    let _ = call(libc::SYS_close_range, [3, most, 0, 0, 0]);
    Ok(())
}

/// Starts a session with the first stream as terminal, or a process group.
fn lead(has_terminal: bool) -> Result<(), Errno> {
    if !has_terminal {
        call(libc::SYS_setpgid, [0; 5])?;
        return Ok(());
    }
    call(libc::SYS_setsid, [0; 5])?;
    call(libc::SYS_ioctl, [0, libc::TIOCSCTTY as c_ulong, 0, 0, 0])?;
    Ok(())
}

/// Resets the agent's signal handlers and unblocks all signals.
fn take_default_signals() {
    // SAFETY: this process has its own table of handlers, and both structures are valid with all
    // bytes 0.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        for signal in [libc::SIGCHLD, libc::SIGPIPE, libc::SIGINT, libc::SIGTERM] {
            libc::sigaction(signal, &raw const default, ptr::null_mut());
        }
        let none: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// Sets the maximum number of processes of the user.
fn limit(processes: u64) -> Result<(), Errno> {
    let limit = libc::rlimit64 {
        rlim_cur: processes,
        rlim_max: processes,
    };
    let set = (&raw const limit) as c_ulong;
    let which = word(libc::RLIMIT_NPROC);
    call(libc::SYS_prlimit64, [0, which, set, 0, 0])?;
    Ok(())
}
