//! Filters of system calls (seccomp): one for the programs of labs, one for the
//! agent that keeps rights of the machine's own root.

use std::io;
use std::ops::Range;

use nix::errno::Errno;
use nix::libc::{self, c_long, sock_filter};

/// System calls that neither needs and that lead beyond networks: mounts, modules,
/// files by handle, programs in the kernel, keys, other processes' memory.
const REFUSED: &[c_long] = &[
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

/// What programs are refused besides.
const REFUSED_TO_PROGRAMS: &[c_long] = &[
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_process_mrelease,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
];

/// Port access, which only this kind of processor has.
#[cfg(target_arch = "x86_64")]
const PORTS: &[c_long] = &[libc::SYS_iopl, libc::SYS_ioperm];
#[cfg(not(target_arch = "x86_64"))]
const PORTS: &[c_long] = &[];

/// Calls that programs are told do not exist, so that they use others: the flags of
/// `clone3` lie in memory, where no filter sees them, and what `io_uring` does passes no
/// filter (Linux v6.12, `io_uring/io_uring.c`).
const UNKNOWN: &[c_long] = &[
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Numbers that no system call had which this list was held against; the last one is
/// `mseal` (Linux v6.12, `arch/x86/entry/syscalls/syscall_64.tbl`, `scripts/syscall.tbl`).
/// Later calls, such as `open_tree_attr`, do not exist for programs.
#[cfg(target_arch = "x86_64")]
const UNASSIGNED: [Range<u32>; 2] = [335..424, 463..SECOND_SET];
#[cfg(target_arch = "aarch64")]
const UNASSIGNED: [Range<u32>; 2] = [295..424, 463..SECOND_SET];

/// Changes of user and group by calls with fewer arguments than the agent's own.
const OTHER_USERS: &[c_long] = &[
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
];

/// The number of this processor's kind in the kernel's audits, which says what
/// system calls' numbers mean (Linux v6.12, `include/uapi/linux/audit.h`).
#[cfg(target_arch = "x86_64")]
pub(crate) const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCHITECTURE: u32 = 0xC000_00B7;

/// From here on numbers are those of a second set of the same calls (x32).
pub(crate) const SECOND_SET: u32 = 0x4000_0000;

/// The flags of `clone` that make namespaces. That of time namespaces lies where `clone`
/// has the number of a signal (Linux v6.12, `include/uapi/linux/sched.h`).
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Where the parts of a call lie that a filter looks at (Linux v6.12,
/// `include/uapi/linux/seccomp.h`, `struct seccomp_data`). Of arguments the low
/// half, which holds all that the calls in question look at.
const NUMBER: u32 = 0;
const KIND: u32 = 4;
const ARGUMENTS: [u32; 3] = [16, 24, 32];

const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | Errno::EPERM as u32;
const DENY_EXISTENCE: u32 = libc::SECCOMP_RET_ERRNO | Errno::ENOSYS as u32;
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// A filter, instruction by instruction.
#[derive(Debug, Clone)]
pub struct Filter(Vec<sock_filter>);

impl Filter {
    /// For the agent with rights of the machine's own root: network namespaces and those
    /// that its programs are in may be entered, and of users only those of its programs
    /// may be become.
    pub fn of_agent(users: &Range<u32>) -> Self {
        let mut filter = Self::begin();
        let lists = [REFUSED, PORTS, OTHER_USERS];
        for call in lists.into_iter().flatten() {
            filter.ends(*call, REFUSE);
        }
        filter.ends(libc::SYS_clone3, DENY_EXISTENCE);
        filter.without_new_namespaces();
        let network = libc::CLONE_NEWNET as u32;
        filter.only(libc::SYS_unshare, ARGUMENTS[0], &[network]);
        let entered = [network, libc::CLONE_NEWNS as u32];
        filter.only(libc::SYS_setns, ARGUMENTS[1], &entered);
        for call in [libc::SYS_setresuid, libc::SYS_setresgid] {
            filter.only_within(call, users);
        }
        filter.push(RETURN, ALLOW);
        filter
    }

    /// For the programs of labs.
    pub fn of_programs() -> Self {
        let mut filter = Self::begin();
        for range in UNASSIGNED {
            filter.jump(AT_LEAST, range.start, 0, 2);
            filter.jump(AT_LEAST, range.end, 1, 0);
            filter.push(RETURN, DENY_EXISTENCE);
        }
        let lists = [REFUSED, REFUSED_TO_PROGRAMS, PORTS];
        for call in lists.into_iter().flatten() {
            filter.ends(*call, REFUSE);
        }
        for call in UNKNOWN {
            filter.ends(*call, DENY_EXISTENCE);
        }
        filter.without_new_namespaces();
        // Of others no limits are set: whoever has the same user might.
        filter.only(libc::SYS_prlimit64, ARGUMENTS[0], &[0]);
        filter.push(RETURN, ALLOW);
        filter
    }

    /// Refuses all threads of this process and all that come of it, for good, what the
    /// filter does not allow. New privileges must have been given up.
    ///
    /// # Errors
    ///
    /// When this kernel has no such filters.
    pub fn install(&self) -> io::Result<()> {
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
            return Err(Errno::ESRCH.into());
        }
        Ok(())
    }

    /// The filter as the kernel takes it, which points to this one's instructions.
    pub fn program(&self) -> libc::sock_fprog {
        libc::sock_fprog {
            len: u16::try_from(self.0.len()).unwrap_or(u16::MAX),
            filter: self.0.as_ptr().cast_mut(),
        }
    }

    /// Loads the call's number, if it is one of this processor's first set.
    fn begin() -> Self {
        let mut filter = Self(Vec::new());
        filter.push(LOAD, KIND);
        filter.jump(EQUAL, ARCHITECTURE, 1, 0);
        filter.push(RETURN, REFUSE);
        filter.push(LOAD, NUMBER);
        filter.jump(AT_LEAST, SECOND_SET, 0, 1);
        filter.push(RETURN, REFUSE);
        filter
    }

    fn push(&mut self, code: u16, k: u32) {
        self.jump(code, k, 0, 0);
    }

    fn jump(&mut self, code: u16, k: u32, jt: u8, jf: u8) {
        self.0.push(sock_filter { code, jt, jf, k });
    }

    /// Answers a call so.
    fn ends(&mut self, call: c_long, how: u32) {
        self.jump(EQUAL, number(call), 0, 1);
        self.push(RETURN, how);
    }

    /// Refuses `clone` with flags for new namespaces.
    fn without_new_namespaces(&mut self) {
        self.jump(EQUAL, number(libc::SYS_clone), 0, 4);
        self.push(LOAD, ARGUMENTS[0]);
        self.jump(ANY_OF, NEW_NAMESPACES, 0, 1);
        self.push(RETURN, REFUSE);
        self.push(RETURN, ALLOW);
    }

    /// Allows a call with these values of an argument only.
    fn only(&mut self, call: c_long, argument: u32, allowed: &[u32]) {
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
    fn only_within(&mut self, call: c_long, range: &Range<u32>) {
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
const LOAD: u16 = code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS);
const EQUAL: u16 = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
const AT_LEAST: u16 = code(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K);
const ANY_OF: u16 = code(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K);
const RETURN: u16 = code(libc::BPF_RET | libc::BPF_K);

#[expect(
    clippy::cast_possible_truncation,
    reason = "an operation's parts are numbers of 16 bits"
)]
const fn code(parts: u32) -> u16 {
    parts as u16
}

fn number(call: c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a filter answers to a call with these arguments.
    fn answer(filter: &Filter, call: u32, arguments: [u32; 3]) -> u32 {
        let part = |offset: u32| match offset {
            NUMBER => call,
            KIND => ARCHITECTURE,
            other => {
                let at = ARGUMENTS.iter().position(|offset| *offset == other);
                arguments[at.expect("an argument")]
            }
        };
        let (mut at, mut loaded) = (0, 0);
        loop {
            let line = filter.0[at];
            at += 1;
            let holds = match line.code {
                LOAD => {
                    loaded = part(line.k);
                    continue;
                }
                RETURN => return line.k,
                EQUAL => loaded == line.k,
                AT_LEAST => loaded >= line.k,
                ANY_OF => loaded & line.k != 0,
                other => panic!("operation {other}"),
            };
            at += usize::from(if holds { line.jt } else { line.jf });
        }
    }

    fn call(number: c_long) -> u32 {
        super::number(number)
    }

    #[test]
    fn program_filter_forbidden_calls_are_refused() {
        let filter = Filter::of_programs();
        for refused in [REFUSED, REFUSED_TO_PROGRAMS, PORTS].into_iter().flatten() {
            assert_eq!(answer(&filter, call(*refused), [0; 3]), REFUSE, "{refused}");
        }
        for unknown in UNKNOWN {
            assert_eq!(answer(&filter, call(*unknown), [0; 3]), DENY_EXISTENCE);
        }
        // open_tree_attr, one far beyond it, and one in the gap.
        for number in [463, 467, 5000, 400] {
            assert_eq!(answer(&filter, number, [0; 3]), DENY_EXISTENCE, "{number}");
        }
        assert_eq!(answer(&filter, SECOND_SET, [0; 3]), REFUSE);
        assert_eq!(answer(&filter, SECOND_SET + 165, [0; 3]), REFUSE);
    }

    #[test]
    fn program_filter_ordinary_calls_are_allowed() {
        let filter = Filter::of_programs();
        for allowed in [
            libc::SYS_read,
            libc::SYS_execve,
            libc::SYS_rseq,
            libc::SYS_pidfd_open,
            libc::SYS_close_range,
            libc::SYS_openat2,
        ] {
            assert_eq!(answer(&filter, call(allowed), [7; 3]), ALLOW, "{allowed}");
        }
    }

    #[test]
    fn program_filter_clone_is_told_by_its_flags() {
        let filter = Filter::of_programs();
        let clone = call(libc::SYS_clone);
        let thread = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_FILES) as u32;
        assert_eq!(answer(&filter, clone, [thread, 0, 0]), ALLOW);
        assert_eq!(answer(&filter, clone, [libc::SIGCHLD as u32, 0, 0]), ALLOW);
        for bit in 0..32 {
            let flag = 1_u32 << bit;
            let expected = if NEW_NAMESPACES & flag == 0 {
                ALLOW
            } else {
                REFUSE
            };
            assert_eq!(answer(&filter, clone, [flag, 0, 0]), expected);
        }
        let prlimit = call(libc::SYS_prlimit64);
        assert_eq!(answer(&filter, prlimit, [0, 7, 0]), ALLOW);
        assert_eq!(answer(&filter, prlimit, [1, 7, 0]), REFUSE);
    }

    #[test]
    fn agent_filter_enters_and_becomes_only_its_own() {
        let filter = Filter::of_agent(&(1000..1010));
        let setresuid = call(libc::SYS_setresuid);
        assert_eq!(answer(&filter, setresuid, [1000; 3]), ALLOW);
        assert_eq!(answer(&filter, setresuid, [1009; 3]), ALLOW);
        for arguments in [
            [0, 1000, 1000],
            [1000, 0, 1000],
            [1000, 1000, 1010],
            [999; 3],
        ] {
            assert_eq!(answer(&filter, setresuid, arguments), REFUSE);
        }
        let setns = call(libc::SYS_setns);
        for (flag, expected) in [
            (libc::CLONE_NEWNET, ALLOW),
            (libc::CLONE_NEWPID, REFUSE),
            (libc::CLONE_NEWNS, ALLOW),
            (libc::CLONE_NEWUSER, REFUSE),
            (0, REFUSE),
        ] {
            assert_eq!(
                answer(&filter, setns, [9, flag.cast_unsigned(), 0]),
                expected
            );
        }
        let unshare = call(libc::SYS_unshare);
        assert_eq!(
            answer(&filter, unshare, [libc::CLONE_NEWNET as u32, 0, 0]),
            ALLOW
        );
        assert_eq!(
            answer(&filter, unshare, [libc::CLONE_NEWPID as u32, 0, 0]),
            REFUSE
        );
        assert_eq!(answer(&filter, call(libc::SYS_setuid), [1000; 3]), REFUSE);
    }

    #[test]
    fn filters_every_path_ends_within_the_filter() {
        for filter in [Filter::of_programs(), Filter::of_agent(&(5..6))] {
            for (at, line) in filter.0.iter().enumerate() {
                let is_jump = u32::from(line.code) & 7 == libc::BPF_JMP;
                let farthest = if is_jump { line.jt.max(line.jf) } else { 0 };
                assert!(at + usize::from(farthest) + 1 < filter.0.len() || line.code == RETURN);
            }
            assert_eq!(filter.0.last().expect("a line").k, ALLOW);
        }
    }
}
