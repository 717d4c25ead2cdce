//! A place of the agent's own: user, mount, network, PID, IPC, UTS and cgroup
//! namespaces, an unprivileged user outside who is root inside, and a root
//! directory that holds the system's programs, read-only, and nothing else.
//! For IPVS there is no user namespace, and instead of a root inside a user
//! with few rights ([`super::rights`]).
//!
//! Everything a lab is made of hangs on the one process that comes out of
//! [`contain`] as PID 1 of its PID namespace: when it ends, for whatever reason,
//! the kernel ends every process in there and takes every namespace away.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{
    ForkResult, Gid, Pid, Uid, chdir, chown, fork, getegid, geteuid, pivot_root, setgroups,
    sethostname, setresgid, setresuid,
};

use super::rights;
use crate::protocol::{Failure, Fault};

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
const NOBODY_ELSE: std::ops::Range<u32> = 61_184..65_519;

/// What is shown of the host's file system: programs, their libraries, and the
/// few tables under `/etc` that those look things up in. No home, no secrets.
const SHOWN: [&str; 16] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/etc/alternatives",
    "/etc/ethertypes",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/nsswitch.conf",
    "/etc/protocols",
    "/etc/services",
    "/etc/xtables",
];

/// Devices that programs expect.
const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Moves the calling process, which must have one thread, into a place of its
/// own and returns there, as PID 1. The process that called stays behind and
/// ends when that one does, with the same status.
///
/// # Errors
///
/// Says which step this machine refused and what would change that.
pub fn contain(standing: Standing) -> Result<(), Failure> {
    die_with_parent();
    match (standing, nobody_else()) {
        (Standing::Machine, Some(user)) => {
            rights::are_those_of_root().map_err(|what| no_root(&what))?;
            setgroups(&[]).map_err(|errno| refused("give up supplementary groups", errno))?;
            settle(Some(user))?;
            rights::give_up(user).map_err(|(step, errno)| refused(step, errno))?;
            // A change of users clears it.
            die_with_parent();
            stay_small()?;
            return rights::filter().map_err(|error| refused_io("filter system calls", &error));
        }
        (Standing::Machine, None) => {
            return Err(no_root(
                "is root of a user namespace only, not of the machine",
            ));
        }
        (Standing::Contained, Some(outside)) if geteuid().is_root() => become_nobody_else(outside)?,
        (Standing::Contained, _) => map_own_user()?,
    }
    settle(None)?;
    stay_small()
}

/// Makes all namespaces but that of users, and the root directory. `owner` is
/// the user who is to work there, where that is another than who makes it.
fn settle(owner: Option<u32>) -> Result<(), Failure> {
    unshare(
        CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWCGROUP,
    )
    .map_err(|errno| {
        refused(
            "unshare mount, network, PID, IPC, UTS and cgroup namespaces",
            errno,
        )
    })?;
    // The caller of unshare stays in its old PID namespace; its next child is
    // PID 1 of the new one.
    split()?;
    die_with_parent();
    sethostname("svclab").map_err(|errno| refused("name the agent's host", errno))?;
    build_root(owner).map_err(|(step, errno)| refused(&step, errno))
}

fn stay_small() -> Result<(), Failure> {
    prctl::set_no_new_privs().map_err(|errno| refused("give up gaining privileges", errno))
}

/// Ends this process when the one that started it ends.
fn die_with_parent() {
    // Cannot fail for a valid signal; a parent that is already gone shows as
    // the end of standard input.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
}

/// A user of the range, if users of it exist here: a root of a user namespace of
/// somebody else's may have no user to become but itself.
fn nobody_else() -> Option<u32> {
    let process = nix::unistd::getpid().as_raw().unsigned_abs();
    let outside = NOBODY_ELSE.start + process % u32::try_from(NOBODY_ELSE.len()).ok()?;
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    is_mapped(&map, outside).then_some(outside)
}

/// Whether a user is one of those that a `uid_map` speaks of: lines of a first
/// user inside, a first user outside, and how many follow.
fn is_mapped(map: &str, user: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line
            .split_whitespace()
            .filter_map(|number| number.parse::<u64>().ok());
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        first
            .zip(count)
            .is_some_and(|(first, count)| (first..first + count).contains(&u64::from(user)))
    })
}

/// As root: a child in a new user namespace, in which an unprivileged user of
/// the host is root. This process, root still, writes the mapping; a process
/// without privileges could not on hosts that restrict user namespaces to
/// privileged creators (Ubuntu since 23.10).
fn become_nobody_else(outside: u32) -> Result<(), Failure> {
    setgroups(&[]).map_err(|errno| refused("give up supplementary groups", errno))?;
    let (ready_read, ready_write) = pipe()?;
    let (mapped_read, mapped_write) = pipe()?;
    match fork_single()? {
        ForkResult::Parent { child } => {
            drop((ready_write, mapped_read));
            let mapping = await_byte(ready_read)
                .and_then(|()| write_maps(&format!("/proc/{child}"), outside, outside))
                .and_then(|()| io::Write::write_all(&mut fs::File::from(mapped_write), b"."));
            if mapping.is_err() {
                // The child notices the closed pipe, says so, and ends.
            }
            end_like(child)
        }
        ForkResult::Child => {
            drop((ready_read, mapped_write));
            die_with_parent();
            unshare(CloneFlags::CLONE_NEWUSER).map_err(no_user_namespace)?;
            fs::File::from(ready_write)
                .write_all(b".")
                .and_then(|()| await_byte(mapped_read))
                .map_err(|error| refused_io("map an unprivileged user to root", &error))?;
            setresgid(Gid::from_raw(0), Gid::from_raw(0), Gid::from_raw(0))
                .and_then(|()| setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)))
                .map_err(|errno| refused("become the mapped user", errno))?;
            // Changing users clears both.
            let _ = prctl::set_dumpable(true);
            die_with_parent();
            Ok(())
        }
    }
}

/// Without root: a user namespace in which the calling user is root.
fn map_own_user() -> Result<(), Failure> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(no_user_namespace)?;
    write_maps("/proc/self", uid, gid).map_err(|error| {
        no_user_namespace(nix::errno::Errno::from_raw(
            error.raw_os_error().unwrap_or(0),
        ))
    })
}

/// Maps one user and one group of the host to root inside.
fn write_maps(process: &str, uid: u32, gid: u32) -> io::Result<()> {
    fs::write(format!("{process}/setgroups"), "deny")?;
    fs::write(format!("{process}/uid_map"), format!("0 {uid} 1"))?;
    fs::write(format!("{process}/gid_map"), format!("0 {gid} 1"))
}

/// Makes a root directory of programs and moves into it.
fn build_root(owner: Option<u32>) -> Result<(), (String, nix::errno::Errno)> {
    let at = |step: &str| {
        let step = step.to_owned();
        move |errno| (step, errno)
    };
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .map_err(at("make the agent's mounts private"))?;
    let base = ["/tmp", "/run", "/mnt", "/var"]
        .into_iter()
        .map(Path::new)
        .find(|path| path.is_dir())
        .ok_or_else(|| {
            (
                "find a directory to build the agent's root in (/tmp, /run, /mnt or /var)"
                    .to_owned(),
                nix::errno::Errno::ENOENT,
            )
        })?;
    mount(
        Some("svclab"),
        base,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some("size=64m,mode=0755"),
    )
    .map_err(at("mount a tmpfs for the agent's root"))?;
    for shown in SHOWN {
        show(base, shown, true).map_err(at(&format!("show {shown} to the agent")))?;
    }
    for device in DEVICES {
        show(base, device, false).map_err(at(&format!("show {device} to the agent")))?;
    }
    for directory in ["proc", "run", "tmp", "old"] {
        fs::create_dir_all(base.join(directory))
            .map_err(|error| os(&error))
            .map_err(at("make the agent's directories"))?;
    }
    write_etc(base)
        .map_err(|error| os(&error))
        .map_err(at("write the agent's /etc"))?;
    mount(
        Some("proc"),
        &base.join("proc"),
        Some("proc"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
        None::<&str>,
    )
    .map_err(at("mount a /proc of the agent's own"))?;
    if let Some(owner) = owner {
        hand_over(base, owner).map_err(at("hand the agent's root over to its user"))?;
        seal_settings(base).map_err(at("seal the machine's settings"))?;
    }
    pivot_root(base, &base.join("old")).map_err(at("move into the agent's root"))?;
    chdir("/").map_err(at("enter the agent's root"))?;
    umount2("/old", MntFlags::MNT_DETACH).map_err(at("let go of the host's file system"))?;
    fs::remove_dir("/old")
        .map_err(|error| os(&error))
        .map_err(at("let go of the host's file system"))
}

/// Gives a user the directories that are written to.
fn hand_over(base: &Path, owner: u32) -> nix::Result<()> {
    ["run", "tmp"].into_iter().try_for_each(|directory| {
        let (uid, gid) = (Uid::from_raw(owner), Gid::from_raw(owner));
        chown(&base.join(directory), Some(uid), Some(gid))
    })
}

/// Makes all settings read-only but those of the network, which are the
/// namespace's of whoever writes them.
fn seal_settings(base: &Path) -> nix::Result<()> {
    let harmless = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    for (path, flags) in [
        ("proc/sys", harmless | MsFlags::MS_RDONLY),
        ("proc/sys/net", harmless),
    ] {
        let path = base.join(path);
        let bind = MsFlags::MS_BIND;
        mount(Some(&path), &path, None::<&str>, bind, None::<&str>)?;
        let again = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | flags;
        mount(None::<&str>, &path, None::<&str>, again, None::<&str>)?;
    }
    Ok(())
}

/// The tables programs look themselves up in, where the host's may not be shown.
fn write_etc(base: &Path) -> io::Result<()> {
    let etc = base.join("etc");
    fs::create_dir_all(&etc)?;
    fs::write(etc.join("passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
    fs::write(etc.join("group"), "root:x:0:\n")
}

/// Shows one path of the host under the new root: a link as a link, all else by
/// a bind mount, read-only if `sealed`. What the host lacks is left out.
fn show(base: &Path, path: &str, sealed: bool) -> nix::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    let inside = base.join(path.trim_start_matches('/'));
    let made = match inside.parent() {
        Some(parent) => fs::create_dir_all(parent),
        None => Ok(()),
    };
    made.and_then(|()| {
        if found.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(path)?, &inside)
        } else if found.is_dir() {
            fs::create_dir_all(&inside)
        } else {
            fs::write(&inside, "")
        }
    })
    .map_err(|error| os(&error))?;
    if found.is_symlink() {
        return Ok(());
    }
    mount(
        Some(path),
        &inside,
        None::<&str>,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None::<&str>,
    )?;
    if sealed {
        // Flags that were set outside the user namespace are locked: a remount
        // that leaves one out is refused.
        let locked = kept_flags(statvfs(&inside)?.flags());
        mount(
            None::<&str>,
            &inside,
            None::<&str>,
            MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | locked,
            None::<&str>,
        )?;
    }
    Ok(())
}

/// The mount flags that a mount's file-system flags stand for.
fn kept_flags(flags: FsFlags) -> MsFlags {
    [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ]
    .into_iter()
    .filter(|(found, _)| flags.contains(*found))
    .fold(MsFlags::empty(), |kept, (_, flag)| kept | flag)
}

/// Goes on in a child; this process waits for it and ends like it.
fn split() -> Result<(), Failure> {
    match fork_single()? {
        ForkResult::Child => Ok(()),
        ForkResult::Parent { child } => end_like(child),
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
            Err(nix::errno::Errno::EINTR) | Ok(_) => {}
            Err(_) => break 1,
        }
    };
    std::process::exit(status)
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
    nix::unistd::pipe().map_err(|errno| refused("open a pipe", errno))
}

fn await_byte(from: OwnedFd) -> io::Result<()> {
    debug_assert!(from.as_raw_fd() >= 0);
    let mut byte = [0];
    fs::File::from(from).read_exact(&mut byte)
}

fn os(error: &io::Error) -> nix::errno::Errno {
    nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

fn refused(step: &str, errno: nix::errno::Errno) -> Failure {
    Failure {
        fault: Fault::Machine,
        message: format!("the agent could not {step}: {}", errno.desc()),
        remedy: Some(
            "svclab needs namespaces: run it as root, or in a container started with --privileged"
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
fn no_user_namespace(errno: nix::errno::Errno) -> Failure {
    let read = |path: &str| {
        fs::read_to_string(path)
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let remedy = if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
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
        assert!(is_mapped("         0          0 4294967295\n", 61_184));
        assert!(!is_mapped("         0       1000          1\n", 61_184));
        assert!(is_mapped("0 1000 1\n1 100000 65536\n", 65_000));
        assert!(!is_mapped("", 0));
    }
}
