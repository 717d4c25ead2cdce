//! Manages the capabilities that an agent of the host's root keeps.
//!
//! IPVS requires `CAP_NET_ADMIN` in the initial user namespace. The process that opened the socket
//! and the process that writes to the socket must both have the capability (Linux v6.12,
//! `net/netfilter/ipvs/ip_vs_ctl.c`, `GENL_ADMIN_PERM`; `net/netlink/af_netlink.c`,
//! `__netlink_ns_capable`). Before 6.11, its sysctls exist only in network namespaces of the
//! initial user namespace (`ip_vs_control_net_init_sysctl`). Therefore an agent for IPVS has no
//! user namespace of its own. It keeps these capabilities for its lifetime:
//!
//! - `CAP_NET_ADMIN` and `CAP_NET_RAW`: rules, sets, IPVS and links; captures.
//! - `CAP_NET_BIND_SERVICE`: servers on ports below 1024. The programs of labs get only these three
//!   capabilities, in every kind of agent.
//! - `CAP_SETUID`, `CAP_SETGID`, `CAP_KILL` and `CAP_SYS_CHROOT`: to start programs with their own
//!   users and mount namespaces, and to kill them. A filter permits no other users
//!   ([`crate::sandbox::filter`]).
//! - `CAP_SYS_ADMIN`: required to create and to enter a network namespace (`kernel/nsproxy.c`,
//!   `net/core/net_namespace.c`, `netns_install`). A filter rejects the other operations of the
//!   capability: mounts, other namespaces, BPF, performance counters, keys, swapping, quotas, and
//!   opening files by handle.
//!
//! The agent holds these capabilities as an unprivileged user who owns no file of the host.
//! Operations that root may perform as the owner of files, such as writing `/proc/sys/vm`, are not
//! permitted.

use nix::errno::Errno;
use nix::libc::{self, c_ulong};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setresgid, setresuid};

/// Number of a capability (Linux v6.12, `include/uapi/linux/capability.h`).
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

/// Capabilities of the programs that the agent starts.
const PROGRAM_CAPABILITIES: [Capability; 3] = [NET_BIND_SERVICE, NET_ADMIN, NET_RAW];

/// Capabilities that the agent for IPVS keeps.
const AGENT_CAPABILITIES: [Capability; 8] = [
    KILL,
    SETGID,
    SETUID,
    NET_BIND_SERVICE,
    NET_ADMIN,
    NET_RAW,
    SYS_CHROOT,
    SYS_ADMIN,
];

/// Reason for root of another user namespace, to follow "svclab" in an error.
pub const NOT_ROOT_OF_HOST: &str = "is root of a user namespace only, not of the host";

/// Inode number of the initial user namespace (Linux v6.12, `include/linux/proc_ns.h`,
/// `PROC_USER_INIT_INO`).
const INITIAL_USER_NAMESPACE_INODE: u64 = 0xEFFF_FFFD;

/// Checks that this process is root of the host with the capabilities that an agent for IPVS needs.
///
/// # Errors
///
/// When it is not. The error is a reason to follow "svclab" in a message.
pub fn check_host_root() -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;
    if !nix::unistd::geteuid().is_root() {
        return Err("runs without root".to_owned());
    }
    let namespace = std::fs::metadata("/proc/self/ns/user").map(|found| found.ino());
    if !namespace.is_ok_and(|inode| inode == INITIAL_USER_NAMESPACE_INODE) {
        return Err(NOT_ROOT_OF_HOST.to_owned());
    }
    let effective_capabilities = read_effective();
    // Dropping the other capabilities also requires `CAP_SETPCAP`.
    let mut needed = AGENT_CAPABILITIES.iter().chain([&SETPCAP]);
    if needed.any(|wanted| effective_capabilities & (1 << wanted) == 0) {
        return Err(
            "is root without all capabilities, as in a container without --privileged".to_owned(),
        );
    }
    Ok(())
}

/// Whether this process has `CAP_SYS_ADMIN` in its user namespace.
#[must_use]
pub fn is_administrator() -> bool {
    read_effective() & (1 << SYS_ADMIN) != 0
}

/// Whether a capability of this process is effective.
#[must_use]
pub fn has_capability(capability: u32) -> bool {
    read_effective() & (1 << capability) != 0
}

/// Drops every capability from the bounding set. Makes system calls only.
///
/// # Errors
///
/// When this process lacks the privilege.
pub fn drop_bounding_set() -> Result<(), Errno> {
    for capability in 0..64 {
        match prctl_numbers(libc::PR_CAPBSET_DROP, capability, 0) {
            Ok(()) => {}
            // The kernel has no more capabilities.
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Returns the effective capabilities of this process.
fn read_effective() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_effective(&status).unwrap_or(0)
}

/// Parses the effective capabilities from `/proc/self/status`.
fn parse_effective(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Changes this process from root to an unprivileged user that holds [`AGENT_CAPABILITIES`] and
/// cannot gain other capabilities.
///
/// # Errors
///
/// When a step fails. The error contains the step.
pub fn drop_privileges(user: u32) -> Result<(), (&'static str, Errno)> {
    let with_step = |step: &'static str| move |errno: Errno| (step, errno);
    limit_bounding_set().map_err(with_step("limit the capability bounding set"))?;
    prctl::set_keepcaps(true).map_err(with_step("set the keep-capabilities flag"))?;
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    setresgid(gid, gid, gid)
        .and_then(|()| setresuid(uid, uid, uid))
        .map_err(with_step("change to an unprivileged user"))?;
    prctl::set_keepcaps(false).map_err(with_step("clear the keep-capabilities flag"))?;
    set_capabilities(mask(&AGENT_CAPABILITIES), mask(&PROGRAM_CAPABILITIES))
        .map_err(with_step("drop capabilities"))?;
    raise_ambient().map_err(with_step("raise ambient capabilities"))?;
    // Otherwise, the files in `/proc/self` are inaccessible after the change of user.
    prctl::set_dumpable(true).map_err(with_step("set the dumpable flag"))
}

/// Limits the bounding set to the capabilities of programs. The current capabilities of this
/// process do not change.
///
/// # Errors
///
/// When this process lacks the privilege.
pub fn limit_bounding_set() -> Result<(), Errno> {
    for capability in 0..64 {
        if PROGRAM_CAPABILITIES.contains(&capability) {
            continue;
        }
        match prctl_numbers(libc::PR_CAPBSET_DROP, capability.into(), 0) {
            Ok(()) => {}
            // The kernel has no more capabilities.
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Drops all capabilities except those of programs, and passes these on to executed programs. Makes
/// system calls only.
///
/// # Errors
///
/// When this process lacks one of the capabilities.
pub fn keep_program_capabilities() -> Result<(), Errno> {
    set_capabilities(mask(&PROGRAM_CAPABILITIES), mask(&PROGRAM_CAPABILITIES))?;
    raise_ambient()
}

/// Adds the capabilities of programs to the ambient set, so that executed programs keep them.
fn raise_ambient() -> Result<(), Errno> {
    let raise = c_ulong::from(libc::PR_CAP_AMBIENT_RAISE.unsigned_abs());
    PROGRAM_CAPABILITIES
        .iter()
        .try_for_each(|capability| prctl_numbers(libc::PR_CAP_AMBIENT, raise, (*capability).into()))
}

const fn mask(capabilities: &[Capability]) -> u64 {
    let mut mask = 0;
    let mut index = 0;
    while index < capabilities.len() {
        mask |= 1 << capabilities[index];
        index += 1;
    }
    mask
}

fn prctl_numbers(option: libc::c_int, second: c_ulong, third: c_ulong) -> Result<(), Errno> {
    let zero: c_ulong = 0;
    // SAFETY: these options have only numbers as arguments.
    let result = unsafe { libc::prctl(option, second, third, zero, zero) };
    Errno::result(result).map(drop)
}

/// Header of `capset` (Linux v6.12, `include/uapi/linux/capability.h`). The capability sets follow
/// in two halves.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    process: i32,
}

#[repr(C)]
#[derive(Default)]
struct CapabilitySets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Sets the capabilities of this process, and those that programs inherit. Makes system calls only.
///
/// # Errors
///
/// When this process lacks one of the capabilities.
pub fn set_capabilities(held: u64, inheritable: u64) -> Result<(), Errno> {
    let header = CapabilityHeader {
        version: 0x2008_0522,
        process: 0,
    };
    let low = |set: u64| u32::try_from(set & u64::from(u32::MAX)).unwrap_or(0);
    let half = |shift: u32| CapabilitySets {
        effective: low(held >> shift),
        permitted: low(held >> shift),
        inheritable: low(inheritable >> shift),
    };
    let halves = [half(0), half(32)];
    // SAFETY: both pointers refer to data in the layout of this version of the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, halves.as_ptr()) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_in_effect_are_read_from_a_status() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\n";
        assert_eq!(parse_effective(status), Some(0x1ff_ffff_ffff));
        assert_eq!(parse_effective("Name:\tx\n"), None);
    }
}
