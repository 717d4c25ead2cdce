//! Starts programs in a namespace of a lab, as the lab's tenant: with their own user where
//! there is one, three capabilities, and a filter of system calls.
//!
//! The new process shares the agent's memory until it executes the program, as with
//! `posix_spawn`: a copy of the agent costs a good part of a start, most of all in a
//! guest. Until then it makes system calls only.

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

/// What a process needs of a stack until it executes its program.
const STACK: usize = 32 << 10;

/// A program to start.
#[derive(Debug)]
pub struct Launch {
    pub program: PathBuf,
    /// Its name for itself, and its arguments.
    pub words: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// What it has for its streams, and for the terminal of its session; pipes otherwise.
    pub terminal: Option<OwnedFd>,
    /// How many processes and threads of its user there may be at once; `None` for no
    /// limit.
    pub processes: Option<u64>,
}

/// Why a program was not started.
#[derive(Debug)]
pub enum Refusal {
    /// The namespace, or the place of its programs, cannot be entered.
    Inside(io::Error),
    /// The program cannot be executed.
    Program(io::Error),
}

impl Launch {
    /// Starts the program in a namespace, at the head of a process group of its own.
    ///
    /// # Errors
    ///
    /// When the namespace cannot be entered, or the program not be executed.
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

/// Ends all processes of a user in a room; all but the first, where there is no user.
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

/// A program's three streams: the ends that it has, and the agent's.
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

    /// The agent's ends; the program's are closed.
    fn ours(self) -> Option<[OwnedFd; 3]> {
        self.ours
    }
}

/// Lets whichever user open it again by `/dev/stdout` or the terminal's name: it belongs
/// to the agent's user, and nobody else has a path to it.
fn open_to_all(end: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fchmod(end, Mode::from_bits_truncate(0o666))?)
}

/// What a new process does.
struct Order {
    network: RawFd,
    mounts: RawFd,
    user: Option<u32>,
    group: Option<u32>,
    work: Work,
    /// Whether it was inside already when a step failed, and why that failed.
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

/// Makes a process in a room that follows the order, and returns when it has executed a
/// program or has ended.
fn clone_into(room: &Room, order: &mut Order) -> io::Result<(Pid, OwnedFd)> {
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let order = Shared(ptr::from_mut(order), top);
    let start = move || {
        let Shared(order, top) = { order };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
        let mut descriptor: c_int = -1;
        // No handler of the agent's may run in the new process, which has its memory.
        let mut before = SigSet::empty();
        pthread_sigmask(
            SigmaskHow::SIG_SETMASK,
            Some(&SigSet::all()),
            Some(&mut before),
        )?;
        // SAFETY: who asked waits for the answer, so the stack and the order outlive the
        // process's use of them: this thread goes on when the process has executed a
        // program or has ended. The process makes system calls only, and the stack is
        // aligned and as large as they need.
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
        // SAFETY: the kernel has opened it for this call.
        Ok((process, unsafe { OwnedFd::from_raw_fd(descriptor) }))
    };
    Ok(room.start(Box::new(start))?)
}

/// What the thread that starts processes is handed: the order and the top of a stack.
struct Shared(*mut Order, *mut c_void);

// SAFETY: the thread that hands it over waits until the other thread has finished with both.
unsafe impl Send for Shared {}

/// The new process.
extern "C" fn follow(order: *mut c_void) -> c_int {
    // SAFETY: it is the order that `clone_into` has borrowed for as long as this runs.
    let order = unsafe { &mut *order.cast::<Order>() };
    let mut is_inside = false;
    if let Err(errno) = order.follow(&mut is_inside) {
        order.failed = Some((is_inside, errno));
    }
    // SAFETY: ends this process only, without running what the agent has registered.
    unsafe { libc::_exit(127) }
}

/// A system call by its number: what the C library makes of some of them concerns all
/// threads of the agent.
fn call(number: c_long, arguments: [c_ulong; 5]) -> Result<c_long, Errno> {
    // SAFETY: every caller below passes what that call takes.
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
    /// Follows the order; returns only when a step fails, or all were ended.
    fn follow(&self, is_inside: &mut bool) -> Result<(), Errno> {
        match self.work {
            Work::EndAll => {
                self.change_user()?;
                // An agent that is not user 0 goes on to have CAP_KILL in effect, by which
                // it would end the programs of other users, too (Linux v6.12,
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
                // From here on it is at the root of those mounts.
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

    /// Becomes the user, and keeps what the agent may.
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

/// Has the streams for its own, and no other descriptor of the agent's.
fn take_streams(streams: [RawFd; 3]) -> Result<(), Errno> {
    for (own, stream) in streams.into_iter().enumerate() {
        call(libc::SYS_dup3, [word(stream), word(own), 0, 0, 0])?;
    }
    // They are all closed when the program is executed, too; a kernel without the call is
    // older than 5.9.
    let most = c_ulong::from(libc::c_uint::MAX);
    let _ = call(libc::SYS_close_range, [3, most, 0, 0, 0]);
    Ok(())
}

/// Leads a session with its first stream as terminal, or a process group.
fn lead(has_terminal: bool) -> Result<(), Errno> {
    if !has_terminal {
        call(libc::SYS_setpgid, [0; 5])?;
        return Ok(());
    }
    call(libc::SYS_setsid, [0; 5])?;
    call(libc::SYS_ioctl, [0, libc::TIOCSCTTY as c_ulong, 0, 0, 0])?;
    Ok(())
}

/// Undoes the agent's handlers and has no signal kept back.
fn take_default_signals() {
    // SAFETY: this process has a table of handlers of its own, and both structures are
    // whole when all bytes are 0.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        for signal in [libc::SIGCHLD, libc::SIGPIPE, libc::SIGINT, libc::SIGTERM] {
            libc::sigaction(signal, &raw const default, ptr::null_mut());
        }
        let none: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// Sets how many processes its user may have.
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
