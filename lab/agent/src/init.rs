//! The agent as the first program of a guest: it mounts what programs expect,
//! loads the guest's modules, finds the port that leads to the front end, and
//! serves it until the guest is ended.
//!
//! Of the agent nothing is contained here: the guest is the container. Programs of labs
//! are, as everywhere.

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

/// Where the guest's modules lie; their names sort in the order of loading.
pub const MODULES: &str = "/modules";

/// The name of the port that leads to the front end.
pub const PORT: &str = "svclab";

/// What every Linux program expects to be mounted.
const MOUNTS: [(&str, &str); 4] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("devpts", "/dev/pts"),
];

/// Directories that programs write to. The guest's root lies in its memory as it is, and
/// holds a user's own program below one of these if it does on the user's machine: nothing
/// may be mounted over it.
const WRITABLE: [&str; 2] = ["/run", "/tmp"];

/// As many open files as a lab of any size takes.
const OPEN_FILES: u64 = 1 << 20;

/// How many packets may wait for a processor. A guest's one is slow, and what a whole
/// cluster's machines drop each for itself would be dropped for all of them here (Linux
/// v6.12, `net/core/dev.c`, `enqueue_to_backlog`; 1000 by default).
const BACKLOG: &str = "10000";

/// Amount of memory that stays free while the rest is cleared, in bytes. The kernel needs
/// some at any time: 2 MiB of a guest of 256 MiB (Linux v6.12, `mm/page_alloc.c`,
/// `calculate_min_free_kbytes`), and more where it is asked for while these are few.
const RESERVE: u64 = 4 << 20;

/// Maximum amount of free memory that is cleared, in bytes. Most memory of a larger guest was
/// never written, and to clear it takes seconds and as much of the host's memory.
const MAX_CLEARED: u64 = 256 << 20;

/// Makes this machine a place to work in and opens the way to the front end,
/// for reading and for writing.
///
/// # Errors
///
/// Says what failed; the guest's console is where that is read.
pub fn prepare() -> io::Result<(OwnedFd, OwnedFd)> {
    if getpid().as_raw() != 1 {
        return Err(io::Error::other("only a guest's first process can be init"));
    }
    for (kind, at) in MOUNTS {
        step(&format!("mount {at}"), || {
            fs::create_dir_all(at)?;
            let flags = MsFlags::MS_NOSUID;
            mount(Some(kind), at, Some(kind), flags, None::<&str>)?;
            Ok(())
        })?;
    }
    for at in WRITABLE {
        step(&format!("make {at}"), || {
            fs::create_dir_all(at)?;
            // Programs of labs are no root.
            fs::set_permissions(at, fs::Permissions::from_mode(0o1777))
        })?;
    }
    step("name the guest", || Ok(sethostname("svclab")?))?;
    step("raise the limit on open files", || {
        Ok(setrlimit(Resource::RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES)?)
    })?;
    step("let packets wait for the processor", || {
        fs::write("/proc/sys/net/core/netdev_max_backlog", BACKLOG)
    })?;
    step("read the list of modules", load_modules)?;
    step(
        "make a place for programs of labs",
        super::contain::prepare_guest,
    )?;
    step("clear the free memory", clear_free_memory)?;
    let port = step("find the port to the front end", find_port)?;
    let port: OwnedFd = File::options().read(true).write(true).open(port)?.into();
    Ok((port.try_clone()?, port))
}

/// Ends the guest.
pub fn power_off() -> ! {
    let _ = reboot(RebootMode::RB_POWER_OFF);
    // The first process may not end; a kernel that cannot power off panics,
    // and ends so.
    std::process::exit(1)
}

fn step<T>(what: &str, done: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    done().map_err(|error| io::Error::new(error.kind(), format!("cannot {what}: {error}")))
}

/// Fills the free memory with zeros, which a snapshot of the guest leaves out. Otherwise it
/// contains the archive that the kernel unpacked, a third of the guest's memory.
fn clear_free_memory() -> io::Result<()> {
    let free = sysinfo()?.ram_unused();
    let length = usize::try_from(free.saturating_sub(RESERVE)).ok();
    let Some(length) = length
        .filter(|_| free <= MAX_CLEARED)
        .and_then(NonZeroUsize::new)
    else {
        return Ok(());
    };
    let (rights, flags) = (
        ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
        MapFlags::MAP_PRIVATE | MapFlags::MAP_POPULATE,
    );
    // SAFETY: the kernel chooses where the memory lies, so that it replaces none in use; it
    // is unmapped as it was mapped, and nobody has a reference to it.
    unsafe {
        let cleared = mmap_anonymous(None, length, rights, flags)?;
        munmap(cleared, length.get())?;
    }
    Ok(())
}

/// Loads all modules. One that cannot be is told of and left: what needs it
/// fails with its own words.
fn load_modules() -> io::Result<()> {
    let mut files: Vec<PathBuf> = fs::read_dir(MODULES)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    files.sort();
    for file in &files {
        let loaded = File::open(file)
            .and_then(|opened| Ok(finit_module(opened, c"", ModuleInitFlags::empty())?));
        match loaded {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => eprintln!("svclab: cannot load {}: {error}", file.display()),
        }
        // The kernel has its own copy.
        let _ = fs::remove_file(file);
    }
    Ok(())
}

/// The device of the port that bears our name.
fn find_port() -> io::Result<PathBuf> {
    for entry in fs::read_dir("/sys/class/virtio-ports")? {
        let entry = entry?;
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim() == PORT {
            return Ok(Path::new("/dev").join(entry.file_name()));
        }
    }
    Err(io::ErrorKind::NotFound.into())
}
