//! Attempts to escape from inside, and the errors with which each must fail.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{chdir, chroot, sethostname};

use super::outside::Target;

/// An attempt, and the errors with which it must fail. A successful attempt returns how it
/// succeeded.
pub struct Attempt {
    pub name: &'static str,
    /// Errors that count as a refusal. `ENODATA` means a search without result.
    pub refusals: &'static [Errno],
    pub act: fn(&Target) -> io::Result<String>,
}

const DENIED: &[Errno] = &[Errno::EACCES, Errno::EPERM];
const SEALED: &[Errno] = &[Errno::EROFS];
const ABSENT: &[Errno] = &[Errno::ENOENT];
const NOT_FOUND: &[Errno] = &[Errno::ENODATA];
const FORBIDDEN: &[Errno] = &[Errno::EPERM];

/// All attempts; each runs in its own process.
pub const ATTEMPTS: &[Attempt] = &[
    attempt("read a file of the host", ABSENT, |target| {
        read(&target.secret)
    }),
    attempt(
        "read the file from outside of a chroot",
        ABSENT,
        escape_chroot,
    ),
    attempt(
        "read the file through other processes",
        NOT_FOUND,
        read_through_processes,
    ),
    attempt("read the caller's home", ABSENT, |target| {
        list(&target.home)
    }),
    attempt("read the passwords of the host", ABSENT, |_| {
        read(Path::new("/etc/shadow"))
    }),
    attempt(
        "read the caller's environment",
        NOT_FOUND,
        search_environments,
    ),
    attempt(
        "find an inherited descriptor",
        NOT_FOUND,
        search_descriptors,
    ),
    attempt("open a file by its handle", FORBIDDEN, open_by_handle),
    attempt(
        "write a program of root",
        &[Errno::EACCES, Errno::EROFS],
        |_| write(Path::new("/usr/bin/env")),
    ),
    attempt(
        "write its own program",
        &[Errno::EACCES, Errno::EROFS, Errno::ETXTBSY],
        |_| write(Path::new("/proc/1/exe")),
    ),
    attempt("create a directory in /usr", SEALED, |_| {
        create_directory("/usr/svclab-was-here")
    }),
    attempt("create a directory in the root directory", SEALED, |_| {
        create_directory("/svclab-was-here")
    }),
    attempt("write sysctls outside of net", DENIED, write_sysctls),
    // A kernel without SysRq has no such file.
    attempt("trigger SysRq", &[Errno::EACCES, Errno::ENOENT], |_| {
        write(Path::new("/proc/sysrq-trigger"))
    }),
    attempt("mount a file system", FORBIDDEN, |_| {
        mount_at("tmpfs", "/tmp")
    }),
    attempt("remount /usr as writable", FORBIDDEN, |_| remount()),
    attempt("unmount /proc", FORBIDDEN, |_| {
        success(umount2("/proc", MntFlags::MNT_DETACH))
    }),
    attempt("remount /usr in a new mount namespace", FORBIDDEN, |_| {
        unshare(CloneFlags::CLONE_NEWNS)?;
        remount()
    }),
    attempt(
        "unmount /usr in a new mount namespace",
        &[Errno::EINVAL],
        |_| {
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
            success(umount2("/usr", MntFlags::MNT_DETACH))
        },
    ),
    attempt("mount sysfs", FORBIDDEN, |_| {
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount_at("sysfs", "/tmp")
    }),
    attempt("mount cgroups", FORBIDDEN, |_| {
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount_at("cgroup2", "/tmp")
    }),
    attempt("create a device", FORBIDDEN, |_| {
        success(mknod(
            "/tmp/disk",
            SFlag::S_IFBLK,
            Mode::S_IRUSR,
            makedev(8, 0),
        ))
    }),
    // A kernel without loadable modules has no such system call.
    attempt("load a module", &[Errno::EPERM, Errno::ENOSYS], |_| {
        // SAFETY: the image and the text are empty and static.
        call(|| unsafe { libc::syscall(libc::SYS_init_module, c"".as_ptr(), 0, c"".as_ptr()) })
    }),
    attempt("remove a module", &[Errno::EPERM, Errno::ENOSYS], |_| {
        // SAFETY: the name is static.
        call(|| unsafe { libc::syscall(libc::SYS_delete_module, c"none".as_ptr(), 0) })
    }),
    attempt("load a BPF program", FORBIDDEN, |_| load_bpf_program()),
    attempt("find a BPF map", FORBIDDEN, |_| find_bpf_map()),
    attempt("set the clock", FORBIDDEN, |_| set_clock()),
    attempt("set the host name", FORBIDDEN, |_| {
        success(sethostname("svclab"))
    }),
    attempt("restart the machine", FORBIDDEN, |_| {
        // SAFETY: the call only sets the reaction to Ctrl-Alt-Del.
        call(|| i64::from(unsafe { libc::reboot(libc::RB_DISABLE_CAD) }))
    }),
    attempt("raise its priority", DENIED, |_| {
        // SAFETY: the call takes only numbers.
        call(|| i64::from(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) }))
    }),
    attempt("signal a process of the host", &[Errno::ESRCH], |target| {
        // SAFETY: the call takes only numbers.
        call(|| i64::from(unsafe { libc::kill(target.process, 0) }))
    }),
    attempt("find the parent PID namespace", FORBIDDEN, |_| {
        find_outer_namespace("/proc/self/ns/pid", NS_GET_PARENT)
    }),
    attempt("find the owner of its mount namespace", FORBIDDEN, |_| {
        find_outer_namespace("/proc/self/ns/mnt", NS_GET_USERNS)
    }),
    attempt(
        "connect to the host",
        &[Errno::ENETUNREACH, Errno::ECONNREFUSED],
        |target| {
            let address = ([127, 0, 0, 1], target.port).into();
            let wait = Duration::from_secs(5);
            std::net::TcpStream::connect_timeout(&address, wait).map(|_| "connected".to_owned())
        },
    ),
    attempt("connect to a socket file of the host", ABSENT, |target| {
        UnixStream::connect(&target.socket).map(|_| "connected".to_owned())
    }),
    attempt(
        "connect to an abstract socket",
        &[Errno::ECONNREFUSED],
        |target| {
            let address = SocketAddr::from_abstract_name(&target.abstract_socket)?;
            UnixStream::connect_addr(&address).map(|_| "connected".to_owned())
        },
    ),
];

const fn attempt(
    name: &'static str,
    refusals: &'static [Errno],
    act: fn(&Target) -> io::Result<String>,
) -> Attempt {
    Attempt {
        name,
        refusals,
        act,
    }
}

fn success<T>(result: nix::Result<T>) -> io::Result<String> {
    result
        .map(|_| "the call succeeded".to_owned())
        .map_err(Into::into)
}

fn call(call: impl FnOnce() -> i64) -> io::Result<String> {
    if call() < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok("the call succeeded".to_owned())
}

fn not_found() -> io::Error {
    Errno::ENODATA.into()
}

fn read(path: &Path) -> io::Result<String> {
    fs::read(path).map(|_| format!("{} was read", path.display()))
}

fn list(path: &Path) -> io::Result<String> {
    fs::read_dir(path).map(|_| format!("{} was read", path.display()))
}

/// Opens the file for writing, without writing.
fn write(path: &Path) -> io::Result<String> {
    let opened = OpenOptions::new().write(true).open(path);
    opened.map(|_| format!("{} can be written", path.display()))
}

fn create_directory(path: &str) -> io::Result<String> {
    fs::create_dir(path).map(|()| format!("{path} was created"))
}

fn mount_at(kind: &str, target: &str) -> io::Result<String> {
    let none = None::<&str>;
    success(mount(
        Some(kind),
        target,
        Some(kind),
        MsFlags::empty(),
        none,
    ))
}

fn remount() -> io::Result<String> {
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND;
    let none = None::<&str>;
    success(mount(none, "/usr", none, flags, none))
}

/// Leaves a `chroot`: a process that can call `chroot` creates a new root and stays outside of it.
fn escape_chroot(target: &Target) -> io::Result<String> {
    fs::create_dir_all("/tmp/root")?;
    chroot("/tmp/root")?;
    for _ in 0..64 {
        chdir("..")?;
    }
    chroot(".")?;
    read(&target.secret)
}

fn processes() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.parse::<u32>().is_ok())
    })
}

fn read_through_processes(target: &Target) -> io::Result<String> {
    let secret = target.secret.strip_prefix("/").unwrap_or(&target.secret);
    for process in processes() {
        for link in ["root", "cwd", "root/..", "cwd/.."] {
            let path = process.join(link).join(secret);
            if fs::read(&path).is_ok() {
                return read(&path);
            }
        }
    }
    Err(not_found())
}

fn search_environments(target: &Target) -> io::Result<String> {
    for process in processes() {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        if String::from_utf8_lossy(&environment).contains(&target.word) {
            return Ok(format!("{} contains the word", process.display()));
        }
    }
    Err(not_found())
}

/// Searches the descriptors of the agent and its programs for files, BPF programs and BPF maps.
fn search_descriptors(_: &Target) -> io::Result<String> {
    let own_pid = std::process::id().to_string();
    let mut seen = 0;
    for process in processes().filter(|process| !process.ends_with(&own_pid)) {
        for entry in fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let Ok(leads_to) = fs::read_link(entry.path()) else {
                continue;
            };
            seen += 1;
            // The process that traces drops runs outside and shares no descriptors.
            let is_a_program_s = leads_to.to_string_lossy().starts_with("anon_inode:bpf");
            let is_a_file_s = leads_to.is_absolute() && leads_to != Path::new("/dev/null");
            if is_a_program_s || is_a_file_s {
                return Ok(format!(
                    "{} leads to {}",
                    entry.path().display(),
                    leads_to.display()
                ));
            }
        }
    }
    // The agent has at least its standard streams. If no descriptor is visible, the search did not
    // work, unless `/proc/1/fd` is closed to all processes inside.
    let is_closed =
        fs::read_dir("/proc/1/fd").is_err_and(|error| error.raw_os_error() == Some(libc::EACCES));
    if seen == 0 && !is_closed {
        return Ok("no descriptor is visible".to_owned());
    }
    Err(not_found())
}

/// Whether a sysctl outside of `net` belongs to a namespace of the agent, so that a change does not
/// affect other processes. These are limits of a user namespace (Linux v6.12, `kernel/ucount.c`),
/// of an IPC namespace (`ipc/ipc_sysctl.c`, `ipc/mq_sysctl.c`) and, from 6.14 on, of a PID
/// namespace (`kernel/pid.c`).
fn is_namespaced_sysctl(path: &Path) -> bool {
    let prefixes = ["msg", "sem", "shm", "auto_msgmni", "pid_max"];
    path.starts_with("/proc/sys/net")
        || path.starts_with("/proc/sys/user")
        || path.starts_with("/proc/sys/fs/mqueue")
        || path
            .strip_prefix("/proc/sys/kernel")
            .ok()
            .and_then(Path::to_str)
            .is_some_and(|name| prefixes.iter().any(|start| name.starts_with(start)))
}

/// Writes the current value of a sysctl back: any process can open some sysctls for writing, but
/// not write them.
fn write_back(path: &Path) -> io::Result<String> {
    let mut opened = OpenOptions::new().write(true).open(path)?;
    opened.write_all(&fs::read(path)?)?;
    Ok(format!("{} can be written", path.display()))
}

fn write_sysctls(_: &Target) -> io::Result<String> {
    let mut tried = 0;
    let mut directories = vec![PathBuf::from("/proc/sys")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if is_namespaced_sysctl(&path) {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
            } else {
                tried += 1;
                match write_back(&path) {
                    Err(error)
                        if [Some(libc::EACCES), Some(libc::EPERM)]
                            .contains(&error.raw_os_error()) => {}
                    other => return other,
                }
            }
        }
    }
    if tried < 100 {
        return Ok(format!("only {tried} sysctls were found"));
    }
    Err(Errno::EACCES.into())
}

/// Opens a file by its handle. A process that can read everything can open any file of a file
/// system in this way.
fn open_by_handle(_: &Target) -> io::Result<String> {
    #[repr(C)]
    struct Handle {
        bytes: libc::c_uint,
        kind: libc::c_int,
        named: [u8; 128],
    }
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        named: [0; 128],
    };
    let mut id = 0;
    let usr = fs::File::open("/usr/bin")?;
    // SAFETY: the buffer has the stated size, and lives through both calls.
    let named = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            c"/usr/bin/env".as_ptr(),
            &raw mut handle,
            &raw mut id,
            libc::AT_SYMLINK_FOLLOW,
        )
    };
    if named < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP) {
        // A file system without handles: the kernel checks the missing capability before the
        // handle.
        handle.bytes = 8;
    }
    // SAFETY: as above.
    call(|| unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            usr.as_raw_fd(),
            &raw mut handle,
            libc::O_RDONLY,
        )
    })
}

fn load_bpf_program() -> io::Result<String> {
    // `BPF_PROG_LOAD` of a tracing program without effect: `r0 = 0; exit`.
    let instructions: [u64; 2] = [0xb7, 0x95];
    let mut attributes = [0_u64; 16];
    attributes[0] = 2 | (2 << 32); // kprobe, two instructions
    attributes[1] = instructions.as_ptr() as u64;
    attributes[2] = c"GPL".as_ptr() as u64;
    // SAFETY: the attributes point to the instructions and the license, which outlive the call.
    call(|| unsafe {
        libc::syscall(
            libc::SYS_bpf,
            5,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    })
}

fn find_bpf_map() -> io::Result<String> {
    // `BPF_MAP_GET_NEXT_ID`, starting with the first ID.
    let mut attributes = [0_u64; 2];
    // SAFETY: the attributes outlive the call.
    call(|| unsafe {
        libc::syscall(
            libc::SYS_bpf,
            12,
            attributes.as_mut_ptr(),
            size_of_val(&attributes),
        )
    })
}

/// Sets the clock to its current time.
fn set_clock() -> io::Result<String> {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the calls write and read a valid time value.
    call(|| unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now);
        i64::from(libc::clock_settime(libc::CLOCK_REALTIME, &raw const now))
    })
}

/// Requests of `ioctl_ns(2)`.
const NS_GET_USERNS: libc::c_ulong = 0xb701;
const NS_GET_PARENT: libc::c_ulong = 0xb702;

fn find_outer_namespace(namespace: &str, request: libc::c_ulong) -> io::Result<String> {
    let namespace = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_CLOEXEC)
        .open(namespace)?;
    // SAFETY: the request takes only the descriptor.
    call(|| i64::from(unsafe { libc::ioctl(namespace.as_raw_fd(), request) }))
}
