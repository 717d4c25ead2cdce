//! The rights that an agent of the machine's own root keeps, and what it may
//! ask the kernel for with them.
//!
//! IPVS wants `CAP_NET_ADMIN` in the first user namespace, of whoever opened the
//! socket and of whoever writes to it (Linux v6.12,
//! `net/netfilter/ipvs/ip_vs_ctl.c`, `GENL_ADMIN_PERM`;
//! `net/netlink/af_netlink.c`, `__netlink_ns_capable`), and gives its settings
//! before 6.11 to network namespaces of the first user namespace only
//! (`ip_vs_control_net_init_sysctl`). So such an agent has no user namespace to
//! be contained by, and keeps, for as long as it lives:
//!
//! - `CAP_NET_ADMIN` and `CAP_NET_RAW`: rules, sets, IPVS, links; captures. The
//!   programs that it starts get these two and no more.
//! - `CAP_NET_BIND_SERVICE`: servers on ports below 1024.
//! - `CAP_SYS_ADMIN`, which making a network namespace and every step into one
//!   takes (`kernel/nsproxy.c`, `net/core/net_namespace.c`, `netns_install`).
//!   It is what remains of danger, and so a filter refuses what else it would
//!   allow: mounting of any kind, entering and making other namespaces, BPF,
//!   performance counters, keys, swapping, quotas, files by handle.
//!
//! All capabilities hold for one user without privileges, to whom no file of
//! the machine's belongs: what root may do as the owner of files, such as
//! writing `/proc/sys/vm`, it may not.

use std::io;

use nix::errno::Errno;
use nix::libc::{self, c_long, c_ulong};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setresgid, setresuid};

/// A capability's number (Linux v6.12, `include/uapi/linux/capability.h`).
type Capability = u32;

pub(crate) const KILL: Capability = 5;
pub(crate) const SETGID: Capability = 6;
pub(crate) const SETUID: Capability = 7;
const SETPCAP: Capability = 8;
const NET_BIND_SERVICE: Capability = 10;
const NET_ADMIN: Capability = 12;
const NET_RAW: Capability = 13;
const SYS_CHROOT: Capability = 18;
const SYS_ADMIN: Capability = 21;

/// What programs that the agent starts keep.
const HANDED_ON: [Capability; 2] = [NET_ADMIN, NET_RAW];

/// What the agent itself keeps.
const KEPT: [Capability; 4] = [NET_ADMIN, NET_RAW, NET_BIND_SERVICE, SYS_ADMIN];

/// What root needs to come that far: besides what is kept, to change its user
/// and to give the rest up.
const NEEDED: [Capability; 8] = [
    NET_ADMIN,
    NET_RAW,
    NET_BIND_SERVICE,
    SYS_ADMIN,
    SYS_CHROOT,
    SETPCAP,
    SETGID,
    SETUID,
];

/// What svclab is when it is root somewhere else.
pub const NOT_OF_MACHINE: &str = "is root of a user namespace only, not of the machine";

/// The inode of the first user namespace (Linux v6.12,
/// `include/linux/proc_ns.h`, `PROC_USER_INIT_INO`).
const FIRST_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// Whether this process is the machine's own root with what an agent for IPVS
/// takes.
///
/// # Errors
///
/// What it is instead, in words that follow "svclab".
pub fn are_those_of_root() -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;
    if !nix::unistd::geteuid().is_root() {
        return Err("runs without root".to_owned());
    }
    let namespace = std::fs::metadata("/proc/self/ns/user").map(|found| found.ino());
    if !namespace.is_ok_and(|inode| inode == FIRST_USER_NAMESPACE) {
        return Err(NOT_OF_MACHINE.to_owned());
    }
    let held = held();
    if NEEDED.iter().any(|wanted| held & (1 << wanted) == 0) {
        return Err(
            "is root without its capabilities, as in a container without --privileged".to_owned(),
        );
    }
    Ok(())
}

/// Whether this process may administer the system, or the container, it is in.
pub fn are_an_administrator_s() -> bool {
    held() & (1 << SYS_ADMIN) != 0
}

/// Whether this process has a capability in effect.
pub(crate) fn has(capability: u32) -> bool {
    held() & (1 << capability) != 0
}

/// Drops every capability from the bounding set. System calls only.
pub(crate) fn drop_bounding_set() -> Result<(), Errno> {
    for capability in 0..64 {
        match control(libc::PR_CAPBSET_DROP, capability, 0) {
            Ok(()) => {}
            // This kernel has no more of them.
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The capabilities of this process that are in effect.
fn held() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective(&status).unwrap_or(0)
}

/// The capabilities in effect, out of `/proc/self/status`.
fn effective(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Makes this process, root's so far, that of a user without privileges who
/// holds [`KEPT`] and can gain nothing.
///
/// # Errors
///
/// The step that failed, and why.
pub fn give_up(user: u32) -> Result<(), (&'static str, Errno)> {
    let at = |step: &'static str| move |errno: Errno| (step, errno);
    // Programs begin with what is both handed on and in this set.
    for capability in 0..64 {
        if HANDED_ON.contains(&capability) {
            continue;
        }
        match control(libc::PR_CAPBSET_DROP, capability.into(), 0) {
            Ok(()) => {}
            // This kernel knows no more of them.
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(("give up what programs could gain", errno)),
        }
    }
    prctl::set_keepcaps(true).map_err(at("keep capabilities"))?;
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    setresgid(gid, gid, gid)
        .and_then(|()| setresuid(uid, uid, uid))
        .map_err(at("become an unprivileged user"))?;
    prctl::set_keepcaps(false).map_err(at("keep capabilities no longer"))?;
    set_capabilities(mask(&KEPT), mask(&HANDED_ON)).map_err(at("give up capabilities"))?;
    for capability in HANDED_ON {
        let raise = c_ulong::from(libc::PR_CAP_AMBIENT_RAISE.unsigned_abs());
        control(libc::PR_CAP_AMBIENT, raise, capability.into())
            .map_err(at("hand on capabilities"))?;
    }
    // Another user's process is closed to itself otherwise.
    prctl::set_dumpable(true).map_err(at("look at itself"))
}

const fn mask(capabilities: &[Capability]) -> u64 {
    let mut mask = 0;
    let mut at = 0;
    while at < capabilities.len() {
        mask |= 1 << capabilities[at];
        at += 1;
    }
    mask
}

fn control(option: libc::c_int, one: c_ulong, two: c_ulong) -> Result<(), Errno> {
    let none: c_ulong = 0;
    // SAFETY: these options take numbers only.
    let done = unsafe { libc::prctl(option, one, two, none, none) };
    Errno::result(done).map(drop)
}

/// What `capset` takes (Linux v6.12, `include/uapi/linux/capability.h`): a
/// header, and each set in two halves.
#[repr(C)]
struct Header {
    version: u32,
    process: i32,
}

#[repr(C)]
#[derive(Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

pub(crate) fn set_capabilities(held: u64, inheritable: u64) -> Result<(), Errno> {
    let header = Header {
        version: 0x2008_0522,
        process: 0,
    };
    let low = |set: u64| u32::try_from(set & u64::from(u32::MAX)).unwrap_or(0);
    let half = |shift: u32| Half {
        effective: low(held >> shift),
        permitted: low(held >> shift),
        inheritable: low(inheritable >> shift),
    };
    let halves = [half(0), half(32)];
    // SAFETY: both point to what this version of the call reads.
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw const header, halves.as_ptr()) };
    Errno::result(done).map(drop)
}

/// System calls that this agent and its programs have no use for and that its
/// capabilities, or a user namespace made by them, would make dangerous.
const REFUSED: [c_long; 38] = [
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
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_mknodat,
];

/// The number of this processor's kind in the kernel's audits, which says what
/// system calls' numbers mean (Linux v6.12, `include/uapi/linux/audit.h`).
#[cfg(target_arch = "x86_64")]
pub(crate) const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCHITECTURE: u32 = 0xC000_00B7;

/// From here on numbers are those of a second set of the same calls (x32).
pub(crate) const SECOND_SET: u32 = 0x4000_0000;

/// Refuses this process and all that come of it, for good, what they have no
/// use for. New privileges must have been given up.
///
/// # Errors
///
/// When this kernel has no such filters.
pub fn filter() -> io::Result<()> {
    let program = program();
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let handed = libc::sock_fprog {
        len: length,
        filter: program.as_ptr().cast_mut(),
    };
    let none: c_ulong = 0;
    // SAFETY: the kernel copies the program, which outlives the call, and does
    // not write to it.
    let done = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            c_ulong::from(libc::SECCOMP_MODE_FILTER),
            &raw const handed,
            none,
            none,
        )
    };
    Errno::result(done)?;
    Ok(())
}

/// Where the parts of a call lie that a filter looks at (Linux v6.12,
/// `include/uapi/linux/seccomp.h`, `struct seccomp_data`). Of arguments the low
/// half, which holds all that `unshare` and `setns` look at.
const NUMBER: u32 = 0;
const KIND: u32 = 4;
const FIRST: u32 = 16;
const SECOND: u32 = 24;

/// A filter's operation: its parts are numbers of 16 bits.
fn code(parts: u32) -> u16 {
    u16::try_from(parts).unwrap_or(u16::MAX)
}

/// The filter: a few jumps for each call.
fn program() -> Vec<libc::sock_filter> {
    let load = code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS);
    let equal = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
    let above = code(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K);
    let end = code(libc::BPF_RET | libc::BPF_K);
    let line = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let refusal = libc::SECCOMP_RET_ERRNO | Errno::EPERM as u32;
    let refuse = line(end, refusal, 0, 0);
    let number = |call: c_long| u32::try_from(call).unwrap_or(u32::MAX);
    let mut program = vec![
        line(load, KIND, 0, 0),
        line(equal, ARCHITECTURE, 1, 0),
        refuse,
        line(load, NUMBER, 0, 0),
        line(above, SECOND_SET, 0, 1),
        refuse,
    ];
    for call in REFUSED {
        program.extend([line(equal, number(call), 0, 1), refuse]);
    }
    // Network namespaces are what the agent works with, and no others.
    let network = libc::CLONE_NEWNET as u32;
    for (call, argument) in [(libc::SYS_unshare, FIRST), (libc::SYS_setns, SECOND)] {
        program.extend([
            line(equal, number(call), 0, 4),
            line(load, argument, 0, 0),
            line(equal, network, 1, 0),
            refuse,
            line(end, libc::SECCOMP_RET_ALLOW, 0, 0),
        ]);
    }
    program.push(line(end, libc::SECCOMP_RET_ALLOW, 0, 0));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_in_effect_are_read_from_a_status() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\n";
        assert_eq!(effective(status), Some(0x1ff_ffff_ffff));
        assert_eq!(effective("Name:\tx\n"), None);
    }

    #[test]
    fn no_line_of_the_filter_leads_beyond_its_end() {
        let program = program();
        for (at, line) in program.iter().enumerate() {
            let is_jump = u32::from(line.code) & 7 == libc::BPF_JMP;
            let farthest = if is_jump { line.jt.max(line.jf) } else { 0 };
            assert!(at + usize::from(farthest) < program.len());
        }
        let last = program.last().unwrap();
        assert_eq!(last.k, libc::SECCOMP_RET_ALLOW);
    }
}
