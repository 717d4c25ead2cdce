//! Creates processes in a room of programs: to execute a program, or to kill programs.
//!
//! Until it executes the program, the new process shares the agent's memory, as with `posix_spawn`.
//! Copying the agent would need much of the start time, especially in a guest. Until then, the new
//! process only makes system calls.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::ptr;

use nix::errno::Errno;
use nix::libc::{self, c_char, c_int, c_long, c_ulong, c_void};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::sandbox::capabilities;
use crate::sandbox::program_namespace::ProgramNamespace;

/// Stack size in bytes of a new process before it executes its program.
const STACK_BYTES: usize = 32 << 10;

/// Instructions for a new process.
pub(crate) struct ChildTask {
    pub network: RawFd,
    pub mounts: RawFd,
    pub user: Option<u32>,
    pub group: Option<u32>,
    pub work: ChildWork,
    /// The error, and whether the process had entered the namespaces before; `None` for success.
    pub error: Option<(bool, Errno)>,
}

pub(crate) enum ChildWork {
    Execute {
        path: *const c_char,
        argv: *const *const c_char,
        environment: *const *const c_char,
        streams: [RawFd; 3],
        has_terminal: bool,
        processes: Option<u64>,
        filter: *const libc::sock_fprog,
    },
    KillAll,
}

/// Creates a process in a room that follows the order. Returns when the process has executed a
/// program or exited.
pub(crate) fn clone_into(
    room: &ProgramNamespace,
    order: &mut ChildTask,
) -> io::Result<(Pid, OwnedFd)> {
    let mut stack = vec![0_u128; STACK_BYTES / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let task = ChildContext(ptr::from_mut(order), top);
    let start = move || {
        let ChildContext(order, top) = { task };
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
                child_main,
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
struct ChildContext(*mut ChildTask, *mut c_void);

// SAFETY: the sending thread waits until the receiving thread no longer uses either pointer.
unsafe impl Send for ChildContext {}

/// Entry point of the new process.
extern "C" fn child_main(order: *mut c_void) -> c_int {
    // SAFETY: the pointer is the order that `clone_into` borrows for as long as this function runs.
    let order = unsafe { &mut *order.cast::<ChildTask>() };
    let mut is_inside = false;
    if let Err(errno) = order.run(&mut is_inside) {
        order.error = Some((is_inside, errno));
    }
    // SAFETY: exits this process only, without running the agent's exit handlers.
    unsafe { libc::_exit(127) }
}

/// Makes a system call by number. For some calls, the C library's wrapper affects all threads of
/// the agent.
fn syscall(number: c_long, arguments: [c_ulong; 5]) -> Result<c_long, Errno> {
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

fn to_argument(number: impl TryInto<c_ulong>) -> c_ulong {
    number.try_into().unwrap_or(c_ulong::MAX)
}

impl ChildTask {
    /// Follows the order. Returns when a step fails or all processes were killed.
    fn run(&self, is_inside: &mut bool) -> Result<(), Errno> {
        match self.work {
            ChildWork::KillAll => {
                self.change_user()?;
                // An agent with a user ID other than 0 keeps CAP_KILL as an effective capability.
                // With it, the call would also kill programs of other users (Linux v6.12,
                // `security/commoncap.c`, `cap_emulate_setxuid`).
                capabilities::keep_program_capabilities()?;
                let all_processes = -1_isize;
                syscall(
                    libc::SYS_kill,
                    [
                        all_processes.cast_unsigned() as c_ulong,
                        to_argument(libc::SIGKILL),
                        0,
                        0,
                        0,
                    ],
                )?;
                Ok(())
            }
            ChildWork::Execute {
                path,
                argv: words,
                environment,
                streams,
                has_terminal,
                processes,
                filter,
            } => {
                let enter = |descriptor: RawFd, kind: c_int| {
                    syscall(
                        libc::SYS_setns,
                        [to_argument(descriptor), to_argument(kind), 0, 0, 0],
                    )
                };
                enter(self.network, libc::CLONE_NEWNET)?;
                // From here on, the process uses the root directory of the mount namespace.
                enter(self.mounts, libc::CLONE_NEWNS)?;
                *is_inside = true;
                install_streams(streams)?;
                start_session(has_terminal)?;
                reset_signals();
                processes.map_or(Ok(()), limit_processes)?;
                self.change_user()?;
                capabilities::keep_program_capabilities()?;
                syscall(
                    libc::SYS_prctl,
                    [to_argument(libc::PR_SET_NO_NEW_PRIVS), 1, 0, 0, 0],
                )?;
                let kind = to_argument(libc::SECCOMP_MODE_FILTER);
                syscall(
                    libc::SYS_prctl,
                    [
                        to_argument(libc::PR_SET_SECCOMP),
                        kind,
                        filter as c_ulong,
                        0,
                        0,
                    ],
                )?;
                syscall(
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
        let Some(user) = self.user.map(to_argument) else {
            return Ok(());
        };
        let group = self.group.map_or(user, to_argument);
        syscall(
            libc::SYS_prctl,
            [to_argument(libc::PR_SET_KEEPCAPS), 1, 0, 0, 0],
        )?;
        syscall(libc::SYS_setresgid, [group, group, group, 0, 0])?;
        syscall(libc::SYS_setresuid, [user, user, user, 0, 0])?;
        Ok(())
    }
}

/// Installs the standard streams and closes all other descriptors of the agent.
fn install_streams(streams: [RawFd; 3]) -> Result<(), Errno> {
    for (target, stream) in streams.into_iter().enumerate() {
        syscall(
            libc::SYS_dup3,
            [to_argument(stream), to_argument(target), 0, 0, 0],
        )?;
    }
    // Executing the program closes these descriptors too. A kernel without this call is older than
    // 5.9.
    let last = c_ulong::from(libc::c_uint::MAX);
    let _ = syscall(libc::SYS_close_range, [3, last, 0, 0, 0]);
    Ok(())
}

/// Starts a session with the first stream as terminal, or a process group.
fn start_session(has_terminal: bool) -> Result<(), Errno> {
    if !has_terminal {
        syscall(libc::SYS_setpgid, [0; 5])?;
        return Ok(());
    }
    syscall(libc::SYS_setsid, [0; 5])?;
    syscall(libc::SYS_ioctl, [0, libc::TIOCSCTTY as c_ulong, 0, 0, 0])?;
    Ok(())
}

/// Resets the agent's signal handlers and unblocks all signals.
fn reset_signals() {
    // SAFETY: this process has its own table of handlers, and both structures are valid with all
    // bytes 0.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        for signal in [libc::SIGCHLD, libc::SIGPIPE, libc::SIGINT, libc::SIGTERM] {
            libc::sigaction(signal, &raw const default, ptr::null_mut());
        }
        let empty: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, &raw const empty, ptr::null_mut());
    }
}

/// Sets the maximum number of processes of the user.
fn limit_processes(processes: u64) -> Result<(), Errno> {
    let limit = libc::rlimit64 {
        rlim_cur: processes,
        rlim_max: processes,
    };
    let set = (&raw const limit) as c_ulong;
    let which = to_argument(libc::RLIMIT_NPROC);
    syscall(libc::SYS_prlimit64, [0, which, set, 0, 0])?;
    Ok(())
}

/// Kills all processes of a user in a room. Without a user, kills all processes except the first.
pub(crate) fn kill_all(room: &ProgramNamespace, user: Option<u32>) -> io::Result<()> {
    let mut order = ChildTask {
        network: -1,
        mounts: -1,
        user,
        group: user,
        work: ChildWork::KillAll,
        error: None,
    };
    let (process, _) = clone_into(room, &mut order)?;
    waitpid(process, Some(WaitPidFlag::__WALL))?;
    Ok(())
}
