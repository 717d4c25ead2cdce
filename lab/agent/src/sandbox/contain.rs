//! Moves the agent into its own user, mount, network, PID, IPC, UTS and cgroup namespaces. Inside
//! the user namespace, an unprivileged user of the host is root. The root directory contains only
//! the host's programs, read-only.
//!
//! All objects of a lab depend on the process that returns from [`contain`] as PID 1 of its PID
//! namespace. When this process ends for any reason, the kernel kills every process in the PID
//! namespace and removes every namespace.
//!
//! The agent enters the user namespace last. All earlier namespaces belong to the outer user
//! namespace. Therefore processes inside have root privileges over network namespaces only: they
//! cannot mount or remount anything.
//!
//! For IPVS the agent creates no user namespace. It runs as an unprivileged user of the host with a
//! few capabilities ([`crate::sandbox::capabilities`]).

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

use crate::sandbox::filter::Filter;
use crate::sandbox::{capabilities, rootfs, tenant};
use svclab_diagnostic::shortage;
use svclab_model::protocol::{Failure, FailureKind};

/// Privileges that the agent runs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AgentPrivilege {
    /// Root in its own user namespace, which is an unprivileged user of the host.
    #[default]
    Contained,
    /// A few capabilities of the host's root, which IPVS requires.
    Host,
}

/// Range of the unprivileged users that root is mapped to outside. systemd assigns users of this
/// range to services without their own user. The range contains no accounts.
const OUTSIDE_USERS: Range<u32> = 61_184..65_519;

/// Number of users of the agent: 1 for the agent, and 1 for the programs of each parallel lab.
const USER_COUNT: u32 = 1024;

/// User IDs of the agent inside its user namespace, where the agent is the first of them.
const INSIDE_USERS: Range<u32> = 0..USER_COUNT;

/// Moves the calling process into its own namespaces and returns there as PID 1. The process must
/// have only one thread. The original process waits for PID 1 and exits with the same status.
/// `programs` are visible inside at their paths on the host, which must not contain symbolic links.
///
/// # Errors
///
/// When the host refuses a step. The error names the step and a remedy.
pub fn contain(privilege: AgentPrivilege, programs: &[PathBuf]) -> Result<(), Failure> {
    set_parent_death_signal();
    // Programs of other users read the files that are created here.
    umask(Mode::from_bits_truncate(0o022));
    close_inherited()
        .map_err(|error| step_io_failure("close inherited file descriptors", &error))?;
    // The kernel would write a core dump into the caller's current directory.
    setrlimit(Resource::RLIMIT_CORE, 0, 0)
        .map_err(|errno| step_failure("disable core dumps", errno))?;
    let outside = outside_user().filter(|_| geteuid().is_root());
    if privilege == AgentPrivilege::Host {
        let not_of_machine = || capabilities::NOT_ROOT_OF_HOST.to_owned();
        let user = capabilities::check_host_root()
            .and(outside.ok_or_else(not_of_machine))
            .map_err(|reason| host_root_required(&reason))?;
        return contain_without_user_namespace(user, programs);
    }
    // A process with `CAP_SYS_ADMIN` creates the namespaces without a user namespace. Other
    // processes first become root in one user namespace and finally in a second one inside it.
    // `inside` are the users that the last user namespace maps, numbered as in the user namespace
    // around it.
    let inside = match outside {
        Some(user) if capabilities::is_administrator() => {
            setgroups(&[]).map_err(|errno| step_failure("drop supplementary groups", errno))?;
            user..user + USER_COUNT
        }
        Some(user) => {
            enter_outer_user_namespace(user)?;
            INSIDE_USERS
        }
        None => {
            map_own_user()?;
            0..1
        }
    };
    // After unshare, the caller stays in its old PID namespace. Its next child is PID 1 of the new
    // PID namespace.
    unshare(CloneFlags::CLONE_NEWPID)
        .map_err(|errno| step_failure("unshare a PID namespace", errno))?;
    let mapping = fork_into_child(Some(inside.clone()))?;
    set_parent_death_signal();
    create_namespaces(programs)?;
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).map_err(no_user_namespace)?;
    if let Some(mapping) = mapping {
        mapping.wait()?;
    }
    become_root()?;
    leave_session_keyring();
    capabilities::limit_bounding_set()
        .map_err(|errno| step_failure("limit the capability bounding set", errno))?;
    set_no_new_privs()?;
    // The first user is the agent's own.
    let users = 1..u32::try_from(inside.len()).unwrap_or(1);
    tenant::prepare(users, false).map_err(cannot_prepare_tenants)
}

/// Prepares the process to run programs of labs as root of a guest.
///
/// # Errors
///
/// When a step fails.
pub fn prepare_guest() -> io::Result<()> {
    umask(Mode::from_bits_truncate(0o022));
    capabilities::limit_bounding_set()?;
    let first = OUTSIDE_USERS.start;
    Ok(tenant::prepare(first + 1..first + USER_COUNT, false)?)
}

fn cannot_prepare_tenants(errno: Errno) -> Failure {
    step_failure("prepare the environment for lab programs", errno)
}

/// Moves root of the host into the same namespaces except a user namespace, and changes to `user`
/// with a few capabilities.
fn contain_without_user_namespace(user: u32, programs: &[PathBuf]) -> Result<(), Failure> {
    setgroups(&[]).map_err(|errno| step_failure("drop supplementary groups", errno))?;
    unshare(CloneFlags::CLONE_NEWPID)
        .map_err(|errno| step_failure("unshare a PID namespace", errno))?;
    fork_into_child(None)?;
    set_parent_death_signal();
    create_namespaces(programs)?;
    rootfs::make_sysctls_read_only()
        .map_err(|errno| step_failure("make the host's sysctls read-only", errno))?;
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|errno| step_failure("unshare a network namespace", errno))?;
    leave_session_keyring();
    capabilities::drop_privileges(user).map_err(|(step, errno)| step_failure(step, errno))?;
    // The kernel clears the death signal when the user changes.
    set_parent_death_signal();
    set_no_new_privs()?;
    let users = user + 1..user + USER_COUNT;
    tenant::prepare(users.clone(), true).map_err(cannot_prepare_tenants)?;
    let filter = Filter::for_agent(&users);
    filter
        .install()
        .map_err(|errno| step_failure("install the system call filter", errno))
}

/// Creates the mount, IPC, UTS and cgroup namespaces, and a root directory that contains
/// `programs`.
fn create_namespaces(programs: &[PathBuf]) -> Result<(), Failure> {
    unshare(
        CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWCGROUP,
    )
    .map_err(|errno| step_failure("unshare mount, IPC, UTS and cgroup namespaces", errno))?;
    sethostname("svclab").map_err(|errno| step_failure("set the agent's host name", errno))?;
    rootfs::build(programs).map_err(|(step, errno)| step_failure(&step, errno))
}

fn set_no_new_privs() -> Result<(), Failure> {
    prctl::set_no_new_privs().map_err(|errno| step_failure("set no_new_privs", errno))
}

/// Closes every descriptor except the protocol's streams and standard error. The process that
/// started svclab may have left open descriptors of arbitrary files.
fn close_inherited() -> io::Result<()> {
    let open: Vec<i32> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in open {
        // The descriptor of the directory itself is already closed.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

/// Leaves the session keyring of the user who started svclab, because its keys are accessible in
/// every namespace. The call has no effect on a kernel without keyrings or with a filter that
/// forbids the call.
pub fn leave_session_keyring() {
    // SAFETY: the arguments are a number and a name that may be null.
    unsafe {
        nix::libc::syscall(
            nix::libc::SYS_keyctl,
            nix::libc::KEYCTL_JOIN_SESSION_KEYRING,
            std::ptr::null::<nix::libc::c_char>(),
        );
    }
}

/// Makes the kernel kill this process when its parent exits.
fn set_parent_death_signal() {
    // The call cannot fail for a valid signal. If the parent has already exited, standard input
    // ends.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
}

/// Returns the first user ID of the agent in the range, or `None` if these users are not mapped
/// here. Root of a foreign user namespace may have no user other than itself.
#[must_use]
pub fn outside_user() -> Option<u32> {
    let process = nix::unistd::getpid().as_raw().unsigned_abs();
    let firsts = u32::try_from(OUTSIDE_USERS.len()).ok()? - USER_COUNT;
    let outside = OUTSIDE_USERS.start + process % firsts;
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    is_mapped(&map, &(outside..outside + USER_COUNT)).then_some(outside)
}

/// Whether all users are in one line of a `uid_map`. A line contains the first user inside, the
/// first user outside and the number of users.
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

/// For root without `CAP_SYS_ADMIN`: continues in a child in a new user namespace, in which an
/// unprivileged user of the host is root.
fn enter_outer_user_namespace(outside: u32) -> Result<(), Failure> {
    setgroups(&[]).map_err(|errno| step_failure("drop supplementary groups", errno))?;
    let mapping = fork_into_child(Some(outside..outside + USER_COUNT))?;
    set_parent_death_signal();
    unshare(CloneFlags::CLONE_NEWUSER).map_err(no_user_namespace)?;
    if let Some(mapping) = mapping {
        mapping.wait()?;
    }
    become_root()
}

/// Changes to the user that is root in the new user namespace.
fn become_root() -> Result<(), Failure> {
    setresgid(Gid::from_raw(0), Gid::from_raw(0), Gid::from_raw(0))
        .and_then(|()| setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)))
        .map_err(|errno| step_failure("change to the mapped user", errno))?;
    // The kernel clears both attributes when the user changes.
    let _ = prctl::set_dumpable(true);
    set_parent_death_signal();
    Ok(())
}

/// For users other than root: creates a user namespace in which the calling user is root.
fn map_own_user() -> Result<(), Failure> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(no_user_namespace)?;
    write_maps("/proc/self", &(uid..uid + 1), &(gid..gid + 1))
        .map_err(|error| no_user_namespace(Errno::from_raw(error.raw_os_error().unwrap_or(0))))
}

/// Maps users and groups outside to the same number inside, starting with root.
fn write_maps(process: &str, users: &Range<u32>, groups: &Range<u32>) -> io::Result<()> {
    let line = |outside: &Range<u32>| format!("0 {} {}", outside.start, outside.len());
    fs::write(format!("{process}/setgroups"), "deny")?;
    fs::write(format!("{process}/uid_map"), line(users))?;
    fs::write(format!("{process}/gid_map"), line(groups))
}

/// Child's side of the mapping of its user namespace by the parent.
struct Mapping {
    ready: OwnedFd,
    mapped: OwnedFd,
}

impl Mapping {
    /// Reports that the user namespace exists, and waits until the parent has mapped it.
    fn wait(self) -> Result<(), Failure> {
        fs::File::from(self.ready)
            .write_all(b".")
            .and_then(|()| wait_for_byte(self.mapped))
            .map_err(|error| step_io_failure("map an unprivileged user to root", &error))
    }
}

/// Continues in a child; this process waits for the child and exits with its status. With
/// `outside`, this process, which is still root, maps these users in the user namespace that the
/// child creates, the first user to root. The child cannot do so itself on hosts that restrict user
/// namespaces to privileged creators (Ubuntu since 23.10).
fn fork_into_child(outside: Option<Range<u32>>) -> Result<Option<Mapping>, Failure> {
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
                // A child that fails earlier, or is not mapped, reads the end of the pipe, reports
                // the error and exits.
                let _ = wait_for_byte(ready)
                    .and_then(|()| write_maps(&format!("/proc/{child}"), &users, &users))
                    .and_then(|()| fs::File::from(write_mapped).write_all(b"."));
            }
            exit_like(child)
        }
    }
}

fn fork_single() -> Result<ForkResult, Failure> {
    // SAFETY: the agent has only one thread until the namespaces exist. Therefore the child
    // inherits no lock of another thread.
    unsafe { fork() }.map_err(|errno| step_failure("fork the agent process", errno))
}

/// Waits for a child and exits with its status, or with 128 plus its signal.
fn exit_like(child: Pid) -> ! {
    // The protocol's streams must not stay open here: the front end detects the end of the agent by
    // their end.
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
    nix::unistd::pipe().map_err(|errno| step_failure("open a pipe", errno))
}

fn wait_for_byte(pipe: OwnedFd) -> io::Result<()> {
    let mut byte = [0];
    fs::File::from(pipe).read_exact(&mut byte)
}

fn to_errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

fn step_failure(step: &str, errno: Errno) -> Failure {
    let restriction = match errno {
        Errno::EPERM | Errno::EACCES => restriction(read_sysctl),
        _ => None,
    };
    Failure {
        kind: FailureKind::Machine,
        message: format!("the agent cannot {step}: {}", errno.desc()),
        remedy: Some(
            shortage::remedy(&errno.into())
                .or(restriction)
                .unwrap_or(
                    "run svclab as root, or in a container started with --privileged: svclab needs \
                     namespaces",
                )
                .to_owned(),
        ),
        rejected: None,
    }
}

/// Returns the error for a missing root user of the host. `reason` follows "svclab" in the message.
fn host_root_required(reason: &str) -> Failure {
    Failure {
        kind: FailureKind::Machine,
        message: format!("the agent for IPVS requires root of the host, but svclab {reason}"),
        remedy: Some(
            "run svclab as root of the host, or use a guest kernel (`--kernel auto`)".to_owned(),
        ),
        rejected: None,
    }
}

fn step_io_failure(step: &str, error: &io::Error) -> Failure {
    step_failure(step, to_errno(error))
}

/// Returns the error for a refused user namespace.
fn no_user_namespace(errno: Errno) -> Failure {
    let remedy = shortage::remedy(&errno.into())
        .or_else(|| restriction(read_sysctl))
        .unwrap_or("run svclab as root, or in a container started with --privileged");
    Failure {
        kind: FailureKind::Machine,
        message: format!("svclab cannot create a user namespace: {}", errno.desc()),
        remedy: Some(remedy.to_owned()),
        rejected: None,
    }
}

fn read_sysctl(path: &str) -> String {
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// Returns how to permit user namespaces, if a sysctl forbids them.
///
/// The restriction of `AppArmor` is special: the kernel creates the namespace but refuses its
/// capabilities. The first refused step is the map of the users, or a later one (Ubuntu since 23.10,
/// profile `unprivileged_userns`). Root of the machine is not restricted.
fn restriction(read: impl Fn(&str) -> String) -> Option<&'static str> {
    if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        Some("run `sysctl -w kernel.unprivileged_userns_clone=1` as root, or run svclab as root")
    } else if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        Some(
            "run svclab as root (sudo), or run `sysctl -w \
             kernel.apparmor_restrict_unprivileged_userns=0` as root; `--kernel auto` uses a guest",
        )
    } else if read("/proc/sys/user/max_user_namespaces") == "0" {
        Some("run `sysctl -w user.max_user_namespaces=10000` as root")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{is_mapped, restriction};

    #[test]
    fn restriction_names_the_sysctl_that_forbids() {
        let remedy = |name: &str, value: &str| {
            restriction(|path| {
                let is_it = path.ends_with(name);
                if is_it { value } else { "" }.to_owned()
            })
        };
        // Values of Ubuntu 24.04, of Debian 10 and of a hardened machine.
        let remedies = [
            remedy("/apparmor_restrict_unprivileged_userns", "1"),
            remedy("/unprivileged_userns_clone", "0"),
            remedy("/max_user_namespaces", "0"),
        ];
        let remedies: Vec<&str> = remedies.into_iter().flatten().collect();
        insta::assert_snapshot!(remedies.join("\n"), @r"
        run svclab as root (sudo), or run `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` as root; `--kernel auto` uses a guest
        run `sysctl -w kernel.unprivileged_userns_clone=1` as root, or run svclab as root
        run `sysctl -w user.max_user_namespaces=10000` as root
        ");
        // The same files with permission.
        assert_eq!(remedy("/apparmor_restrict_unprivileged_userns", "0"), None);
        assert_eq!(remedy("/unprivileged_userns_clone", "1"), None);
        assert_eq!(remedy("/max_user_namespaces", "10000"), None);
    }

    #[test]
    fn user_range_outside_uid_map_is_not_mapped() {
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
