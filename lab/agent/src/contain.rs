//! A place of the agent's own: user, mount, network, PID, IPC, UTS and cgroup
//! namespaces, an unprivileged user outside who is root inside, and a root
//! directory that holds the system's programs, read-only, and nothing else.
//!
//! Everything a lab is made of hangs on the one process that comes out of
//! [`contain`] as PID 1 of its PID namespace: when it ends, for whatever reason,
//! the kernel ends every process in there and takes every namespace away.
//!
//! The user namespace is entered last. All that was made before belongs to the
//! one outside of it, so what runs inside is root of networks and of nothing
//! else: it can neither mount nor remount anything.
//!
//! For IPVS there is no user namespace, and instead of a root inside it a user
//! of the machine with few rights ([`super::rights`]).

use std::fs;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{
    ForkResult, Gid, Pid, Uid, fork, getegid, geteuid, setgroups, sethostname, setresgid, setresuid,
};

use super::filter::Filter;
use super::{rights, rootfs, tenant};
use svclab_diagnostic::shortage;
use svclab_model::protocol::{Failure, Fault};

/// Whose rights the agent works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Standing {
    /// Those of the root of a user namespace of its own, who is an unprivileged
    /// user of the machine.
    #[default]
    Contained,
    /// A few of those that the machine's own root has, which IPVS takes.
    Machine,
}

/// The unprivileged user that root becomes outside. The range that systemd
/// gives to services without a user of their own; no account is ever in it.
const NOBODY_ELSE: Range<u32> = 61_184..65_519;

/// How many users the agent has: itself, and one for the programs of each lab at once.
const USERS: u32 = 1024;

/// Users of the agent as it knows them itself, where it is the first of them.
const OWN_USERS: Range<u32> = 0..USERS;

/// Moves the calling process, which must have one thread, into a place of its
/// own and returns there, as PID 1. The process that called stays behind and
/// ends when that one does, with the same status. `programs` are shown there
/// where they lie here, by paths without links.
///
/// # Errors
///
/// Says which step this machine refused and what would change that.
pub fn contain(standing: Standing, programs: &[PathBuf]) -> Result<(), Failure> {
    die_with_parent();
    // Programs of other users read what is made here.
    umask(Mode::from_bits_truncate(0o022));
    inherit_nothing().map_err(|error| refused_io("close what it inherited", &error))?;
    // A dump of its memory would be written where the caller happens to be.
    setrlimit(Resource::RLIMIT_CORE, 0, 0)
        .map_err(|errno| refused("do without core dumps", errno))?;
    let outside = nobody_else().filter(|_| geteuid().is_root());
    if standing == Standing::Machine {
        let not_of_machine = || rights::NOT_OF_MACHINE.to_owned();
        let user = rights::are_those_of_root()
            .and(outside.ok_or_else(not_of_machine))
            .map_err(|what| no_root(&what))?;
        return keep_few_rights(user, programs);
    }
    // Who may make namespaces without a user namespace makes them so; others
    // are root of one first, and of a second one inside it in the end.
    // Those that the last user namespace maps, as the one around it knows them.
    let inside = match outside {
        Some(user) if rights::are_an_administrator_s() => {
            setgroups(&[]).map_err(|errno| refused("give up supplementary groups", errno))?;
            user..user + USERS
        }
        Some(user) => {
            become_nobody_else(user)?;
            OWN_USERS
        }
        None => {
            map_own_user()?;
            0..1
        }
    };
    // The caller of unshare stays in its old PID namespace; its next child is
    // PID 1 of the new one.
    unshare(CloneFlags::CLONE_NEWPID).map_err(|errno| refused("unshare a PID namespace", errno))?;
    let mapping = split(Some(inside.clone()))?;
    die_with_parent();
    make_place(programs)?;
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).map_err(no_user_namespace)?;
    if let Some(mapping) = mapping {
        mapping.await_it()?;
    }
    become_root()?;
    forget_keys();
    rights::bound().map_err(|errno| refused("give up what programs could gain", errno))?;
    gain_nothing()?;
    // The first of them is the agent's own.
    let users = 1..u32::try_from(inside.len()).unwrap_or(1);
    tenant::prepare(users, false).map_err(no_place_for_programs)
}

/// What the agent takes to run programs, as the guest's own root.
///
/// # Errors
///
/// Says which step failed.
pub fn prepare_guest() -> io::Result<()> {
    umask(Mode::from_bits_truncate(0o022));
    rights::bound()?;
    let first = NOBODY_ELSE.start;
    Ok(tenant::prepare(first + 1..first + USERS, false)?)
}

fn no_place_for_programs(errno: Errno) -> Failure {
    refused("make a place for programs of labs", errno)
}

/// As the machine's own root: the same place without a user namespace, and in it
/// that user with a few of root's rights.
fn keep_few_rights(user: u32, programs: &[PathBuf]) -> Result<(), Failure> {
    setgroups(&[]).map_err(|errno| refused("give up supplementary groups", errno))?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(|errno| refused("unshare a PID namespace", errno))?;
    split(None)?;
    die_with_parent();
    make_place(programs)?;
    rootfs::seal_settings().map_err(|errno| refused("seal the machine's settings", errno))?;
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|errno| refused("unshare a network namespace", errno))?;
    forget_keys();
    rights::give_up(user).map_err(|(step, errno)| refused(step, errno))?;
    // A change of users clears it.
    die_with_parent();
    gain_nothing()?;
    let users = user + 1..user + USERS;
    tenant::prepare(users.clone(), true).map_err(no_place_for_programs)?;
    let filter = Filter::of_agent(&users);
    filter
        .install()
        .map_err(|errno| refused("filter system calls", errno))
}

/// Makes all namespaces but those of processes, users and networks, and a root
/// directory in which those programs are.
fn make_place(programs: &[PathBuf]) -> Result<(), Failure> {
    unshare(
        CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWCGROUP,
    )
    .map_err(|errno| refused("unshare mount, IPC, UTS and cgroup namespaces", errno))?;
    sethostname("svclab").map_err(|errno| refused("name the agent's host", errno))?;
    rootfs::build(programs).map_err(|(step, errno)| refused(&step, errno))
}

fn gain_nothing() -> Result<(), Failure> {
    prctl::set_no_new_privs().map_err(|errno| refused("give up gaining privileges", errno))
}

/// Closes every descriptor but the protocol's streams and standard error: who
/// started svclab may have left some open that lead anywhere.
fn inherit_nothing() -> io::Result<()> {
    let open: Vec<i32> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in open {
        // The one that the list was read through is closed already.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

/// Leaves the session keyring of who started svclab, whose keys would be at hand
/// in any namespace. A kernel without keyrings, and a filter that forbids the
/// call, give nothing to leave.
pub fn forget_keys() {
    // SAFETY: the call takes a number and a name that may be absent.
    unsafe {
        nix::libc::syscall(
            nix::libc::SYS_keyctl,
            nix::libc::KEYCTL_JOIN_SESSION_KEYRING,
            std::ptr::null::<nix::libc::c_char>(),
        );
    }
}

/// Ends this process when the one that started it ends.
fn die_with_parent() {
    // Cannot fail for a valid signal; a parent that is already gone shows as
    // the end of standard input.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
}

/// The first of the agent's users in the range, if users of it exist here: a root of a
/// user namespace of somebody else's may have no user to become but itself.
#[must_use]
pub fn nobody_else() -> Option<u32> {
    let process = nix::unistd::getpid().as_raw().unsigned_abs();
    let firsts = u32::try_from(NOBODY_ELSE.len()).ok()? - USERS;
    let outside = NOBODY_ELSE.start + process % firsts;
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    is_mapped(&map, &(outside..outside + USERS)).then_some(outside)
}

/// Whether users are among those of one line of a `uid_map`: a first user inside, a first
/// user outside, and how many follow.
fn is_mapped(map: &str, users: &Range<u32>) -> bool {
    map.lines().any(|line| {
        let mut numbers = line
            .split_whitespace()
            .filter_map(|number| number.parse::<u64>().ok());
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        first.zip(count).is_some_and(|(first, count)| {
            first <= users.start.into() && u64::from(users.end) <= first + count
        })
    })
}

/// As a root that may not administer: a child in a new user namespace, in which
/// an unprivileged user of the host is root.
fn become_nobody_else(outside: u32) -> Result<(), Failure> {
    setgroups(&[]).map_err(|errno| refused("give up supplementary groups", errno))?;
    let mapping = split(Some(outside..outside + USERS))?;
    die_with_parent();
    unshare(CloneFlags::CLONE_NEWUSER).map_err(no_user_namespace)?;
    if let Some(mapping) = mapping {
        mapping.await_it()?;
    }
    become_root()
}

/// Becomes the user whom a new user namespace calls root.
fn become_root() -> Result<(), Failure> {
    setresgid(Gid::from_raw(0), Gid::from_raw(0), Gid::from_raw(0))
        .and_then(|()| setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)))
        .map_err(|errno| refused("become the mapped user", errno))?;
    // Changing users clears both.
    let _ = prctl::set_dumpable(true);
    die_with_parent();
    Ok(())
}

/// Without root: a user namespace in which the calling user is root.
fn map_own_user() -> Result<(), Failure> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(no_user_namespace)?;
    write_maps("/proc/self", &(uid..uid + 1), &(gid..gid + 1))
        .map_err(|error| no_user_namespace(Errno::from_raw(error.raw_os_error().unwrap_or(0))))
}

/// Maps users and groups outside to as many inside, the first ones to root.
fn write_maps(process: &str, users: &Range<u32>, groups: &Range<u32>) -> io::Result<()> {
    let line = |outside: &Range<u32>| format!("0 {} {}", outside.start, outside.len());
    fs::write(format!("{process}/setgroups"), "deny")?;
    fs::write(format!("{process}/uid_map"), line(users))?;
    fs::write(format!("{process}/gid_map"), line(groups))
}

/// A child's side of having its user namespace mapped by its parent.
struct Mapping {
    ready: OwnedFd,
    mapped: OwnedFd,
}

impl Mapping {
    /// Says that the user namespace is there, and waits until it is mapped.
    fn await_it(self) -> Result<(), Failure> {
        fs::File::from(self.ready)
            .write_all(b".")
            .and_then(|()| await_byte(self.mapped))
            .map_err(|error| refused_io("map an unprivileged user to root", &error))
    }
}

/// Goes on in a child; this process waits for it and ends like it. With users,
/// this process, root still, maps them in the user namespace that the
/// child makes, the first one to root; a process without privileges could not on hosts that restrict
/// user namespaces to privileged creators (Ubuntu since 23.10).
fn split(outside: Option<Range<u32>>) -> Result<Option<Mapping>, Failure> {
    let (ready, write_ready) = pipe()?;
    let (mapped, write_mapped) = pipe()?;
    match fork_single()? {
        ForkResult::Child => Ok(outside.is_some().then(|| Mapping {
            ready: write_ready,
            mapped,
        })),
        ForkResult::Parent { child } => {
            drop((write_ready, mapped));
            if let Some(users) = outside {
                // A child that fails before, or is not mapped, notices the closed
                // pipe, says so, and ends.
                let _ = await_byte(ready)
                    .and_then(|()| write_maps(&format!("/proc/{child}"), &users, &users))
                    .and_then(|()| fs::File::from(write_mapped).write_all(b"."));
            }
            end_like(child)
        }
    }
}

fn fork_single() -> Result<ForkResult, Failure> {
    // SAFETY: the agent has one thread until its place is made, so the child
    // inherits no lock that another thread held.
    unsafe { fork() }.map_err(|errno| refused("start the agent's own process", errno))
}

/// Waits for a child and ends with its status, or by its signal's number.
fn end_like(child: Pid) -> ! {
    // Nothing here may keep the protocol's streams open: the front end must see
    // their end when the agent ends.
    let _ = nix::unistd::close(0);
    let _ = nix::unistd::close(1);
    let status = loop {
        match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, status)) => break status,
            Ok(WaitStatus::Signaled(_, signal, _)) => break 128 + signal as i32,
            Err(Errno::EINTR) | Ok(_) => {}
            Err(_) => break 1,
        }
    };
    std::process::exit(status)
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
    nix::unistd::pipe().map_err(|errno| refused("open a pipe", errno))
}

fn await_byte(from: OwnedFd) -> io::Result<()> {
    let mut byte = [0];
    fs::File::from(from).read_exact(&mut byte)
}

fn os(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

fn refused(step: &str, errno: Errno) -> Failure {
    Failure {
        fault: Fault::Machine,
        message: format!("the agent could not {step}: {}", errno.desc()),
        remedy: Some(
            shortage::remedy(&errno.into())
                .unwrap_or(
                    "svclab needs namespaces: run it as root, or in a container started with \
                     --privileged",
                )
                .to_owned(),
        ),
        rejected: None,
    }
}

/// The machine's own root is wanted and not there; `what` follows "svclab".
fn no_root(what: &str) -> Failure {
    Failure {
        fault: Fault::Machine,
        message: format!("an agent for IPVS takes the machine's own root, and svclab {what}"),
        remedy: Some("run svclab as root of the machine itself, or in a guest kernel".to_owned()),
        rejected: None,
    }
}

fn refused_io(step: &str, error: &io::Error) -> Failure {
    refused(step, os(error))
}

/// The reason a kernel gives no user namespace, from the settings that forbid it.
fn no_user_namespace(errno: Errno) -> Failure {
    let read = |path: &str| {
        fs::read_to_string(path)
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let remedy = if let Some(remedy) = shortage::remedy(&errno.into()) {
        remedy
    } else if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        "run `sysctl -w kernel.unprivileged_userns_clone=1` as root, or run svclab as root"
    } else if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        "run `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` as root, or run svclab as root"
    } else if read("/proc/sys/user/max_user_namespaces") == "0" {
        "run `sysctl -w user.max_user_namespaces=10000` as root"
    } else {
        "run svclab as root, or in a container started with --privileged"
    };
    Failure {
        fault: Fault::Machine,
        message: format!(
            "this machine gives svclab no user namespace: {}",
            errno.desc()
        ),
        remedy: Some(remedy.to_owned()),
        rejected: None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_mapped;

    #[test]
    fn a_user_must_be_one_of_those_that_are_mapped() {
        assert!(is_mapped(
            "         0          0 4294967295\n",
            &(61_184..61_284)
        ));
        assert!(!is_mapped(
            "         0       1000          1\n",
            &(61_184..61_284)
        ));
        assert!(is_mapped("0 1000 1\n1 100000 65536\n", &(65_000..65_537)));
        assert!(!is_mapped("0 1000 1\n1 100000 65536\n", &(65_000..65_538)));
        assert!(!is_mapped("", &(0..1)));
    }
}
