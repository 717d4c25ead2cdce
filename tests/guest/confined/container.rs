//! Restricts a command like a container with Docker's default profile: capabilities (moby v28,
//! `oci/caps/defaults.go`) and system call filter (moby v28, `profiles/seccomp/default.json`).
//! Includes all restrictions that svclab could notice.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::errno::Errno;
use nix::libc::{self, c_long, c_ulong};

/// `CAP_CHOWN`, `DAC_OVERRIDE`, `FOWNER`, `FSETID`, `KILL`, `SETGID`, `SETUID`,
/// `SETPCAP`, `NET_BIND_SERVICE`, `NET_RAW`, `SYS_CHROOT`, `MKNOD`,
/// `AUDIT_WRITE`, `SETFCAP`.
const CAPABILITIES: [c_ulong; 14] = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31];

/// System calls that the profile omits, or allows only with capabilities that such a container
/// lacks.
const REFUSED: &[c_long] = &[
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_open_by_handle_at,
];

/// Flags of `clone` that create namespaces: 2114060288 in the profile.
const NAMESPACES: u32 = 0x7E02_0000;

/// Restricts a command like such a container. The calling process must be root.
pub fn restrict(command: &mut Command) {
    let filter = syscall_filter();
    // SAFETY: only system calls are made between fork and exec.
    unsafe {
        command.pre_exec(move || {
            // Before the capabilities are dropped: without `no_new_privs`, which Docker does not
            // set, installing a filter needs CAP_SYS_ADMIN.
            let program = libc::sock_fprog {
                len: u16::try_from(filter.len()).unwrap_or(0),
                filter: filter.as_ptr().cast_mut(),
            };
            let mode = c_ulong::from(libc::SECCOMP_MODE_FILTER);
            Errno::result(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program))?;
            for capability in 0..=40 {
                if !CAPABILITIES.contains(&capability) {
                    let none: c_ulong = 0;
                    Errno::result(libc::prctl(
                        libc::PR_CAPBSET_DROP,
                        capability,
                        none,
                        none,
                        none,
                    ))?;
                }
            }
            Ok(())
        });
    }
}

fn syscall_filter() -> Vec<libc::sock_filter> {
    let code = |parts: u32| u16::try_from(parts).expect("16 bits");
    let line = |parts, k, jt, jf| libc::sock_filter {
        code: code(parts),
        jt,
        jf,
        k,
    };
    let word = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let any = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    let end = libc::BPF_RET | libc::BPF_K;
    let error = |errno: Errno| {
        let number = u32::try_from(errno as i32).expect("the number fits");
        line(end, libc::SECCOMP_RET_ERRNO | number, 0, 0)
    };
    let number = |call: c_long| u32::try_from(call).expect("the number fits");
    let mut program = vec![line(word, 0, 0, 0)];
    for call in REFUSED {
        program.extend([line(equal, number(*call), 0, 1), error(Errno::EPERM)]);
    }
    program.extend([
        line(equal, number(libc::SYS_clone3), 0, 1),
        error(Errno::ENOSYS),
        line(equal, number(libc::SYS_clone), 0, 3),
        line(word, 16, 0, 0),
        line(any, NAMESPACES, 0, 1),
        error(Errno::EPERM),
        line(end, libc::SECCOMP_RET_ALLOW, 0, 0),
    ]);
    program
}
