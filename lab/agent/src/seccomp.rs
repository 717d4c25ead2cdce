//! Filters of system calls (seccomp), instruction by instruction: what the agent, the
//! programs of labs and QEMU have in common. Which calls each is refused stands beside it.

use std::ops::Range;
use std::os::fd::{FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::libc::{self, c_long, sock_filter};

/// System calls that no confined process needs and that lead beyond networks: mounts,
/// modules, files by handle, programs in the kernel, keys, other processes' memory.
pub const REFUSED: &[c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Port access, which only this kind of processor has.
#[cfg(target_arch = "x86_64")]
pub const PORTS: &[c_long] = &[libc::SYS_iopl, libc::SYS_ioperm];
#[cfg(not(target_arch = "x86_64"))]
pub const PORTS: &[c_long] = &[];

/// The number of this processor's kind in the kernel's audits, which says what
/// system calls' numbers mean (Linux v6.12, `include/uapi/linux/audit.h`).
#[cfg(target_arch = "x86_64")]
pub const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
pub const ARCHITECTURE: u32 = 0xC000_00B7;

/// From here on numbers are those of a second set of the same calls (x32).
pub const SECOND_SET: u32 = 0x4000_0000;

/// The flags of `clone` that make namespaces. That of time namespaces lies where `clone`
/// has the number of a signal (Linux v6.12, `include/uapi/linux/sched.h`).
pub const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Where the parts of a call lie that a filter looks at (Linux v6.12,
/// `include/uapi/linux/seccomp.h`, `struct seccomp_data`). Of arguments the low
/// half, which holds all that the calls in question look at.
pub const NUMBER: u32 = 0;
/// The kind of processor that a call is made for.
pub const KIND: u32 = 4;
/// The first three arguments.
pub const ARGUMENTS: [u32; 3] = [16, 24, 32];

/// Ends a call with `EPERM`.
pub const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | Errno::EPERM as u32;
/// Ends a call as a kernel does that does not know it.
pub const DENY_EXISTENCE: u32 = libc::SECCOMP_RET_ERRNO | Errno::ENOSYS as u32;
/// Lets a call be made.
pub const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// A filter, instruction by instruction.
#[derive(Debug, Clone)]
pub struct Filter(pub Vec<sock_filter>);

impl Filter {
    /// Refuses all threads of this process and all that come of it, for good, what the
    /// filter does not allow. New privileges must have been given up.
    ///
    /// # Errors
    ///
    /// When this kernel has no such filters.
    pub fn install(&self) -> nix::Result<()> {
        let program = self.program();
        // SAFETY: the kernel copies the program, which outlives the call, and does
        // not write to it.
        let done = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_TSYNC,
                &raw const program,
            )
        };
        // It may also be the number of a thread that cannot follow.
        if Errno::result(done)? != 0 {
            return Err(Errno::ESRCH);
        }
        Ok(())
    }

    /// Filters the calls of this thread and of all that it starts. Returns a descriptor
    /// that receives the calls for which the filter returns `SECCOMP_RET_USER_NOTIF`.
    ///
    /// # Errors
    ///
    /// When this kernel has no such descriptors, or the process has one already.
    pub fn install_with_listener(&self) -> nix::Result<OwnedFd> {
        let program = self.program();
        // SAFETY: the kernel copies the program, which outlives the call, and does
        // not write to it.
        let listener = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
                &raw const program,
            )
        };
        let listener = i32::try_from(Errno::result(listener)?).map_err(|_| Errno::EBADF)?;
        // SAFETY: the kernel has just opened it.
        Ok(unsafe { OwnedFd::from_raw_fd(listener) })
    }

    /// The filter as the kernel takes it, which points to this one's instructions.
    #[must_use]
    pub fn program(&self) -> libc::sock_fprog {
        libc::sock_fprog {
            len: u16::try_from(self.0.len()).unwrap_or(u16::MAX),
            filter: self.0.as_ptr().cast_mut(),
        }
    }

    /// Loads the call's number, if it is one of this processor's first set.
    #[must_use]
    pub fn begin() -> Self {
        let mut filter = Self(Vec::new());
        filter.push(LOAD, KIND);
        filter.jump(EQUAL, ARCHITECTURE, 1, 0);
        filter.push(RETURN, REFUSE);
        filter.push(LOAD, NUMBER);
        filter.jump(AT_LEAST, SECOND_SET, 0, 1);
        filter.push(RETURN, REFUSE);
        filter
    }

    /// Adds an instruction.
    pub fn push(&mut self, code: u16, k: u32) {
        self.jump(code, k, 0, 0);
    }

    /// Adds an instruction that skips `jt` others where it holds, and `jf` where not.
    pub fn jump(&mut self, code: u16, k: u32, jt: u8, jf: u8) {
        self.0.push(sock_filter { code, jt, jf, k });
    }

    /// Refuses these calls.
    pub fn refuse(&mut self, calls: &[c_long]) {
        for call in calls {
            self.ends(*call, REFUSE);
        }
    }

    /// Answers a call so.
    pub fn ends(&mut self, call: c_long, how: u32) {
        self.jump(EQUAL, number(call), 0, 1);
        self.push(RETURN, how);
    }

    /// Refuses `clone` with flags for new namespaces.
    pub fn without_new_namespaces(&mut self) {
        self.jump(EQUAL, number(libc::SYS_clone), 0, 4);
        self.push(LOAD, ARGUMENTS[0]);
        self.jump(ANY_OF, NEW_NAMESPACES, 0, 1);
        self.push(RETURN, REFUSE);
        self.push(RETURN, ALLOW);
    }

    /// Allows a call with these values of an argument only.
    pub fn only(&mut self, call: c_long, argument: u32, allowed: &[u32]) {
        let length = u8::try_from(2 + 2 * allowed.len()).unwrap_or(u8::MAX);
        self.jump(EQUAL, number(call), 0, length);
        self.push(LOAD, argument);
        for value in allowed {
            self.jump(EQUAL, *value, 0, 1);
            self.push(RETURN, ALLOW);
        }
        self.push(RETURN, REFUSE);
    }

    /// Allows a call whose three arguments all lie within the range only.
    pub fn only_within(&mut self, call: c_long, range: &Range<u32>) {
        self.jump(EQUAL, number(call), 0, 16);
        for argument in ARGUMENTS {
            self.push(LOAD, argument);
            self.jump(AT_LEAST, range.start, 1, 0);
            self.push(RETURN, REFUSE);
            self.jump(AT_LEAST, range.end, 0, 1);
            self.push(RETURN, REFUSE);
        }
        self.push(RETURN, ALLOW);
    }
}

/// Operations of a filter (Linux v6.12, `include/uapi/linux/bpf_common.h`).
pub const LOAD: u16 = code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS);
/// Jumps where the value is this one.
pub const EQUAL: u16 = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
/// Jumps where the value is this one or above.
pub const AT_LEAST: u16 = code(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K);
/// Jumps where the value has any of these bits.
pub const ANY_OF: u16 = code(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K);
/// Ends the filter with a decision.
pub const RETURN: u16 = code(libc::BPF_RET | libc::BPF_K);

#[expect(
    clippy::cast_possible_truncation,
    reason = "an operation's parts are numbers of 16 bits"
)]
const fn code(parts: u32) -> u16 {
    parts as u16
}

/// The number of a call, as a filter compares it.
#[must_use]
pub fn number(call: c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}
