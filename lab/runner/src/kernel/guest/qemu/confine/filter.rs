//! System call filter that QEMU starts with. The filter rejects calls that would reach beyond the
//! process where namespaces are missing: sockets, signals, memory and descriptors of other
//! processes, mounts, namespaces. QEMU adds its own sandbox.

use std::os::fd::OwnedFd;

use nix::libc::{self, c_long};

use svclab_agent::seccomp::{
    self, ALLOW, ARGUMENT_OFFSETS, AT_LEAST, EQUAL, FAIL_NOT_IMPLEMENTED, IO_PORTS, LOAD, REFUSED,
    RETURN, number,
};

/// Calls that QEMU does not need. Its sockets are connected, and it neither starts nor inspects
/// processes.
const REFUSED_CALLS: &[c_long] = &[
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
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_mrelease,
    libc::SYS_migrate_pages,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mknodat,
    libc::SYS_vhangup,
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
    libc::SYS_modify_ldt,
];

/// Last call that this filter covers (Linux v6.12, `include/uapi/asm-generic/unistd.h`). Later
/// calls do not exist for QEMU.
const LAST_CALL: c_long = libc::SYS_mseal;

pub(super) struct Filter {
    program: seccomp::Filter,
    /// Indices of the instructions that compare with the ID of the process itself.
    own_process_comparisons: Vec<usize>,
    /// Where the program decides about files opened to be read and written, if a
    /// listener is to be asked.
    asks: Option<usize>,
}

impl Filter {
    /// Creates the filter. [`Self::load`] fills in the process that it is loaded in. With `asks`, a
    /// listener decides about each `openat` with exactly `O_RDWR`.
    pub(super) fn new(asks: bool) -> Self {
        let mut program = seccomp::Filter::for_native_calls();
        program.jump(AT_LEAST, number(LAST_CALL) + 1, 0, 1);
        program.push(RETURN, FAIL_NOT_IMPLEMENTED);
        // The arguments of `clone3` are in memory. The C library falls back to `clone`.
        program.return_for(libc::SYS_clone3, FAIL_NOT_IMPLEMENTED);
        for calls in [REFUSED, IO_PORTS, REFUSED_CALLS] {
            program.refuse(calls);
        }
        program.without_new_namespaces();
        let mut own_process_comparisons = Vec::new();
        for call in [libc::SYS_kill, libc::SYS_tgkill] {
            // The comparison is the third of these instructions.
            own_process_comparisons.push(program.0.len() + 2);
            program.allow_only(call, ARGUMENT_OFFSETS[0], &[0]);
        }
        let asks = asks.then(|| {
            program.jump(EQUAL, number(libc::SYS_openat), 0, 3);
            program.push(LOAD, ARGUMENT_OFFSETS[2]);
            program.jump(EQUAL, libc::O_RDWR.unsigned_abs(), 0, 1);
            program.push(RETURN, libc::SECCOMP_RET_USER_NOTIF);
            program.0.len() - 1
        });
        program.push(RETURN, ALLOW);
        Self {
            program,
            own_process_comparisons,
            asks,
        }
    }

    /// Loads the filter for the calling process, which must have set `no_new_privs`. Returns the
    /// listener. `None` means that no listener is wanted, that the kernel has none (before 5.5), or
    /// that it rejects a second listener (Linux v6.12, `kernel/seccomp.c`,
    /// `has_duplicate_listener`).
    pub(super) fn load(&mut self) -> nix::Result<Option<OwnedFd>> {
        let process = nix::unistd::getpid().as_raw().unsigned_abs();
        for line in &self.own_process_comparisons {
            self.program.0[*line].k = process;
        }
        if let Some(line) = self.asks {
            match self.program.install_with_listener() {
                Ok(listener) => return Ok(Some(listener)),
                Err(_) => self.program.0[line].k = ALLOW,
            }
        }
        self.program.install().map(|()| None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_jumps_stay_inside_the_program() {
        for asks in [false, true] {
            let Filter {
                program,
                own_process_comparisons: comparisons,
                ..
            } = Filter::new(asks);
            for (index, line) in program.0.iter().enumerate() {
                let is_jump = u32::from(line.code) & 7 == libc::BPF_JMP;
                let farthest = if is_jump { line.jt.max(line.jf) } else { 0 };
                assert!(index + usize::from(farthest) < program.0.len());
            }
            assert_eq!(comparisons.len(), 2);
            assert_eq!(program.0.last().unwrap().k, libc::SECCOMP_RET_ALLOW);
        }
    }
}
