//! Work of the forked process before it becomes QEMU. Makes system calls only: no allocation, no
//! lock.

use std::ffi::{CString, c_int};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc::{self, c_long};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::calls::call;
use super::filter::Filter;
use super::lacks::{Layer, is_disallowed};
use super::landlock::Landlock;
use super::root::Root;
use svclab_agent::capabilities::{CapabilitySet, drop_bounding_set, set_capabilities};
use svclab_agent::contain::leave_session_keyring;

/// Length of a record of the report, in bytes: a kind and a number.
pub(super) const RECORD_LEN: usize = 5;

/// Record with the ID of QEMU's process.
pub(super) const RECORD_PROCESS: u8 = 1;
/// Record with a [`Layer`] that is not allowed.
pub(super) const RECORD_DISALLOWED: u8 = 2;
/// Record with the index in [`STEPS`] of the step that failed.
pub(super) const RECORD_FAILED: u8 = 3;
/// A record with the descriptor that listens to calls.
pub(super) const LISTENER: u8 = 4;

/// Steps that may fail, as text that follows "cannot".
pub(super) const STEPS: [&str; 6] = [
    "set resource limits",
    "change to a user without privileges",
    "create namespaces",
    "create a root directory",
    "drop capabilities",
    "close inherited descriptors",
];
const STEP_LIMITS: i32 = 0;
const STEP_USER: i32 = 1;
const STEP_NAMESPACES: i32 = 2;
const STEP_ROOT: i32 = 3;
const STEP_CAPABILITIES: i32 = 4;
const STEP_DESCRIPTORS: i32 = 5;

/// User and group inside a user namespace whose only user is root outside.
pub(super) const LOCAL_ID: u32 = 61_184;

/// Maximum number of descriptors that QEMU may open.
const MAX_OPEN_FILES: u64 = 256;

/// Maximum number of processes and threads of a separate user.
const MAX_PROCESSES: u64 = 256;

/// Method by which the process gives up its privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrivilegeMethod {
    /// Root with `CAP_SYS_ADMIN` creates the namespaces, then changes its user.
    Admin,
    /// Root without it changes its user, who creates a user namespace.
    OtherUser,
    /// The caller's own user creates a user namespace.
    OwnUser,
}

/// Returns a line of `uid_map` or `gid_map`.
pub(super) fn map(inside: u32, outside: u32) -> CString {
    CString::new(format!("{inside} {outside} 1")).unwrap_or_default()
}

/// Values of the forked process, which were computed before the fork.
pub(super) struct Child {
    pub report: OwnedFd,
    /// The other end of `report`, which belongs to the parent.
    pub parents: RawFd,
    pub method: PrivilegeMethod,
    /// User and group of QEMU.
    pub inside: (u32, u32),
    /// Maps of users and groups for a user namespace.
    pub maps: [CString; 2],
    /// Supplementary groups, used if the user is changed.
    pub groups: Vec<libc::gid_t>,
    /// Whether the user without privileges exists in a user namespace only.
    pub must_map: bool,
    pub is_namespace_limit_zero: bool,
    pub root: Root,
    pub landlock: Landlock,
    pub filter: Filter,
    pub descriptors: Vec<RawFd>,
    /// Maximum size of a file that QEMU may write, in bytes.
    pub max_file_size: u64,
}

impl Child {
    /// Confines the calling process. Another process returns: a child of the same parent in a PID
    /// namespace. The calling process ends.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        // SAFETY: a number of this process's copy, which nothing uses any more.
        unsafe { libc::close(self.parents) };
        self.limit()
            .map_err(|errno| self.report_failure(STEP_LIMITS, errno))?;
        if self.method == PrivilegeMethod::OtherUser {
            self.become_user()?;
            prctl::set_dumpable(true).map_err(|errno| self.report_failure(STEP_USER, errno))?;
        }
        if self.method != PrivilegeMethod::Admin {
            self.make_user_namespace()?;
        }
        // The caller stays in its PID namespace. The next process that it creates is the first
        // process of the new namespace.
        self.check_created(Layer::PidNamespace, unshare(CloneFlags::CLONE_NEWPID))?;
        let process =
            make_sibling().map_err(|errno| self.report_failure(STEP_NAMESPACES, errno))?;
        if process != 0 {
            self.write_record(RECORD_PROCESS, process);
            // SAFETY: ends this process without running anything.
            unsafe { libc::_exit(0) };
        }
        self.stay_with_parent()?;
        // SAFETY: the arguments are numbers. The call does not fail for a new process.
        unsafe { libc::setpgid(0, 0) };
        self.create_environment()?;
        leave_session_keyring();
        self.drop_privileges()?;
        self.close_on_exec()
            .map_err(|errno| self.report_failure(STEP_DESCRIPTORS, errno))?;
        // A change of the user clears this setting.
        self.stay_with_parent()?;
        let result = self.filter.load();
        if let Ok(Some(listener)) = &result {
            self.hand_over(listener)
                .map_err(|errno| self.report_failure(STEP_DESCRIPTORS, errno))?;
        }
        self.check_created(Layer::Filter, result.map(drop))?;
        Ok(())
    }

    /// Sends a descriptor to the parent. The copy of this process is closed by exec.
    fn hand_over(&self, descriptor: &OwnedFd) -> nix::Result<()> {
        let descriptors = [descriptor.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let record = [LISTENER; RECORD_LEN];
        sendmsg(
            &self.report,
            &[IoSlice::new(&record)],
            &mut ancillary,
            SendFlags::empty(),
        )
        .map(drop)
        .map_err(|errno| Errno::from_raw(errno.raw_os_error()))
    }

    fn limit(&self) -> nix::Result<()> {
        let limits = [
            (Resource::RLIMIT_CORE, 0),
            (Resource::RLIMIT_FSIZE, self.max_file_size),
        ];
        for (resource, limit) in limits {
            let (_, hard) = getrlimit(resource)?;
            setrlimit(resource, limit.min(hard), limit.min(hard))?;
        }
        // Limits of processes count all processes of the user on this machine.
        if self.method != PrivilegeMethod::OwnUser {
            setrlimit(Resource::RLIMIT_NPROC, MAX_PROCESSES, MAX_PROCESSES)?;
        }
        Ok(())
    }

    /// Changes user and groups permanently. Makes raw system calls, because glibc would look for
    /// other threads of this process.
    fn become_user(&self) -> io::Result<()> {
        let (user, group) = self.inside;
        if self.method != PrivilegeMethod::OwnUser {
            // The bounding set is emptied first, because this needs a capability.
            self.empty_bounding_set()?;
            call(
                libc::SYS_setgroups,
                [
                    c_long::try_from(self.groups.len()).unwrap_or(0),
                    self.groups.as_ptr() as c_long,
                    0,
                ],
            )
            .map_err(|errno| self.report_failure(STEP_USER, errno))?;
        }
        call(libc::SYS_setresgid, [c_long::from(group); 3])
            .and_then(|()| call(libc::SYS_setresuid, [c_long::from(user); 3]))
            .map_err(|errno| self.report_failure(STEP_USER, errno))
    }

    /// Creates a user namespace with one user. If it is not allowed, the other namespaces are not
    /// allowed either.
    fn make_user_namespace(&self) -> io::Result<()> {
        let result = unshare(CloneFlags::CLONE_NEWUSER).and_then(|()| {
            write(c"/proc/self/setgroups", b"deny")?;
            write(c"/proc/self/uid_map", self.maps[0].as_bytes())?;
            write(c"/proc/self/gid_map", self.maps[1].as_bytes())
        });
        match result {
            Ok(()) => Ok(()),
            Err(errno) if self.must_map => Err(self.report_failure(STEP_USER, errno)),
            Err(errno) if is_disallowed(errno, self.is_namespace_limit_zero) => Ok(()),
            Err(errno) => Err(self.report_failure(STEP_NAMESPACES, errno)),
        }
    }

    /// Creates the namespaces and the root directory. If the root directory is not allowed, adds
    /// Landlock rules.
    fn create_environment(&mut self) -> io::Result<()> {
        let kinds = [
            (Layer::MountNamespace, CloneFlags::CLONE_NEWNS),
            (Layer::NetworkNamespace, CloneFlags::CLONE_NEWNET),
            (Layer::IpcNamespace, CloneFlags::CLONE_NEWIPC),
            (Layer::UtsNamespace, CloneFlags::CLONE_NEWUTS),
            (Layer::CgroupNamespace, CloneFlags::CLONE_NEWCGROUP),
        ];
        let mut mounts = false;
        for (layer, kind) in kinds {
            let made = self.check_created(layer, unshare(kind))?;
            mounts |= made && layer == Layer::MountNamespace;
            if made && layer == Layer::UtsNamespace {
                // QEMU must not see the name of this machine.
                let _ = nix::unistd::sethostname("svclab");
            }
        }
        let result = if mounts {
            self.root.enter()
        } else {
            Err(Errno::EPERM)
        };
        let has_root = match result {
            Err(errno) if !is_disallowed(errno, self.is_namespace_limit_zero) => {
                return Err(self.report_failure(STEP_ROOT, errno));
            }
            entered => self.check_created(Layer::RootDirectory, entered)?,
        };
        prctl::set_no_new_privs().map_err(|errno| self.report_failure(STEP_CAPABILITIES, errno))?;
        if !has_root {
            let restricted = self.landlock.restrict();
            self.check_created(Layer::Landlock, restricted)?;
        }
        Ok(())
    }

    /// Changes the user if this is not done yet, and gives up every capability.
    fn drop_privileges(&self) -> io::Result<()> {
        if self.method != PrivilegeMethod::OtherUser {
            self.become_user()?;
        }
        self.empty_bounding_set()?;
        set_capabilities(CapabilitySet::empty(), CapabilitySet::empty())
            .map_err(|errno| self.report_failure(STEP_CAPABILITIES, errno))
    }

    /// Empties the bounding set. A process without `CAP_SETPCAP` is not allowed to do this. With
    /// `no_new_privs`, it cannot gain capabilities of the set either.
    fn empty_bounding_set(&self) -> io::Result<()> {
        match drop_bounding_set() {
            Ok(()) | Err(Errno::EPERM) => Ok(()),
            Err(errno) => Err(self.report_failure(STEP_CAPABILITIES, errno)),
        }
    }

    /// Marks all descriptors to be closed by exec, except the three standard streams and those that
    /// QEMU inherits.
    fn close_on_exec(&self) -> nix::Result<()> {
        let last = c_long::from(c_int::MAX);
        let flag = c_long::from(libc::CLOSE_RANGE_CLOEXEC);
        if call(libc::SYS_close_range, [3, last, flag]).is_err() {
            // Kernels before 5.11 do not support this call.
            let (open, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
            let max_descriptors = c_int::try_from(open).unwrap_or(c_int::MAX).max(65_536);
            for descriptor in 3..max_descriptors {
                // SAFETY: the arguments are numbers; the call fails for a descriptor that is not
                // open.
                unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
            }
        }
        for descriptor in &self.descriptors {
            // SAFETY: the arguments are numbers.
            let result = unsafe { libc::fcntl(*descriptor, libc::F_SETFD, 0) };
            Errno::result(result)?;
        }
        // Not before, because the process has all descriptors of its parent until exec.
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let limit = MAX_OPEN_FILES.min(hard);
        setrlimit(Resource::RLIMIT_NOFILE, limit, limit)
    }

    /// Makes the kernel kill this process when its parent ends. Fails if the parent has ended
    /// already: the report then has no reader.
    fn stay_with_parent(&self) -> io::Result<()> {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        let mut polled = libc::pollfd {
            fd: self.report.as_raw_fd(),
            events: 0,
            revents: 0,
        };
        // SAFETY: one structure is passed, which outlives the call.
        unsafe { libc::poll(&raw mut polled, 1, 0) };
        if polled.revents & libc::POLLHUP == 0 {
            Ok(())
        } else {
            Err(Errno::ESRCH.into())
        }
    }

    /// Returns whether a part was created. A part that is not allowed is reported.
    fn check_created(&self, layer: Layer, result: nix::Result<()>) -> io::Result<bool> {
        match result {
            Ok(()) => Ok(true),
            Err(errno) if is_disallowed(errno, self.is_namespace_limit_zero) => {
                self.write_record(RECORD_DISALLOWED, layer as i32);
                Ok(false)
            }
            Err(errno) => Err(self.report_failure(STEP_NAMESPACES, errno)),
        }
    }

    fn report_failure(&self, step: i32, errno: Errno) -> io::Error {
        self.write_record(RECORD_FAILED, step);
        errno.into()
    }

    fn write_record(&self, kind: u8, number: i32) {
        let mut record = [kind; RECORD_LEN];
        record[1..].copy_from_slice(&number.to_ne_bytes());
        // The socket has room for all possible records.
        let _ = nix::unistd::write(&self.report, &record);
    }
}

/// Creates a copy of this process with the same parent. Returns the process ID of the copy, and 0
/// in the copy.
fn make_sibling() -> nix::Result<i32> {
    let flags = c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    // SAFETY: without shared memory this is a fork; neither copy takes a lock or
    // allocates before exec or exit.
    let process = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    Errno::result(process).map(|process| i32::try_from(process).unwrap_or(0))
}

fn write(path: &std::ffi::CStr, text: &[u8]) -> nix::Result<()> {
    use nix::fcntl::{OFlag, open};
    use nix::sys::stat::Mode;
    let file = open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    nix::unistd::write(&file, text).map(drop)
}
