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
use super::child::path_of;
use svclab_agent::rootfs::{DEVICES, SHOWN};

/// Directories with QEMU's own files, below the prefix of an installation.
const OWN_FILES: [&str; 3] = ["share/qemu", "lib/qemu", "lib64/qemu"];

/// Returns the paths that QEMU reads: those of the system, and those of a QEMU that is installed
/// elsewhere.
pub fn shown(program: &Path, libraries: &OsStr) -> Vec<PathBuf> {
    let mut shown: Vec<PathBuf> = SHOWN.iter().map(PathBuf::from).collect();
    if shown.iter().all(|path| !program.starts_with(path)) {
        shown.push(program.to_owned());
        let prefix = program.parent().and_then(Path::parent);
        let own = prefix.filter(|prefix| prefix.parent().is_some());
        shown.extend(
            own.into_iter()
                .flat_map(|prefix| OWN_FILES.map(|name| prefix.join(name))),
        );
    }
    shown.extend(
        std::env::split_paths(libraries)
            .filter(|path| path.is_absolute() && path.parent().is_some() && path.is_dir()),
    );
    shown
}

/// Step of building the directory. Paths are relative to the directory.
enum Step {
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
pub struct Root {
    /// Directory of this machine on which the new directory is mounted.
    base: CString,
    steps: Vec<Step>,
    kvm: Option<Kvm>,
}

/// Device of the hypervisor. QEMU gets a separate device node.
struct Kvm {
    number: u64,
    owner: u32,
    bind: Step,
}

impl Root {
    /// Describes a root directory with these paths, and with the device of the hypervisor of this
    /// number, for this user.
    pub fn new(shown: &[PathBuf], kvm: Option<u64>, owner: u32) -> Self {
        let base = ["/tmp", "/run", "/mnt", "/var"]
            .into_iter()
            .find(|path| Path::new(path).is_dir());
        let mut plan = Plan::default();
        for path in shown {
            plan.show(path);
        }
        for device in DEVICES {
            plan.show(Path::new(device));
        }
        plan.directory(Path::new("proc"));
        plan.directory(Path::new("dev"));
        let kvm = kvm.map(|number| Kvm {
            number,
            owner,
            bind: Step::Bind {
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
    pub fn enter(&mut self) -> nix::Result<()> {
        let none = None::<&str>;
        let harmless = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        let kvm = self.kvm.as_mut().map(|kvm| &mut kvm.bind);
        for step in self.steps.iter_mut().chain(kvm) {
            if let Step::Bind { source, opened, .. } = step {
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
            step.take()?;
        }
        if let Some(kvm) = &self.kvm {
            kvm.show()?;
        }
        mount(Some("proc"), "proc", Some("proc"), harmless, none)?;
        // The old root is mounted on top of the new one, and is then unmounted.
        pivot_root(".", ".")?;
        umount2(".", MntFlags::MNT_DETACH)?;
        chdir("/")?;
        seal()
    }
}

impl Step {
    fn take(&self) -> nix::Result<()> {
        let none = None::<&str>;
        match self {
            Self::Directory(at) => mkdir(at.as_c_str(), Mode::from_bits_truncate(0o755)),
            Self::File(at) => {
                let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
                open(at.as_c_str(), flags, Mode::from_bits_truncate(0o644)).map(drop)
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

impl Kvm {
    /// Creates a device node that only QEMU's user may open. A user namespace may create no device
    /// nodes; there, mounts the node of this machine.
    fn show(&self) -> nix::Result<()> {
        let Step::Bind { at, .. } = &self.bind else {
            return Ok(());
        };
        let mode = Mode::from_bits_truncate(0o600);
        match mknod(at.as_c_str(), SFlag::S_IFCHR, mode, self.number) {
            Ok(()) => chown(at.as_c_str(), Some(self.owner.into()), None),
            Err(Errno::EPERM) => {
                Step::File(at.clone()).take()?;
                self.bind.take()
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
fn seal() -> nix::Result<()> {
    let attributes = MountAttributes {
        set: libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID,
        clear: 0,
        propagation: libc::MS_PRIVATE,
        user_namespace: 0,
    };
    // SAFETY: the path and the attributes outlive the call, which receives the size of the
    // attributes.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            -1,
            c"/".as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    match Errno::result(done) {
        // Kernels before 5.12 do not have this call. The mounted files belong to root, so QEMU's
        // user cannot write them.
        Ok(_) | Err(Errno::ENOSYS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Steps, and the paths that they create.
#[derive(Default)]
struct Plan {
    steps: Vec<Step>,
    made: BTreeSet<PathBuf>,
    bound: Vec<PathBuf>,
}

impl Plan {
    /// Adds a path of this machine: a symbolic link as a link, everything else as a bind mount. A
    /// path that this machine lacks is omitted.
    fn show(&mut self, path: &Path) {
        let Ok(found) = fs::symlink_metadata(path) else {
            return;
        };
        let at = path.strip_prefix("/").unwrap_or(path);
        if self.made.contains(at) || self.bound.iter().any(|bound| at.starts_with(bound)) {
            return;
        }
        if let Some(parent) = at.parent() {
            self.directory(parent);
        }
        if found.is_symlink() {
            let Ok(target) = fs::read_link(path) else {
                return;
            };
            self.made.insert(at.to_owned());
            self.steps.push(Step::Link {
                target: c_string(&target),
                at: c_string(at),
            });
            return;
        }
        if found.is_dir() {
            self.directory(at);
        } else {
            self.made.insert(at.to_owned());
            self.steps.push(Step::File(c_string(at)));
        }
        self.bound.push(at.to_owned());
        self.steps.push(Step::Bind {
            source: c_string(path),
            at: c_string(at),
            opened: None,
        });
    }

    /// Creates a directory and the missing directories above it.
    fn directory(&mut self, at: &Path) {
        let above: Vec<&Path> = at.ancestors().collect();
        for directory in above.into_iter().rev() {
            if !directory.as_os_str().is_empty() && self.made.insert(directory.to_owned()) {
                self.steps.push(Step::Directory(c_string(directory)));
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
    fn shown_qemu_of_the_system_adds_no_path() {
        let system = shown(Path::new("/usr/bin/qemu-system-x86_64"), OsStr::new(""));
        assert_eq!(system.len(), SHOWN.len());
    }

    #[test]
    fn shown_qemu_elsewhere_adds_its_own_files_only() {
        let added = |program: &str| {
            let shown = shown(Path::new(program), OsStr::new("bin:/missing"));
            let added = shown[SHOWN.len()..].iter();
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
    fn plan_makes_each_directory_once_before_what_is_in_it() {
        let mut plan = Plan::default();
        for path in ["/usr", "/usr/bin", "/proc/self/status", "/proc/self/stat"] {
            plan.show(Path::new(path));
        }
        let steps: Vec<String> = plan
            .steps
            .iter()
            .map(|step| match step {
                Step::Directory(at) => format!("mkdir {}", at.to_string_lossy()),
                Step::File(at) => format!("file {}", at.to_string_lossy()),
                Step::Link { at, .. } => format!("link {}", at.to_string_lossy()),
                Step::Bind { at, .. } => format!("bind {}", at.to_string_lossy()),
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
