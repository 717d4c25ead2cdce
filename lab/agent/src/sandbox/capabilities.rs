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
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setresgid, setresuid};
pub use rustix::thread::CapabilitySet;
use rustix::thread::{
    CapabilitySets, capabilities, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set,
};

/// Capabilities of the programs that the agent starts.
const PROGRAM_CAPABILITIES: CapabilitySet = CapabilitySet::NET_BIND_SERVICE
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_RAW);

/// Capabilities that the agent for IPVS keeps.
const AGENT_CAPABILITIES: CapabilitySet = PROGRAM_CAPABILITIES
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::SYS_ADMIN);

/// Reason for root of another user namespace, to follow "svclab" in an error.
pub(crate) const NOT_ROOT_OF_HOST: &str = "is root of a user namespace only, not of the host";

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
    // Dropping the other capabilities also requires `CAP_SETPCAP`.
    if !has_capabilities(AGENT_CAPABILITIES | CapabilitySet::SETPCAP) {
        return Err(
            "is root without all capabilities, as in a container without --privileged".to_owned(),
        );
    }
    Ok(())
}

/// Whether this process has `CAP_SYS_ADMIN` in its user namespace.
#[must_use]
pub fn is_administrator() -> bool {
    has_capabilities(CapabilitySet::SYS_ADMIN)
}

/// Whether these capabilities of the calling thread are effective.
#[must_use]
pub fn has_capabilities(needed: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Changes this process from root to an unprivileged user that holds [`AGENT_CAPABILITIES`] and
/// cannot gain other capabilities.
///
/// # Errors
///
/// When a step fails. The error contains the step.
pub(crate) fn drop_privileges(user: u32) -> Result<(), (&'static str, Errno)> {
    let with_step = |step: &'static str| move |errno: Errno| (step, errno);
    limit_bounding_set().map_err(with_step("limit the capability bounding set"))?;
    prctl::set_keepcaps(true).map_err(with_step("set the keep-capabilities flag"))?;
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    setresgid(gid, gid, gid)
        .and_then(|()| setresuid(uid, uid, uid))
        .map_err(with_step("change to an unprivileged user"))?;
    prctl::set_keepcaps(false).map_err(with_step("clear the keep-capabilities flag"))?;
    set_capabilities(AGENT_CAPABILITIES, PROGRAM_CAPABILITIES)
        .map_err(with_step("drop capabilities"))?;
    raise_ambient().map_err(with_step("raise ambient capabilities"))?;
    // Otherwise, the files in `/proc/self` are inaccessible after the change of user.
    prctl::set_dumpable(true).map_err(with_step("set the dumpable flag"))
}

/// Limits the bounding set to the capabilities of programs. The current capabilities of this
/// process do not change.
pub(crate) fn limit_bounding_set() -> Result<(), Errno> {
    drop_from_bounding_set(PROGRAM_CAPABILITIES)
}

/// Drops every capability from the bounding set. Makes system calls only.
///
/// # Errors
///
/// When this process lacks the privilege.
pub fn drop_bounding_set() -> Result<(), Errno> {
    drop_from_bounding_set(CapabilitySet::empty())
}

/// Drops all capabilities except `kept` from the bounding set.
fn drop_from_bounding_set(kept: CapabilitySet) -> Result<(), Errno> {
    for number in 0..u64::BITS {
        // The kernel may have capabilities without a name in this program.
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel has no more capabilities.
            Err(rustix::io::Errno::INVAL) => break,
            Err(errno) => return Err(from_rustix(errno)),
        }
    }
    Ok(())
}

/// Drops all capabilities except those of programs, and passes these on to executed programs. Makes
/// system calls only.
pub(crate) fn keep_program_capabilities() -> Result<(), Errno> {
    set_capabilities(PROGRAM_CAPABILITIES, PROGRAM_CAPABILITIES)?;
    raise_ambient()
}

/// Adds the capabilities of programs to the ambient set, so that executed programs keep them.
fn raise_ambient() -> Result<(), Errno> {
    PROGRAM_CAPABILITIES
        .iter()
        .try_for_each(|capability| configure_capability_in_ambient_set(capability, true))
        .map_err(from_rustix)
}

/// Sets the capabilities of the calling thread, and those that programs inherit. Makes system calls
/// only.
///
/// # Errors
///
/// When this process lacks one of the capabilities.
pub fn set_capabilities(held: CapabilitySet, inheritable: CapabilitySet) -> Result<(), Errno> {
    let sets = CapabilitySets {
        effective: held,
        permitted: held,
        inheritable,
    };
    rustix::thread::set_capabilities(None, sets).map_err(from_rustix)
}

fn from_rustix(errno: rustix::io::Errno) -> Errno {
    Errno::from_raw(errno.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_capabilities_agree_with_proc_status() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let bits = u64::from_str_radix(line.unwrap().trim(), 16).unwrap();
        let listed = CapabilitySet::from_bits_retain(bits);
        assert!(has_capabilities(listed));
        let others = CapabilitySet::all().difference(listed);
        assert!(others.iter().all(|each| !has_capabilities(each)));
    }
}
