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
//! - `CAP_NET_ADMIN` and `CAP_NET_RAW`: rules, sets, IPVS, links; captures.
//! - `CAP_NET_BIND_SERVICE`: servers on ports below 1024. The programs of labs get these
//!   three and no more, wherever the agent is.
//! - `CAP_SETUID`, `CAP_SETGID`, `CAP_KILL` and `CAP_SYS_CHROOT`: to start programs as
//!   users of their own among mounts of their own, and to end them. A filter allows no
//!   other users ([`super::filter`]).
//! - `CAP_SYS_ADMIN`, which making a network namespace and every step into one
//!   takes (`kernel/nsproxy.c`, `net/core/net_namespace.c`, `netns_install`).
//!   It is what remains of danger, and so a filter refuses what else it would
//!   allow: mounting of any kind, entering and making other namespaces, BPF,
//!   performance counters, keys, swapping, quotas, files by handle.
//!
//! All capabilities hold for one user without privileges, to whom no file of
//! the machine's belongs: what root may do as the owner of files, such as
//! writing `/proc/sys/vm`, it may not.

use nix::errno::Errno;
use nix::libc::{self, c_ulong};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setresgid, setresuid};

/// A capability's number (Linux v6.12, `include/uapi/linux/capability.h`).
type Capability = u32;

/// `CAP_KILL`.
pub const KILL: Capability = 5;
/// `CAP_SETGID`.
pub const SETGID: Capability = 6;
/// `CAP_SETUID`.
pub const SETUID: Capability = 7;
const SETPCAP: Capability = 8;
const NET_BIND_SERVICE: Capability = 10;
const NET_ADMIN: Capability = 12;
const NET_RAW: Capability = 13;
const SYS_CHROOT: Capability = 18;
const SYS_ADMIN: Capability = 21;

/// What programs that the agent starts keep.
const HANDED_ON: [Capability; 3] = [NET_BIND_SERVICE, NET_ADMIN, NET_RAW];

/// What the agent for IPVS itself keeps.
const KEPT: [Capability; 8] = [
    KILL,
    SETGID,
    SETUID,
    NET_BIND_SERVICE,
    NET_ADMIN,
    NET_RAW,
    SYS_CHROOT,
    SYS_ADMIN,
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
    // Giving the rest up takes one more.
    let mut needed = KEPT.iter().chain([&SETPCAP]);
    if needed.any(|wanted| held & (1 << wanted) == 0) {
        return Err(
            "is root without its capabilities, as in a container without --privileged".to_owned(),
        );
    }
    Ok(())
}

/// Whether this process may administer the system, or the container, it is in.
#[must_use]
pub fn are_an_administrator_s() -> bool {
    held() & (1 << SYS_ADMIN) != 0
}

/// Whether this process has a capability in effect.
#[must_use]
pub fn has(capability: u32) -> bool {
    held() & (1 << capability) != 0
}

/// Drops every capability from the bounding set. System calls only.
///
/// # Errors
///
/// When this process may not.
pub fn drop_bounding_set() -> Result<(), Errno> {
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
    bound().map_err(at("give up what programs could gain"))?;
    prctl::set_keepcaps(true).map_err(at("keep capabilities"))?;
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    setresgid(gid, gid, gid)
        .and_then(|()| setresuid(uid, uid, uid))
        .map_err(at("become an unprivileged user"))?;
    prctl::set_keepcaps(false).map_err(at("keep capabilities no longer"))?;
    set_capabilities(mask(&KEPT), mask(&HANDED_ON)).map_err(at("give up capabilities"))?;
    hand_on().map_err(at("hand on capabilities"))?;
    // Another user's process is closed to itself otherwise.
    prctl::set_dumpable(true).map_err(at("look at itself"))
}

/// Bounds what any program of this process can have to what programs keep. What this
/// process itself has stays.
///
/// # Errors
///
/// When it may not do so.
pub fn bound() -> Result<(), Errno> {
    for capability in 0..64 {
        if HANDED_ON.contains(&capability) {
            continue;
        }
        match control(libc::PR_CAPBSET_DROP, capability.into(), 0) {
            Ok(()) => {}
            // This kernel knows no more of them.
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Gives up all capabilities but those of programs, and hands them on to what is executed.
/// Makes system calls only.
///
/// # Errors
///
/// The kernel's, where one of them is not there.
pub fn keep_those_of_programs() -> Result<(), Errno> {
    set_capabilities(mask(&HANDED_ON), mask(&HANDED_ON))?;
    hand_on()
}

/// Has what is executed begin with the capabilities of programs.
fn hand_on() -> Result<(), Errno> {
    let raise = c_ulong::from(libc::PR_CAP_AMBIENT_RAISE.unsigned_abs());
    HANDED_ON
        .iter()
        .try_for_each(|capability| control(libc::PR_CAP_AMBIENT, raise, (*capability).into()))
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

/// Sets which capabilities this process has, and which programs inherit. System calls only.
///
/// # Errors
///
/// When it has not got them.
pub fn set_capabilities(held: u64, inheritable: u64) -> Result<(), Errno> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_in_effect_are_read_from_a_status() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\n";
        assert_eq!(effective(status), Some(0x1ff_ffff_ffff));
        assert_eq!(effective("Name:\tx\n"), None);
    }
}
