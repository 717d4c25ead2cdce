//! Root directory of QEMU: the system's programs, libraries and firmware, read-only, and a `/proc`
//! that shows QEMU only.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, SFlag, mknod};
use nix::unistd::{chdir, chown, mkdir, pivot_root, symlinkat};

use super::KVM;
use super::calls::path_of;
use svclab_agent::rootfs::{DEVICES, VISIBLE_PATHS};

/// Directories with QEMU's own files, below the prefix of an installation.
const OWN_FILES: [&str; 3] = ["share/qemu", "lib/qemu", "lib64/qemu"];

/// Returns the paths that QEMU reads: those of the system, and those of a QEMU that is installed
/// elsewhere.
pub(super) fn visible_paths(program: &Path, libraries: &OsStr) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = VISIBLE_PATHS.iter().map(PathBuf::from).collect();
    if paths.iter().all(|path| !program.starts_with(path)) {
        paths.push(program.to_owned());
        let prefix = program.parent().and_then(Path::parent);
        let own_prefix = prefix.filter(|prefix| prefix.parent().is_some());
        paths.extend(
            own_prefix
                .into_iter()
                .flat_map(|prefix| OWN_FILES.map(|name| prefix.join(name))),
        );
    }
    paths.extend(
        std::env::split_paths(libraries)
            .filter(|path| path.is_absolute() && path.parent().is_some() && path.is_dir()),
    );
    paths
}

/// Step of building the directory. Paths are relative to the directory.
enum BuildStep {
    Directory(CString),
    File(CString),
    Link {
        target: CString,
        at: CString,
    },
    /// Mounts the file at `source`, which is opened before the first mount.
    Bind {
        source: CString,
        at: CString,
        opened: Option<OwnedFd>,
    },
}

/// Description of the directory to build.
pub(super) struct Root {
    /// Directory of this machine on which the new directory is mounted.
    base: CString,
    steps: Vec<BuildStep>,
    kvm: Option<KvmDevice>,
}

/// Device of the hypervisor. QEMU gets a separate device node.
struct KvmDevice {
    number: u64,
    owner: u32,
    bind: BuildStep,
}

impl Root {
    /// Describes a root directory with these paths, and with the device of the hypervisor of this
    /// number, for this user.
    pub(super) fn new(shown: &[PathBuf], kvm: Option<u64>, owner: u32) -> Self {
        let base = ["/tmp", "/run", "/mnt", "/var"]
            .into_iter()
            .find(|path| Path::new(path).is_dir());
        let mut plan = BuildPlan::default();
        for path in shown {
            plan.add_path(path);
        }
        for device in DEVICES {
            plan.add_path(Path::new(device));
        }
        plan.add_directory(Path::new("proc"));
        plan.add_directory(Path::new("dev"));
        let kvm = kvm.map(|number| KvmDevice {
            number,
            owner,
            bind: BuildStep::Bind {
                source: c_string(Path::new(KVM)),
                at: c_string(Path::new("dev/kvm")),
                opened: None,
            },
        });
        Self {
            base: c_string(Path::new(base.unwrap_or("/"))),
            steps: plan.steps,
            kvm,
        }
    }

    /// Builds the directory and enters it. The calling process is alone in its mount namespace.
    pub(super) fn enter(&mut self) -> nix::Result<()> {
        let none = None::<&str>;
        let restricted = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        let kvm = self.kvm.as_mut().map(|kvm| &mut kvm.bind);
        for step in self.steps.iter_mut().chain(kvm) {
            if let BuildStep::Bind { source, opened, .. } = step {
                let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
                *opened = open(source.as_c_str(), flags, Mode::empty()).ok();
            }
        }
        let mut flags = MsFlags::MS_NOSUID;
        if self.kvm.is_none() {
            flags |= MsFlags::MS_NODEV;
        }
        let small = Some("size=1m,mode=0755");
        let base = self.base.as_c_str();
        mount(Some("svclab"), base, Some("tmpfs"), flags, small)?;
        chdir(base)?;
        for step in &self.steps {
            step.apply()?;
        }
        if let Some(kvm) = &self.kvm {
            kvm.create_node()?;
        }
        mount(Some("proc"), "proc", Some("proc"), restricted, none)?;
        // The old root is mounted on top of the new one, and is then unmounted.
        pivot_root(".", ".")?;
        umount2(".", MntFlags::MNT_DETACH)?;
        chdir("/")?;
        make_read_only()
    }
}

impl BuildStep {
    fn apply(&self) -> nix::Result<()> {
        let none = None::<&str>;
        match self {
            Self::Directory(path) => mkdir(path.as_c_str(), Mode::from_bits_truncate(0o755)),
            Self::File(path) => {
                let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
                open(path.as_c_str(), flags, Mode::from_bits_truncate(0o644)).map(drop)
            }
            Self::Link { target, at } => {
                symlinkat(target.as_c_str(), nix::fcntl::AT_FDCWD, at.as_c_str())
            }
            Self::Bind { at, opened, .. } => {
                // A path that no longer exists is not mounted.
                let Some(opened) = opened else {
                    return Ok(());
                };
                let mut buffer = [0; 40];
                let source = path_of(opened.as_raw_fd(), &mut buffer);
                let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
                mount(Some(source), at.as_c_str(), none, flags, none)
            }
        }
    }
}

impl KvmDevice {
    /// Creates a device node that only QEMU's user may open. A user namespace may create no device
    /// nodes; there, mounts the node of this machine.
    fn create_node(&self) -> nix::Result<()> {
        let BuildStep::Bind { at, .. } = &self.bind else {
            return Ok(());
        };
        let mode = Mode::from_bits_truncate(0o600);
        match mknod(at.as_c_str(), SFlag::S_IFCHR, mode, self.number) {
            Ok(()) => chown(at.as_c_str(), Some(self.owner.into()), None),
            Err(Errno::EPERM) => {
                BuildStep::File(at.clone()).apply()?;
                self.bind.apply()
            }
            Err(errno) => Err(errno),
        }
    }
}

/// Argument of `mount_setattr` (Linux v6.12, `include/uapi/linux/mount.h`).
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Makes the root and every mount below it read-only and without set-user-ID programs. Files that
/// are accessed by a descriptor are not affected.
fn make_read_only() -> nix::Result<()> {
    let attributes = MountAttributes {
        set: libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID,
        clear: 0,
        propagation: libc::MS_PRIVATE,
        user_namespace: 0,
    };
    // SAFETY: the path and the attributes outlive the call, which receives the size of the
    // attributes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            -1,
            c"/".as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    match Errno::result(result) {
        // Kernels before 5.12 do not have this call. The mounted files belong to root, so QEMU's
        // user cannot write them.
        Ok(_) | Err(Errno::ENOSYS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Steps, and the paths that they create.
#[derive(Default)]
struct BuildPlan {
    steps: Vec<BuildStep>,
    created: BTreeSet<PathBuf>,
    bound: Vec<PathBuf>,
}

impl BuildPlan {
    /// Adds a path of this machine: a symbolic link as a link, everything else as a bind mount. A
    /// path that this machine lacks is omitted.
    fn add_path(&mut self, path: &Path) {
        let Ok(found) = fs::symlink_metadata(path) else {
            return;
        };
        let target_path = path.strip_prefix("/").unwrap_or(path);
        if self.created.contains(target_path)
            || self
                .bound
                .iter()
                .any(|bound| target_path.starts_with(bound))
        {
            return;
        }
        if let Some(parent) = target_path.parent() {
            self.add_directory(parent);
        }
        if found.is_symlink() {
            let Ok(target) = fs::read_link(path) else {
                return;
            };
            self.created.insert(target_path.to_owned());
            self.steps.push(BuildStep::Link {
                target: c_string(&target),
                at: c_string(target_path),
            });
            return;
        }
        if found.is_dir() {
            self.add_directory(target_path);
        } else {
            self.created.insert(target_path.to_owned());
            self.steps.push(BuildStep::File(c_string(target_path)));
        }
        self.bound.push(target_path.to_owned());
        self.steps.push(BuildStep::Bind {
            source: c_string(path),
            at: c_string(target_path),
            opened: None,
        });
    }

    /// Creates a directory and the missing directories above it.
    fn add_directory(&mut self, path: &Path) {
        let ancestors: Vec<&Path> = path.ancestors().collect();
        for directory in ancestors.into_iter().rev() {
            if !directory.as_os_str().is_empty() && self.created.insert(directory.to_owned()) {
                self.steps.push(BuildStep::Directory(c_string(directory)));
            }
        }
    }
}

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_paths_system_qemu_adds_none() {
        let system = visible_paths(Path::new("/usr/bin/qemu-system-x86_64"), OsStr::new(""));
        assert_eq!(system.len(), VISIBLE_PATHS.len());
    }

    #[test]
    fn visible_paths_other_qemu_adds_its_own_files() {
        let added = |program: &str| {
            let shown = visible_paths(Path::new(program), OsStr::new("bin:/missing"));
            let added = shown[VISIBLE_PATHS.len()..].iter();
            added
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            added("/home/u/bin/qemu"),
            [
                "/home/u/bin/qemu",
                "/home/u/share/qemu",
                "/home/u/lib/qemu",
                "/home/u/lib64/qemu"
            ]
        );
        // A prefix that is the root directory adds no other paths.
        assert_eq!(added("/qemu"), ["/qemu"]);
    }

    #[test]
    fn build_plan_creates_directories_once_before_contents() {
        let mut plan = BuildPlan::default();
        for path in ["/usr", "/usr/bin", "/proc/self/status", "/proc/self/stat"] {
            plan.add_path(Path::new(path));
        }
        let steps: Vec<String> = plan
            .steps
            .iter()
            .map(|step| match step {
                BuildStep::Directory(at) => format!("mkdir {}", at.to_string_lossy()),
                BuildStep::File(at) => format!("file {}", at.to_string_lossy()),
                BuildStep::Link { at, .. } => format!("link {}", at.to_string_lossy()),
                BuildStep::Bind { at, .. } => format!("bind {}", at.to_string_lossy()),
            })
            .collect();
        assert_eq!(
            steps,
            [
                "mkdir usr",
                "bind usr",
                "mkdir proc",
                "mkdir proc/self",
                "file proc/self/status",
                "bind proc/self/status",
                "file proc/self/stat",
                "bind proc/self/stat"
            ]
        );
    }
}
