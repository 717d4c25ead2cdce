//! The system call filter that QEMU starts with. It refuses what would reach
//! beyond the process where namespaces are missing: sockets, signals, other
//! processes' memory and descriptors, mounts, namespaces. QEMU adds its own
//! sandbox to it.

use nix::errno::Errno;
use nix::libc::{self, c_long, c_ulong};

use crate::agent::filter::{ARCHITECTURE, SECOND_SET};

/// Calls that QEMU has no use for. It gets its sockets connected, and neither
/// starts nor inspects processes.
const REFUSED: &[c_long] = &[
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_unshare,
    libc::SYS_setns,
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
    libc::SYS_mknodat,
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
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// The last call that this filter was written for (Linux v6.12,
/// `include/uapi/asm-generic/unistd.h`); later ones do not exist for QEMU.
const LAST: c_long = libc::SYS_mseal;

/// Flags of `clone` that make namespaces (Linux v6.12,
/// `include/uapi/linux/sched.h`).
const NAMESPACES: u32 = 0x7E02_0000;

/// Offsets in `struct seccomp_data` (Linux v6.12,
/// `include/uapi/linux/seccomp.h`): the call, the processor's kind, and the low
/// half of the first argument.
const NUMBER: u32 = 0;
const KIND: u32 = 4;
const FIRST: u32 = 16;

/// The filter.
pub struct Filter {
    program: Vec<libc::sock_filter>,
    /// Where the program compares with the process's own number.
    own: Vec<usize>,
}

impl Filter {
    /// The filter; the process that it is loaded in is filled in by [`Self::load`].
    pub fn new() -> Self {
        let word = code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS);
        let equal = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
        let above = code(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K);
        let any = code(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K);
        let end = code(libc::BPF_RET | libc::BPF_K);
        let line = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
        let error = |errno: Errno| {
            let number = (errno as i32).unsigned_abs();
            line(end, libc::SECCOMP_RET_ERRNO | number, 0, 0)
        };
        let (refuse, lack) = (error(Errno::EPERM), error(Errno::ENOSYS));
        let allow = line(end, libc::SECCOMP_RET_ALLOW, 0, 0);
        let number = |call: c_long| u32::try_from(call).unwrap_or(u32::MAX);
        let mut program = vec![
            line(word, KIND, 0, 0),
            line(equal, ARCHITECTURE, 1, 0),
            refuse,
            line(word, NUMBER, 0, 0),
            line(above, SECOND_SET, 0, 1),
            refuse,
            line(above, number(LAST) + 1, 0, 1),
            lack,
            // Its arguments lie in memory; the C library falls back to `clone`.
            line(equal, number(libc::SYS_clone3), 0, 1),
            lack,
        ];
        for call in REFUSED {
            program.extend([line(equal, number(*call), 0, 1), refuse]);
        }
        program.extend([
            line(equal, number(libc::SYS_clone), 0, 4),
            line(word, FIRST, 0, 0),
            line(any, NAMESPACES, 0, 1),
            refuse,
            allow,
        ]);
        let mut own = Vec::new();
        for call in [libc::SYS_kill, libc::SYS_tgkill] {
            program.push(line(equal, number(call), 0, 4));
            program.push(line(word, FIRST, 0, 0));
            own.push(program.len());
            program.extend([line(equal, 0, 1, 0), refuse, allow]);
        }
        program.push(allow);
        Self { program, own }
    }

    /// Loads the filter for the calling process, which must have given up gaining
    /// privileges.
    pub fn load(&mut self) -> nix::Result<()> {
        let process = nix::unistd::getpid().as_raw().unsigned_abs();
        for line in &self.own {
            self.program[*line].k = process;
        }
        let program = libc::sock_fprog {
            len: u16::try_from(self.program.len()).unwrap_or(u16::MAX),
            filter: self.program.as_mut_ptr(),
        };
        let none: c_ulong = 0;
        // SAFETY: the kernel copies the program, which outlives the call.
        let done = unsafe {
            libc::prctl(
                libc::PR_SET_SECCOMP,
                c_ulong::from(libc::SECCOMP_MODE_FILTER),
                &raw const program,
                none,
                none,
            )
        };
        Errno::result(done).map(drop)
    }
}

fn code(parts: u32) -> u16 {
    u16::try_from(parts).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_jumps_stay_inside_the_program() {
        let Filter { program, own } = Filter::new();
        for (index, line) in program.iter().enumerate() {
            let is_jump = u32::from(line.code) & 7 == libc::BPF_JMP;
            let farthest = if is_jump { line.jt.max(line.jf) } else { 0 };
            assert!(index + usize::from(farthest) < program.len());
        }
        assert_eq!(own.len(), 2);
        assert_eq!(program.last().unwrap().k, libc::SECCOMP_RET_ALLOW);
    }
}
