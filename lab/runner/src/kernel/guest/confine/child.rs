//! What the forked process does before it becomes QEMU. System calls only: no
//! allocation, no lock.

use std::ffi::{CString, c_int};
use std::io::{self, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc::{self, c_long};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::filter::Filter;
use super::lacks::{Layer, is_refusal};
use super::landlock::Landlock;
use super::root::Root;
use svclab_agent::contain::forget_keys;
use svclab_agent::rights::{drop_bounding_set, set_capabilities};

/// The length of a record of the report, in bytes: a kind and a number.
pub const RECORD: usize = 5;

/// A record with the number of QEMU's process.
pub const PROCESS: u8 = 1;
/// A record with a [`Layer`] that was refused.
pub const LACKS: u8 = 2;
/// A record with the index in [`STEPS`] of the step that failed.
pub const FAILED: u8 = 3;
/// A record with the descriptor that listens to calls.
pub const LISTENER: u8 = 4;

/// Steps that may fail, in words that follow "cannot".
pub const STEPS: [&str; 6] = [
    "set its limits",
    "become a user without privileges",
    "make its namespaces",
    "make its root directory",
    "give up its capabilities",
    "close what it inherits",
];
const LIMIT: i32 = 0;
const BECOME: i32 = 1;
const NAMESPACES: i32 = 2;
const ROOT: i32 = 3;
const CAPABILITIES: i32 = 4;
const DESCRIPTORS: i32 = 5;

/// The user and group inside a user namespace whose only user is root outside.
pub const LOCAL: u32 = 61_184;

/// How many descriptors QEMU may open.
const OPEN_FILES: u64 = 256;

/// How many processes and threads a user of its own may have.
const PROCESSES: u64 = 256;

/// How the process becomes one without privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Root with `CAP_SYS_ADMIN` makes the namespaces, then changes its user.
    Administrator,
    /// Root without it changes its user, who makes a user namespace.
    Other,
    /// The caller's own user makes a user namespace.
    Own,
}

/// A line of `uid_map` or `gid_map`.
pub fn map(inside: u32, outside: u32) -> CString {
    CString::new(format!("{inside} {outside} 1")).unwrap_or_default()
}

/// The forked process.
pub struct Child {
    pub report: OwnedFd,
    /// The other end of `report`, which belongs to the parent.
    pub parents: RawFd,
    pub way: Way,
    /// User and group that QEMU has.
    pub inside: (u32, u32),
    /// The maps of users and groups for a user namespace.
    pub maps: [CString; 2],
    /// Supplementary groups, where the user is changed.
    pub groups: Vec<libc::gid_t>,
    /// Whether the user without privileges exists in a user namespace only.
    pub must_map: bool,
    pub no_namespaces: bool,
    pub root: Root,
    pub landlock: Landlock,
    pub filter: Filter,
    /// Descriptors that QEMU inherits.
    pub descriptors: Vec<RawFd>,
    /// The largest file that it may write, in bytes.
    pub largest: u64,
}

impl Child {
    /// Confines the calling process. The process that returns is another one, a
    /// child of the same parent in a PID namespace; the calling one ends.
    pub fn enter(&mut self) -> io::Result<()> {
        // SAFETY: a number of this process's copy, which nothing uses any more.
        unsafe { libc::close(self.parents) };
        self.limit().map_err(|errno| self.failed(LIMIT, errno))?;
        if self.way == Way::Other {
            self.become_user()?;
            prctl::set_dumpable(true).map_err(|errno| self.failed(BECOME, errno))?;
        }
        if self.way != Way::Administrator {
            self.make_user_namespace()?;
        }
        // The caller stays in its PID namespace; the next process that it makes
        // is the first of the new one.
        self.made(Layer::PidNamespace, unshare(CloneFlags::CLONE_NEWPID))?;
        let process = make_sibling().map_err(|errno| self.failed(NAMESPACES, errno))?;
        if process != 0 {
            self.record(PROCESS, process);
            // SAFETY: ends this process without running anything.
            unsafe { libc::_exit(0) };
        }
        self.stay_with_parent()?;
        // SAFETY: takes numbers. It fails for no process that was just made.
        unsafe { libc::setpgid(0, 0) };
        self.make_place()?;
        forget_keys();
        self.give_up()?;
        self.inherit_little()
            .map_err(|errno| self.failed(DESCRIPTORS, errno))?;
        // A change of users clears it.
        self.stay_with_parent()?;
        let filtered = self.filter.load();
        if let Ok(Some(listener)) = &filtered {
            self.hand_over(listener)
                .map_err(|errno| self.failed(DESCRIPTORS, errno))?;
        }
        self.made(Layer::Filter, filtered.map(drop))?;
        Ok(())
    }

    /// Sends a descriptor to the parent. The copy of this process is closed by exec.
    fn hand_over(&self, descriptor: &OwnedFd) -> nix::Result<()> {
        let descriptors = [descriptor.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let record = [LISTENER; RECORD];
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
            (Resource::RLIMIT_FSIZE, self.largest),
        ];
        for (resource, limit) in limits {
            let (_, hard) = getrlimit(resource)?;
            setrlimit(resource, limit.min(hard), limit.min(hard))?;
        }
        // Limits of processes count all that the user has on this machine.
        if self.way != Way::Own {
            setrlimit(Resource::RLIMIT_NPROC, PROCESSES, PROCESSES)?;
        }
        Ok(())
    }

    /// Changes user and groups for good. Raw calls: glibc's would look for other
    /// threads of this process.
    fn become_user(&self) -> io::Result<()> {
        let (user, group) = self.inside;
        if self.way != Way::Own {
            // What programs could gain goes first: it takes a capability.
            self.forgo()?;
            call(
                libc::SYS_setgroups,
                [
                    c_long::try_from(self.groups.len()).unwrap_or(0),
                    self.groups.as_ptr() as c_long,
                    0,
                ],
            )
            .map_err(|errno| self.failed(BECOME, errno))?;
        }
        call(libc::SYS_setresgid, [c_long::from(group); 3])
            .and_then(|()| call(libc::SYS_setresuid, [c_long::from(user); 3]))
            .map_err(|errno| self.failed(BECOME, errno))
    }

    /// Makes a user namespace with one user. Without one, the other namespaces
    /// are refused as well.
    fn make_user_namespace(&self) -> io::Result<()> {
        let made = unshare(CloneFlags::CLONE_NEWUSER).and_then(|()| {
            write(c"/proc/self/setgroups", b"deny")?;
            write(c"/proc/self/uid_map", self.maps[0].as_bytes())?;
            write(c"/proc/self/gid_map", self.maps[1].as_bytes())
        });
        match made {
            Ok(()) => Ok(()),
            Err(errno) if self.must_map => Err(self.failed(BECOME, errno)),
            Err(errno) if is_refusal(errno, self.no_namespaces) => Ok(()),
            Err(errno) => Err(self.failed(NAMESPACES, errno)),
        }
    }

    /// Makes the namespaces and the root directory; where the directory is
    /// refused, Landlock rules.
    fn make_place(&mut self) -> io::Result<()> {
        let kinds = [
            (Layer::MountNamespace, CloneFlags::CLONE_NEWNS),
            (Layer::NetworkNamespace, CloneFlags::CLONE_NEWNET),
            (Layer::IpcNamespace, CloneFlags::CLONE_NEWIPC),
            (Layer::UtsNamespace, CloneFlags::CLONE_NEWUTS),
            (Layer::CgroupNamespace, CloneFlags::CLONE_NEWCGROUP),
        ];
        let mut mounts = false;
        for (layer, kind) in kinds {
            let made = self.made(layer, unshare(kind))?;
            mounts |= made && layer == Layer::MountNamespace;
            if made && layer == Layer::UtsNamespace {
                // Whatever the name, it is not this machine's.
                let _ = nix::unistd::sethostname("svclab");
            }
        }
        let entered = if mounts {
            self.root.enter()
        } else {
            Err(Errno::EPERM)
        };
        let has_root = match entered {
            Err(errno) if !is_refusal(errno, self.no_namespaces) => {
                return Err(self.failed(ROOT, errno));
            }
            entered => self.made(Layer::RootDirectory, entered)?,
        };
        prctl::set_no_new_privs().map_err(|errno| self.failed(CAPABILITIES, errno))?;
        if !has_root {
            let restricted = self.landlock.restrict();
            self.made(Layer::Landlock, restricted)?;
        }
        Ok(())
    }

    /// Becomes the user, if it is not yet, and gives up every capability.
    fn give_up(&self) -> io::Result<()> {
        if self.way != Way::Other {
            self.become_user()?;
        }
        self.forgo()?;
        set_capabilities(0, 0).map_err(|errno| self.failed(CAPABILITIES, errno))
    }

    /// Empties the bounding set. A process without `CAP_SETPCAP` may not; with
    /// `no_new_privs` it gains none of that set either.
    fn forgo(&self) -> io::Result<()> {
        match drop_bounding_set() {
            Ok(()) | Err(Errno::EPERM) => Ok(()),
            Err(errno) => Err(self.failed(CAPABILITIES, errno)),
        }
    }

    /// Marks all descriptors to be closed by exec but the three streams and those
    /// that QEMU is given.
    fn inherit_little(&self) -> nix::Result<()> {
        let last = c_long::from(c_int::MAX);
        let flag = c_long::from(libc::CLOSE_RANGE_CLOEXEC);
        if call(libc::SYS_close_range, [3, last, flag]).is_err() {
            // Kernels before 5.11 have no such call.
            let (open, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
            let most = c_int::try_from(open).unwrap_or(c_int::MAX).max(65_536);
            for descriptor in 3..most {
                // SAFETY: takes numbers; one that is not open is refused.
                unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
            }
        }
        for descriptor in &self.descriptors {
            // SAFETY: takes numbers.
            let kept = unsafe { libc::fcntl(*descriptor, libc::F_SETFD, 0) };
            Errno::result(kept)?;
        }
        // Only now: until exec the process has all descriptors of its parent.
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let limit = OPEN_FILES.min(hard);
        setrlimit(Resource::RLIMIT_NOFILE, limit, limit)
    }

    /// Has the kernel kill this process when its parent ends, which may have
    /// happened already: then nobody reads the report any more.
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

    /// Whether a part was made. One that was refused is reported.
    fn made(&self, layer: Layer, result: nix::Result<()>) -> io::Result<bool> {
        match result {
            Ok(()) => Ok(true),
            Err(errno) if is_refusal(errno, self.no_namespaces) => {
                self.record(LACKS, layer as i32);
                Ok(false)
            }
            Err(errno) => Err(self.failed(NAMESPACES, errno)),
        }
    }

    fn failed(&self, step: i32, errno: Errno) -> io::Error {
        self.record(FAILED, step);
        errno.into()
    }

    fn record(&self, kind: u8, number: i32) {
        let mut record = [kind; RECORD];
        record[1..].copy_from_slice(&number.to_ne_bytes());
        // The socket holds all records that there can be.
        let _ = nix::unistd::write(&self.report, &record);
    }
}

/// Makes a copy of this process whose parent is this one's parent. Returns its
/// number, and 0 in the copy.
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

/// A system call of at most three numbers or addresses that outlive it.
pub fn call(number: c_long, arguments: [c_long; 3]) -> nix::Result<()> {
    let [one, two, three] = arguments;
    // SAFETY: the callers pass what the call takes.
    let done = unsafe { libc::syscall(number, one, two, three) };
    Errno::result(done).map(drop)
}

/// The path of an open descriptor, without allocation.
pub fn path_of(descriptor: RawFd, buffer: &mut [u8; 40]) -> &std::ffi::CStr {
    let mut rest = &mut buffer[..];
    let _ = write!(rest, "/proc/self/fd/{descriptor}\0");
    std::ffi::CStr::from_bytes_until_nul(buffer).unwrap_or(c"")
}
