//! Builds the system call filters for the programs of labs, and for an agent that keeps
//! capabilities of the host's root.

use std::ops::Range;

use nix::libc::{self, c_long};

pub(crate) use crate::sandbox::seccomp::Filter;
use crate::sandbox::seccomp::{
    ALLOW, ARGUMENT_OFFSETS, AT_LEAST, FAIL_NOT_IMPLEMENTED, IO_PORTS, REFUSED, RETURN, X32_START,
};

/// System calls that are also refused to programs.
const REFUSED_TO_PROGRAMS_ONLY: &[c_long] = &[
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_process_mrelease,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
];

/// System calls that fail with `ENOSYS`, so that programs fall back to other calls. A filter cannot
/// read the flags of `clone3`, which are in memory. Operations of `io_uring` bypass filters (Linux
/// v6.12, `io_uring/io_uring.c`).
const NOT_IMPLEMENTED: &[c_long] = &[
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// System call numbers that were unassigned in the kernel that this list was checked against. The
/// last assigned number is `mseal` (Linux v6.12, `arch/x86/entry/syscalls/syscall_64.tbl`,
/// `scripts/syscall.tbl`). Later calls, such as `open_tree_attr`, fail with `ENOSYS` for programs.
#[cfg(target_arch = "x86_64")]
const UNASSIGNED: [Range<u32>; 2] = [335..424, 463..X32_START];
#[cfg(target_arch = "aarch64")]
const UNASSIGNED: [Range<u32>; 2] = [295..424, 463..X32_START];

/// System calls that change the user or group, other than the calls that the agent uses.
const CHANGE_USER: &[c_long] = &[
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
];

impl Filter {
    /// Creates the filter of an agent with capabilities of the host's root. The agent may enter
    /// network namespaces and the mount namespaces of its programs, and may change only to users of
    /// its programs.
    #[must_use]
    pub fn for_agent(users: &Range<u32>) -> Self {
        let mut filter = Self::for_native_calls();
        for calls in [REFUSED, IO_PORTS, CHANGE_USER] {
            filter.refuse(calls);
        }
        filter.return_for(libc::SYS_clone3, FAIL_NOT_IMPLEMENTED);
        filter.without_new_namespaces();
        let network = libc::CLONE_NEWNET as u32;
        filter.allow_only(libc::SYS_unshare, ARGUMENT_OFFSETS[0], &[network]);
        let entered = [network, libc::CLONE_NEWNS as u32];
        filter.allow_only(libc::SYS_setns, ARGUMENT_OFFSETS[1], &entered);
        for call in [libc::SYS_setresuid, libc::SYS_setresgid] {
            filter.allow_only_within(call, users);
        }
        filter.push(RETURN, ALLOW);
        filter
    }

    /// Creates the filter of the programs of labs.
    #[must_use]
    pub fn for_programs() -> Self {
        let mut filter = Self::for_native_calls();
        for range in UNASSIGNED {
            filter.jump(AT_LEAST, range.start, 0, 2);
            filter.jump(AT_LEAST, range.end, 1, 0);
            filter.push(RETURN, FAIL_NOT_IMPLEMENTED);
        }
        for calls in [REFUSED, REFUSED_TO_PROGRAMS_ONLY, IO_PORTS] {
            filter.refuse(calls);
        }
        for call in NOT_IMPLEMENTED {
            filter.return_for(*call, FAIL_NOT_IMPLEMENTED);
        }
        filter.without_new_namespaces();
        // A program may set its own limits, but not those of another process of its user.
        filter.allow_only(libc::SYS_prlimit64, ARGUMENT_OFFSETS[0], &[0]);
        filter.push(RETURN, ALLOW);
        filter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::seccomp::{
        ANY_OF, ARCHITECTURE, ARCHITECTURE_OFFSET, EQUAL, LOAD, NEW_NAMESPACES, NUMBER_OFFSET,
        REFUSE, number,
    };

    /// Returns the result of a filter for a call with these arguments.
    fn evaluate(filter: &Filter, call: u32, arguments: [u32; 3]) -> u32 {
        let part = |offset: u32| match offset {
            NUMBER_OFFSET => call,
            ARCHITECTURE_OFFSET => ARCHITECTURE,
            other => {
                let index = ARGUMENT_OFFSETS.iter().position(|offset| *offset == other);
                arguments[index.expect("a known argument offset")]
            }
        };
        let (mut index, mut loaded) = (0, 0);
        loop {
            let line = filter.0[index];
            index += 1;
            let holds = match line.code {
                LOAD => {
                    loaded = part(line.k);
                    continue;
                }
                RETURN => return line.k,
                EQUAL => loaded == line.k,
                AT_LEAST => loaded >= line.k,
                ANY_OF => loaded & line.k != 0,
                other => panic!("unknown operation {other}"),
            };
            index += usize::from(if holds { line.jt } else { line.jf });
        }
    }

    fn call(call: c_long) -> u32 {
        number(call)
    }

    #[test]
    fn program_filter_forbidden_calls_are_refused() {
        let filter = Filter::for_programs();
        for refused in [REFUSED, REFUSED_TO_PROGRAMS_ONLY, IO_PORTS]
            .into_iter()
            .flatten()
        {
            assert_eq!(
                evaluate(&filter, call(*refused), [0; 3]),
                REFUSE,
                "{refused}"
            );
        }
        for unknown in NOT_IMPLEMENTED {
            assert_eq!(
                evaluate(&filter, call(*unknown), [0; 3]),
                FAIL_NOT_IMPLEMENTED
            );
        }
        // `open_tree_attr`, two higher numbers, and a number in the gap.
        for number in [463, 467, 5000, 400] {
            assert_eq!(
                evaluate(&filter, number, [0; 3]),
                FAIL_NOT_IMPLEMENTED,
                "{number}"
            );
        }
        assert_eq!(evaluate(&filter, X32_START, [0; 3]), REFUSE);
        assert_eq!(evaluate(&filter, X32_START + 165, [0; 3]), REFUSE);
    }

    #[test]
    fn program_filter_ordinary_calls_are_allowed() {
        let filter = Filter::for_programs();
        for allowed in [
            libc::SYS_read,
            libc::SYS_execve,
            libc::SYS_rseq,
            libc::SYS_pidfd_open,
            libc::SYS_close_range,
            libc::SYS_openat2,
        ] {
            assert_eq!(evaluate(&filter, call(allowed), [7; 3]), ALLOW, "{allowed}");
        }
    }

    #[test]
    fn program_filter_clone_flags_decide() {
        let filter = Filter::for_programs();
        let clone = call(libc::SYS_clone);
        let thread = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_FILES) as u32;
        assert_eq!(evaluate(&filter, clone, [thread, 0, 0]), ALLOW);
        assert_eq!(
            evaluate(&filter, clone, [libc::SIGCHLD as u32, 0, 0]),
            ALLOW
        );
        for bit in 0..32 {
            let flag = 1_u32 << bit;
            let expected = if NEW_NAMESPACES & flag == 0 {
                ALLOW
            } else {
                REFUSE
            };
            assert_eq!(evaluate(&filter, clone, [flag, 0, 0]), expected);
        }
        let prlimit = call(libc::SYS_prlimit64);
        assert_eq!(evaluate(&filter, prlimit, [0, 7, 0]), ALLOW);
        assert_eq!(evaluate(&filter, prlimit, [1, 7, 0]), REFUSE);
    }

    #[test]
    fn agent_filter_other_namespaces_and_users_are_refused() {
        let filter = Filter::for_agent(&(1000..1010));
        let setresuid = call(libc::SYS_setresuid);
        assert_eq!(evaluate(&filter, setresuid, [1000; 3]), ALLOW);
        assert_eq!(evaluate(&filter, setresuid, [1009; 3]), ALLOW);
        for arguments in [
            [0, 1000, 1000],
            [1000, 0, 1000],
            [1000, 1000, 1010],
            [999; 3],
        ] {
            assert_eq!(evaluate(&filter, setresuid, arguments), REFUSE);
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
                evaluate(&filter, setns, [9, flag.cast_unsigned(), 0]),
                expected
            );
        }
        let unshare = call(libc::SYS_unshare);
        assert_eq!(
            evaluate(&filter, unshare, [libc::CLONE_NEWNET as u32, 0, 0]),
            ALLOW
        );
        assert_eq!(
            evaluate(&filter, unshare, [libc::CLONE_NEWPID as u32, 0, 0]),
            REFUSE
        );
        assert_eq!(evaluate(&filter, call(libc::SYS_setuid), [1000; 3]), REFUSE);
    }

    #[test]
    fn filter_jumps_end_within_filter() {
        for filter in [Filter::for_programs(), Filter::for_agent(&(5..6))] {
            for (at, line) in filter.0.iter().enumerate() {
                let is_jump = u32::from(line.code) & 7 == libc::BPF_JMP;
                let farthest = if is_jump { line.jt.max(line.jf) } else { 0 };
                assert!(at + usize::from(farthest) + 1 < filter.0.len() || line.code == RETURN);
            }
            assert_eq!(filter.0.last().expect("a filter has instructions").k, ALLOW);
        }
    }
}
