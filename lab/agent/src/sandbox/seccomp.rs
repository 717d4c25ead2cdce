//! Builds system call filters (seccomp) from instructions. Shared by the filters of the agent, of
//! the programs of labs and of QEMU, which list the rejected calls.

use std::ops::Range;
use std::os::fd::{FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::libc::{self, c_long, c_ulong, sock_filter};

/// System calls that reach beyond networks and that no confined process needs. They concern mounts,
/// modules, files by handle, programs in the kernel, keys and memory of other processes.
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

/// System calls for I/O port access, which exist only on x86-64.
#[cfg(target_arch = "x86_64")]
pub const IO_PORTS: &[c_long] = &[libc::SYS_iopl, libc::SYS_ioperm];
#[cfg(not(target_arch = "x86_64"))]
pub const PORTS: &[c_long] = &[];

/// Audit number of this processor architecture, which determines the system call numbers (Linux
/// v6.12, `include/uapi/linux/audit.h`).
#[cfg(target_arch = "x86_64")]
pub const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
pub const ARCHITECTURE: u32 = 0xC000_00B7;

/// First number of the second set of the same calls (x32).
pub const X32_START: u32 = 0x4000_0000;

/// Flags of `clone` that create namespaces. The flag of time namespaces overlaps with the signal
/// number of `clone` (Linux v6.12, `include/uapi/linux/sched.h`).
pub const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Offset of the system call number (Linux v6.12, `include/uapi/linux/seccomp.h`, `struct
/// seccomp_data`). Filters read only the lower half of arguments, which contains all bits that the
/// filtered calls use.
pub const NUMBER_OFFSET: u32 = 0;
/// Offset of the processor architecture.
pub const ARCHITECTURE_OFFSET: u32 = 4;
/// Offsets of the first three arguments.
pub const ARGUMENT_OFFSETS: [u32; 3] = [16, 24, 32];

/// Makes a call fail with `EPERM`.
pub const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | Errno::EPERM as u32;
/// Makes a call fail with `ENOSYS`, like a call that the kernel does not have.
pub const FAIL_NOT_IMPLEMENTED: u32 = libc::SECCOMP_RET_ERRNO | Errno::ENOSYS as u32;
/// Allows a call.
pub const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// System call filter as a list of instructions.
#[derive(Debug, Clone)]
pub struct Filter(pub Vec<sock_filter>);

impl Filter {
    /// Installs the filter irrevocably for all threads of this process and all later child
    /// processes. The process must have set `no_new_privs`.
    ///
    /// # Errors
    ///
    /// When the kernel does not support filters.
    pub fn install(&self) -> nix::Result<()> {
        // The result may also be the ID of a thread that cannot install the filter.
        if self.load(libc::SECCOMP_FILTER_FLAG_TSYNC)? != 0 {
            return Err(Errno::ESRCH);
        }
        Ok(())
    }

    /// Filters the calls of this thread and of its descendants. Returns a descriptor that
    /// receives the calls for which the filter returns `SECCOMP_RET_USER_NOTIF`.
    ///
    /// # Errors
    ///
    /// When this kernel has no such descriptors, or the process has one already.
    pub fn install_with_listener(&self) -> nix::Result<OwnedFd> {
        let listener = self.load(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)?;
        let listener = i32::try_from(listener).map_err(|_| Errno::EBADF)?;
        // SAFETY: the kernel has just opened it.
        Ok(unsafe { OwnedFd::from_raw_fd(listener) })
    }

    /// Passes the filter to the kernel. Returns the result of the call, whose meaning depends on
    /// the flags.
    fn load(&self, flags: c_ulong) -> nix::Result<c_long> {
        let program = self.program();
        // SAFETY: the kernel copies the program, which outlives the call, and does not write to it.
        let result = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            )
        };
        Errno::result(result)
    }

    /// Returns the filter in the kernel's format, with a pointer to this filter's instructions.
    #[must_use]
    pub fn program(&self) -> libc::sock_fprog {
        libc::sock_fprog {
            len: u16::try_from(self.0.len()).unwrap_or(u16::MAX),
            filter: self.0.as_ptr().cast_mut(),
        }
    }

    /// Creates a filter that loads the call's number, and rejects other architectures and the
    /// second set.
    #[must_use]
    pub fn for_native_calls() -> Self {
        let mut filter = Self(Vec::new());
        filter.push(LOAD, ARCHITECTURE_OFFSET);
        filter.jump(EQUAL, ARCHITECTURE, 1, 0);
        filter.push(RETURN, REFUSE);
        filter.push(LOAD, NUMBER_OFFSET);
        filter.jump(AT_LEAST, X32_START, 0, 1);
        filter.push(RETURN, REFUSE);
        filter
    }

    /// Appends an instruction.
    pub fn push(&mut self, code: u16, k: u32) {
        self.jump(code, k, 0, 0);
    }

    /// Appends a jump that skips `jt` instructions if the condition holds, otherwise `jf`.
    pub fn jump(&mut self, code: u16, k: u32, jt: u8, jf: u8) {
        self.0.push(sock_filter { code, jt, jf, k });
    }

    /// Rejects these calls.
    pub fn refuse(&mut self, calls: &[c_long]) {
        for call in calls {
            self.return_for(*call, REFUSE);
        }
    }

    /// Returns `result` for a call.
    pub fn return_for(&mut self, call: c_long, result: u32) {
        self.jump(EQUAL, number(call), 0, 1);
        self.push(RETURN, result);
    }

    /// Rejects `clone` with flags for new namespaces.
    pub fn without_new_namespaces(&mut self) {
        self.jump(EQUAL, number(libc::SYS_clone), 0, 4);
        self.push(LOAD, ARGUMENT_OFFSETS[0]);
        self.jump(ANY_OF, NEW_NAMESPACES, 0, 1);
        self.push(RETURN, REFUSE);
        self.push(RETURN, ALLOW);
    }

    /// Allows a call only with these values of an argument.
    pub fn allow_only(&mut self, call: c_long, argument: u32, allowed: &[u32]) {
        let length = u8::try_from(2 + 2 * allowed.len()).unwrap_or(u8::MAX);
        self.jump(EQUAL, number(call), 0, length);
        self.push(LOAD, argument);
        for value in allowed {
            self.jump(EQUAL, *value, 0, 1);
            self.push(RETURN, ALLOW);
        }
        self.push(RETURN, REFUSE);
    }

    /// Allows a call only if its three arguments are in the range.
    pub fn allow_only_within(&mut self, call: c_long, range: &Range<u32>) {
        self.jump(EQUAL, number(call), 0, 16);
        for argument in ARGUMENT_OFFSETS {
            self.push(LOAD, argument);
            self.jump(AT_LEAST, range.start, 1, 0);
            self.push(RETURN, REFUSE);
            self.jump(AT_LEAST, range.end, 0, 1);
            self.push(RETURN, REFUSE);
        }
        self.push(RETURN, ALLOW);
    }
}

/// Loads a value (Linux v6.12, `include/uapi/linux/bpf_common.h`).
pub const LOAD: u16 = opcode(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS);
/// Jumps if the value is equal.
pub const EQUAL: u16 = opcode(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
/// Jumps if the value is greater or equal.
pub const AT_LEAST: u16 = opcode(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K);
/// Jumps if the value has any of these bits.
pub const ANY_OF: u16 = opcode(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K);
/// Ends the filter with a result.
pub const RETURN: u16 = opcode(libc::BPF_RET | libc::BPF_K);

#[expect(
    clippy::cast_possible_truncation,
    reason = "operation codes have 16 bits"
)]
const fn opcode(parts: u32) -> u16 {
    parts as u16
}

/// Returns the number of a call as filters compare it.
#[must_use]
pub fn number(call: c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}
