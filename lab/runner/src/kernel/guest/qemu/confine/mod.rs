//! Starts QEMU as a process without privileges. The process has no access to this machine except
//! the descriptors that it inherits.
//!
//! The process gets, in this order:
//!
//! 1. a user: as root, one of a range that no account uses; otherwise the caller's own, in a user
//!    namespace that gives it no capability;
//! 2. PID, mount, network, IPC, UTS and cgroup namespaces;
//! 3. a root directory with the system's programs and libraries, read-only ([`root`]), or, without
//!    a mount namespace, Landlock rules with the same paths ([`landlock`]);
//! 4. limits, no capabilities, `no_new_privs`, no inherited descriptors;
//! 5. a system call filter ([`filter`]), to which QEMU adds its own.
//!
//! Users, capabilities, descriptors and `no_new_privs` are never omitted: QEMU does not start
//! without them. A container or a kernel may not allow the rest. Parts that are not allowed are
//! omitted, and [`Confined::disallowed`] lists them. Any other failure, such as too little memory, is an
//! error.
//!
//! Between fork and exec, the process only makes system calls. Their values are computed before the
//! fork, because other threads may hold locks at the fork.

mod calls;
mod child;
mod filter;
mod lacks;
mod landlock;
mod listener;
mod root;

use std::ffi::OsString;
use std::fs;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getegid, geteuid};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::process::{ChildStderr, ChildStdout};

use super::process::Process;
use crate::kernel::error::guest::GuestError;
use child::{
    Child, PrivilegeMethod, RECORD_DISALLOWED, RECORD_FAILED, RECORD_LEN, RECORD_PROCESS, STEPS,
};
pub use lacks::DisallowedLayers;
pub(crate) use listener::{Listener, OpenResult};
use svclab_agent::capabilities::{CapabilitySet, has_capabilities, is_administrator};
use svclab_agent::contain::outside_user;

/// Environment variables that QEMU keeps: its wrapper finds programs in one, and the loader finds
/// libraries in the other.
const KEPT_VARIABLES: [&str; 2] = ["PATH", "LD_LIBRARY_PATH"];

/// Device of the kernel's hypervisor.
pub(crate) const KVM: &str = "/dev/kvm";

/// Maximum size of a file that a booting guest may write, in bytes. The files are its memory and
/// its state.
const MAX_FILE_SIZE: u64 = 64 << 30;

/// Access of the process to this machine.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Access<'a> {
    /// Descriptors that the process inherits, under their numbers.
    pub descriptors: &'a [BorrowedFd<'a>],
    /// Whether the process may open [`KVM`].
    pub kvm: bool,
    /// Whether the process may write to files.
    pub can_write: bool,
    /// Whether [`Confined::listener`] answers for files that it opens to read and write.
    pub asks: bool,
}

/// Process that was started with the confinement.
#[derive(Debug)]
pub(crate) struct Confined {
    /// The process. Dropping it kills the process.
    pub process: Process,
    /// Standard output of the process.
    pub stdout: ChildStdout,
    /// Standard error of the process.
    pub stderr: ChildStderr,
    /// Parts of the confinement that this machine does not allow.
    pub disallowed: DisallowedLayers,
    /// Answers for files that the process opens to read and write; `None` if that was not
    /// asked for, this machine has no listeners, or the process has the user of this one,
    /// whose files it could open again for writing.
    pub listener: Option<Listener>,
}

/// Starts `program`, an absolute path without symbolic links. Parts of the confinement that this
/// machine does not allow are no errors.
pub(crate) fn spawn(
    program: &Path,
    arguments: &[OsString],
    access: &Access<'_>,
) -> Result<Confined, GuestError> {
    let unstarted = |source| GuestError::Spawn {
        program: program.to_owned(),
        source,
    };
    let (report, reporting) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .map_err(io::Error::from)
    .map_err(unstarted)?;
    let mut child = prepare(program, access, reporting, report.as_raw_fd())?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir("/")
        .env_clear()
        .envs(KEPT_VARIABLES.iter().filter_map(|name| {
            let value = std::env::var_os(name)?;
            Some((name, value))
        }))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: `enter` only makes system calls, which are allowed between fork and exec.
    unsafe { command.pre_exec(move || child.enter()) };
    let result = command.spawn();
    // Dropping the command closes the last writing end of the report on this side.
    drop(command);
    let report = Report::read(&report).map_err(unstarted)?;
    let process = report.process.map(Process::new);
    match result {
        Ok(mut first) => {
            // The forked process has created another process and ended.
            let _ = first.wait();
            let (Some(process), Some(stdout), Some(stderr)) =
                (process, first.stdout.take(), first.stderr.take())
            else {
                return Err(unstarted(io::ErrorKind::BrokenPipe.into()));
            };
            Ok(Confined {
                process,
                stdout: ChildStdout::from_std(stdout).map_err(unstarted)?,
                stderr: ChildStderr::from_std(stderr).map_err(unstarted)?,
                disallowed: report.disallowed,
                listener: report
                    .listener
                    .map(Listener::new)
                    .transpose()
                    .map_err(unstarted)?,
            })
        }
        Err(source) => {
            if let Some(process) = report.process {
                let _ = waitpid(process, None);
            }
            Err(match report.failed {
                Some(step) => GuestError::Confinement { step, source },
                None => unstarted(source),
            })
        }
    }
}

/// Computes all values that the forked process needs.
fn prepare(
    program: &Path,
    access: &Access<'_>,
    reporting: OwnedFd,
    parents: RawFd,
) -> Result<Child, GuestError> {
    let is_root = geteuid().is_root();
    let unprivileged_user = outside_user().filter(|_| is_root);
    let change_user = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::KILL;
    if unprivileged_user.is_some() && !has_capabilities(change_user) {
        return Err(GuestError::Confinement {
            step: "change to a user without privileges",
            source: io::ErrorKind::PermissionDenied.into(),
        });
    }
    let method = match unprivileged_user {
        Some(_) if is_administrator() => PrivilegeMethod::Admin,
        Some(_) => PrivilegeMethod::OtherUser,
        None => PrivilegeMethod::OwnUser,
    };
    let outside = (geteuid().as_raw(), getegid().as_raw());
    let inside = match unprivileged_user {
        Some(user) => (user, user),
        // Root of a user namespace without other users becomes an ordinary user of a further
        // namespace.
        None if is_root => (child::LOCAL_ID, child::LOCAL_ID),
        None => outside,
    };
    let mapped = if unprivileged_user.is_some() {
        inside
    } else {
        outside
    };
    let kvm = access.kvm.then(|| fs::metadata(KVM).ok()).flatten();
    let kvm = kvm.filter(|found| found.file_type().is_char_device());
    // The permissions of the owner are those of root. Only the permissions of the group can be
    // kept.
    let group = kvm
        .as_ref()
        .filter(|found| found.mode() & 0o060 == 0o060 && found.gid() != 0)
        .map(MetadataExt::gid);
    let libraries = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let visible_paths = root::visible_paths(program, &libraries);
    Ok(Child {
        report: reporting,
        parents,
        method,
        inside,
        maps: [
            child::map(inside.0, mapped.0),
            child::map(inside.1, mapped.1),
        ],
        groups: group.into_iter().collect(),
        must_map: is_root && unprivileged_user.is_none(),
        is_namespace_limit_zero: lacks::is_namespace_limit_zero(),
        root: root::Root::new(&visible_paths, kvm.map(|found| found.rdev()), inside.0),
        landlock: landlock::Landlock::new(&visible_paths, access.kvm),
        filter: filter::Filter::new(access.asks && method != PrivilegeMethod::OwnUser),
        descriptors: access.descriptors.iter().map(AsRawFd::as_raw_fd).collect(),
        max_file_size: if access.can_write { MAX_FILE_SIZE } else { 0 },
    })
}

/// Report of the forked processes before exec.
#[derive(Default)]
struct Report {
    process: Option<Pid>,
    disallowed: DisallowedLayers,
    failed: Option<&'static str>,
    listener: Option<OwnedFd>,
}

impl Report {
    /// Reads all records until the other end of the socket is closed.
    fn read(from: &OwnedFd) -> io::Result<Self> {
        let mut report = Self::default();
        loop {
            let mut record = [0; RECORD_LEN];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let received = recvmsg(
                from,
                &mut [IoSliceMut::new(&mut record)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            );
            match received {
                Ok(received) if received.bytes == 0 => return Ok(report),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                    report.listener = descriptors.next();
                }
            }
            let number = record[1..].try_into().map_or(0, i32::from_ne_bytes);
            match record[0] {
                RECORD_PROCESS => report.process = Some(Pid::from_raw(number)),
                RECORD_DISALLOWED => report.disallowed.add(number),
                RECORD_FAILED => {
                    report.failed = usize::try_from(number)
                        .ok()
                        .and_then(|step| STEPS.get(step).copied());
                }
                _ => {}
            }
        }
    }
}
