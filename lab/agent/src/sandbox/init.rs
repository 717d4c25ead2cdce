//! Runs the agent as the first process of a guest. The agent mounts file systems, loads the guest's
//! modules, opens the port to the front end, and powers the guest off at the end.
//!
//! The agent itself is not contained: the guest isolates the agent. Programs of labs are contained
//! as on any host.

use std::fs::{self, File};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::sysinfo::sysinfo;
use nix::unistd::{getpid, sethostname};

/// Directory of the guest's modules. Their names sort in loading order.
pub const MODULES_DIR: &str = "/modules";

/// Name of the port to the front end.
pub const PORT_NAME: &str = "svclab";

/// File systems that Linux programs require, with their mount points.
const MOUNTS: [(&str, &str); 4] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("devpts", "/dev/pts"),
];

/// Directories that programs write to. The guest's root is its initial RAM file system. The root
/// may contain a user's program below one of these directories, at its path on the host. Therefore
/// nothing may be mounted over these directories.
const WRITABLE: [&str; 2] = ["/run", "/tmp"];

/// Maximum number of open files, sufficient for a lab of any size.
const MAX_OPEN_FILES: u64 = 1 << 20;

/// Maximum number of packets queued for a processor (default 1000). The guest's one processor is
/// slow and handles the packets of the whole cluster. A full queue would drop packets of all nodes
/// (Linux v6.12, `net/core/dev.c`, `enqueue_to_backlog`).
const MAX_BACKLOG: &str = "10000";

/// Number of bytes that stay free while the other free memory is cleared. The kernel always needs
/// free memory: 2 MiB in a guest of 256 MiB (Linux v6.12, `mm/page_alloc.c`,
/// `calculate_min_free_kbytes`), and more when memory is low.
const RESERVED_BYTES: u64 = 4 << 20;

/// Maximum number of free bytes that are cleared. Most memory of a larger guest was never written.
/// Clearing that memory takes seconds, and allocates as much memory of the host.
const MAX_CLEARED_BYTES: u64 = 256 << 20;

/// Prepares the guest and opens the port to the front end, for reading and for writing.
///
/// # Errors
///
/// When a step fails. The error names the step and is printed on the guest's console.
pub(crate) fn prepare() -> io::Result<(OwnedFd, OwnedFd)> {
    if getpid().as_raw() != 1 {
        return Err(io::Error::other(
            "only the first process of a guest can run with --init",
        ));
    }
    for (kind, path) in MOUNTS {
        run_step(&format!("mount {path}"), || {
            fs::create_dir_all(path)?;
            let flags = MsFlags::MS_NOSUID;
            mount(Some(kind), path, Some(kind), flags, None::<&str>)?;
            Ok(())
        })?;
    }
    for path in WRITABLE {
        run_step(&format!("create {path}"), || {
            fs::create_dir_all(path)?;
            // The programs of labs do not run as root.
            fs::set_permissions(path, fs::Permissions::from_mode(0o1777))
        })?;
    }
    run_step("set the guest's host name", || Ok(sethostname("svclab")?))?;
    run_step("raise the limit on open files", || {
        Ok(setrlimit(
            Resource::RLIMIT_NOFILE,
            MAX_OPEN_FILES,
            MAX_OPEN_FILES,
        )?)
    })?;
    run_step("set net.core.netdev_max_backlog", || {
        fs::write("/proc/sys/net/core/netdev_max_backlog", MAX_BACKLOG)
    })?;
    run_step("list the kernel modules", load_modules)?;
    run_step(
        "prepare the environment for lab programs",
        crate::sandbox::contain::prepare_guest,
    )?;
    run_step("clear the free memory", clear_free_memory)?;
    let port = run_step("find the port to the front end", find_port)?;
    let port: OwnedFd = File::options().read(true).write(true).open(port)?.into();
    Ok((port.try_clone()?, port))
}

/// Powers off the guest.
pub(crate) fn power_off() -> ! {
    let _ = reboot(RebootMode::RB_POWER_OFF);
    // The first process must not exit. A kernel that cannot power off panics here, which also ends
    // the guest.
    std::process::exit(1)
}

fn run_step<T>(action: &str, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    run().map_err(|error| io::Error::new(error.kind(), format!("cannot {action}: {error}")))
}

/// Fills the free memory with zeros, which a snapshot of the guest omits. Otherwise the free memory
/// contains the archive that the kernel unpacked, a third of the guest's memory.
fn clear_free_memory() -> io::Result<()> {
    let free = sysinfo()?.ram_unused();
    let length = usize::try_from(free.saturating_sub(RESERVED_BYTES)).ok();
    let Some(length) = length
        .filter(|_| free <= MAX_CLEARED_BYTES)
        .and_then(NonZeroUsize::new)
    else {
        return Ok(());
    };
    let (protection, flags) = (
        ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
        MapFlags::MAP_PRIVATE | MapFlags::MAP_POPULATE,
    );
    // SAFETY: the kernel chooses an address that is not in use. The memory is unmapped with the
    // same length, and no reference to it exists.
    unsafe {
        let cleared = mmap_anonymous(None, length, protection, flags)?;
        munmap(cleared, length.get())?;
    }
    Ok(())
}

/// Loads all modules. A module that fails to load is reported on standard error and skipped: a
/// later step that needs the module fails with its own error.
fn load_modules() -> io::Result<()> {
    let mut files: Vec<PathBuf> = fs::read_dir(MODULES_DIR)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    files.sort();
    for file in &files {
        let loaded = File::open(file)
            .and_then(|opened| Ok(finit_module(opened, c"", ModuleInitFlags::empty())?));
        match loaded {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                crate::print_error(&format!("svclab: cannot load {}: {error}", file.display()));
            }
        }
        // The kernel has its own copy of the module.
        let _ = fs::remove_file(file);
    }
    Ok(())
}

/// Returns the device of the port with the name [`PORT_NAME`].
fn find_port() -> io::Result<PathBuf> {
    for entry in fs::read_dir("/sys/class/virtio-ports")? {
        let entry = entry?;
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim() == PORT_NAME {
            return Ok(Path::new("/dev").join(entry.file_name()));
        }
    }
    Err(io::ErrorKind::NotFound.into())
}
