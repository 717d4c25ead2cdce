//! Landlock rules for a QEMU that shares the root directory of this machine (Linux v6.12,
//! `Documentation/userspace-api/landlock.rst`). They need no privilege.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc::{self, c_int, c_long};
use nix::sys::stat::Mode;

use super::KVM;
use super::calls::call;
use svclab_agent::rootfs::DEVICES;

// Access rights for files (`include/uapi/linux/landlock.h`).
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIRECTORY: u64 = 1 << 3;
const DEVICE_CONTROL: u64 = 1 << 15;

/// All access rights for files that each version of Landlock handles, from version 1.
const FILE_RIGHTS: [u64; 5] = [
    (1 << 13) - 1,
    (1 << 14) - 1,
    (1 << 15) - 1,
    (1 << 15) - 1,
    (1 << 16) - 1,
];

/// Binding and connecting TCP sockets, from version 4.
const NETWORK_RIGHTS: u64 = 3;

/// Abstract Unix sockets and signals of processes outside, from version 6.
const SCOPE_RIGHTS: u64 = 3;

/// Access rights that a rule set handles.
#[repr(C)]
struct HandledRights {
    files: u64,
    network: u64,
    outside: u64,
}

/// Access rights that are allowed below a path.
#[repr(C, packed)]
struct PathRule {
    allowed: u64,
    parent: c_int,
}

/// Rules: paths with their access rights. The rights depend on whether the path is a directory.
pub(super) struct Landlock(Vec<(CString, u64)>);

impl Landlock {
    /// Creates rules for these paths, for the devices that programs expect, and for the device of
    /// the hypervisor if it is used.
    pub(super) fn new(visible_paths: &[PathBuf], kvm: bool) -> Self {
        let shown = visible_paths.iter().map(PathBuf::as_path);
        let shown = shown.map(|path| (path, EXECUTE | READ_FILE | READ_DIRECTORY));
        let devices = DEVICES.iter().map(Path::new);
        let devices = devices.map(|path| (path, READ_FILE | WRITE_FILE));
        let kvm = kvm.then(|| (Path::new(KVM), READ_FILE | WRITE_FILE | DEVICE_CONTROL));
        let rules = shown
            .chain(devices)
            .chain(kvm)
            .filter_map(|(path, rights)| {
                // Files do not have the access rights of directories.
                let rights = if path.is_dir() {
                    rights
                } else {
                    rights & !READ_DIRECTORY
                };
                Some((CString::new(path.as_os_str().as_bytes()).ok()?, rights))
            });
        Self(rules.collect())
    }

    /// Restricts the calling process permanently. The process must have set `no_new_privs`.
    pub(super) fn restrict(&self) -> nix::Result<()> {
        // SAFETY: requests the version, for which the call reads no structure.
        let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) };
        let version = usize::try_from(Errno::result(version)?).unwrap_or(0);
        let files = FILE_RIGHTS[version.clamp(1, FILE_RIGHTS.len()) - 1];
        let handled = HandledRights {
            files,
            network: if version >= 4 { NETWORK_RIGHTS } else { 0 },
            outside: if version >= 6 { SCOPE_RIGHTS } else { 0 },
        };
        let size = match version {
            0..=3 => 8,
            4..=5 => 16,
            _ => 24,
        };
        // SAFETY: the structure outlives the call, which reads `size` bytes of it. Nothing else
        // owns the returned descriptor.
        let rules = unsafe {
            let rules = libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const handled,
                size,
                0,
            );
            let rules = Errno::result(rules)?;
            OwnedFd::from_raw_fd(c_int::try_from(rules).unwrap_or(-1))
        };
        for (path, rights) in &self.0 {
            let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
            // A path that this machine lacks needs no rule.
            let Ok(parent) = open(path.as_c_str(), flags, Mode::empty()) else {
                continue;
            };
            let rule = PathRule {
                allowed: rights & files,
                parent: parent.as_raw_fd(),
            };
            // SAFETY: the rule outlives the call.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_landlock_add_rule,
                    rules.as_raw_fd(),
                    1,
                    &raw const rule,
                    0,
                )
            };
            Errno::result(result)?;
        }
        let rules = c_long::from(rules.as_raw_fd());
        call(libc::SYS_landlock_restrict_self, [rules, 0, 0])
    }
}
