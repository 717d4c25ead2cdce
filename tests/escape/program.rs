//! Attempts of a lab's program to escape, all of which must fail. A test starts itself as such a
//! program in each way in which an agent starts programs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::libc::{self, c_int, c_long};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getgid, getpid, getuid};

/// An action, and the errors with which it must fail; `ENODATA` if the action finds nothing.
struct Attempt {
    name: &'static str,
    refusals: &'static [Errno],
    act: fn() -> io::Result<()>,
}

const DENIED: &[Errno] = &[Errno::EACCES, Errno::EPERM];
const FORBIDDEN: &[Errno] = &[Errno::EPERM];
const UNSUPPORTED: &[Errno] = &[Errno::ENOSYS];
const NOT_FOUND: &[Errno] = &[Errno::ENODATA];

/// Name of a key in the session keyring of the process that starts svclab.
pub const CALLER_KEY: &str = "svclab-key-of-the-caller";

/// All attempts. Attempts on processes target the first process and this one: the kernel lets a
/// process act on itself, so only a filter refuses both.
const ATTEMPTS: &[Attempt] = &[
    attempt("find a process of others", NOT_FOUND, find_agent),
    attempt("find a descriptor of others", NOT_FOUND, find_descriptors),
    attempt("have other capabilities", NOT_FOUND, check_capabilities),
    attempt(
        "forge a frame on an inherited descriptor",
        NOT_FOUND,
        || forge_frame(3..1024),
    ),
    attempt("forge a frame through /proc/PID/fd", NOT_FOUND, || {
        let files = other_processes()?.into_iter().flat_map(|process| {
            let files = fs::read_dir(process.join("fd")).into_iter().flatten();
            files.flatten().map(|file| file.path())
        });
        let opened: Vec<File> = files
            .filter_map(|file| OpenOptions::new().write(true).open(file).ok())
            .collect();
        forge_frame(opened.iter().map(File::as_raw_fd))
    }),
    attempt(
        "forge a frame on a copied descriptor",
        FORBIDDEN,
        forge_on_copied_descriptors,
    ),
    attempt("copy a descriptor", FORBIDDEN, || {
        on_processes(|process| call(libc::SYS_pidfd_getfd, [pidfd(process)?, 0, 0, 0, 0]))
    }),
    attempt("trace a process", FORBIDDEN, || {
        // PTRACE_SEIZE.
        on_processes(|process| call(libc::SYS_ptrace, [0x4206, process, 0, 0, 0]))
    }),
    attempt(
        "have a process traced by its parent",
        FORBIDDEN,
        trace_child,
    ),
    attempt("find a key of the caller", NOT_FOUND, || {
        // A kernel without keyrings has no such file.
        let keys = fs::read_to_string("/proc/keys").unwrap_or_default();
        if keys.contains(CALLER_KEY) {
            Ok(())
        } else {
            Err(not_found())
        }
    }),
    attempt("read a key", FORBIDDEN, || {
        // KEYCTL_READ, of the session keyring.
        call(libc::SYS_keyctl, [11, -3, 0, 0, 0]).map(drop)
    }),
    attempt("write a process's memory", FORBIDDEN, || {
        on_processes(|process| call(libc::SYS_process_vm_writev, [process, 0, 0, 0, 0]))
    }),
    attempt("read a process's memory", FORBIDDEN, || {
        on_processes(|process| call(libc::SYS_process_vm_readv, [process, 0, 0, 0, 0]))
    }),
    attempt("compare processes", FORBIDDEN, || {
        on_processes(|process| call(libc::SYS_kcmp, [process, process, 0, 0, 0]))
    }),
    attempt("limit a process", FORBIDDEN, || {
        on_processes(|process| call(libc::SYS_prlimit64, [process, 7, 0, 0, 0]))
    }),
    attempt("open a process's memory", DENIED, || write("/proc/1/mem")),
    attempt("read a process's environment", DENIED, || {
        fs::read("/proc/1/environ").map(drop)
    }),
    // A process of the same user may list the directory, which is empty.
    attempt(
        "list a process's descriptors",
        &[Errno::EACCES, Errno::ENODATA],
        || match fs::read_dir("/proc/1/fd")?.count() {
            0 => Err(not_found()),
            _ => Ok(()),
        },
    ),
    attempt("create a namespace", FORBIDDEN, || {
        try_each(&NAMESPACES, |kind| {
            call(libc::SYS_unshare, [kind, 0, 0, 0, 0])
        })
    }),
    attempt("start a process in a new namespace", FORBIDDEN, || {
        try_each(&NAMESPACES, |kind| {
            let flags = kind | c_long::from(libc::SIGCHLD);
            match call(libc::SYS_clone, [flags, 0, 0, 0, 0])? {
                // SAFETY: the call ends only the started child process.
                0 => unsafe { libc::_exit(0) },
                process => Ok(process),
            }
        })
    }),
    attempt("start a process with clone3", UNSUPPORTED, || {
        call(libc::SYS_clone3, [0; 5]).map(drop)
    }),
    attempt("enter a namespace", FORBIDDEN, || {
        let net_namespace = File::open("/proc/self/ns/net")?;
        // -1 is no descriptor; the filter refuses the call before the kernel checks.
        try_each(&[net_namespace.as_raw_fd().into(), -1], |descriptor| {
            call(libc::SYS_setns, [descriptor, 0, 0, 0, 0])
        })
    }),
    attempt("set up io_uring", UNSUPPORTED, || {
        call(libc::SYS_io_uring_setup, [1, 0, 0, 0, 0]).map(drop)
    }),
    attempt("use io_uring", UNSUPPORTED, || {
        call(libc::SYS_io_uring_enter, [-1, 0, 0, 0, 0]).map(drop)
    }),
    attempt("open a tree with attributes", UNSUPPORTED, || {
        call(467, [0; 5]).map(drop)
    }),
    // Kernels later than 6.12 have some of these calls.
    attempt("make an unknown system call", UNSUPPORTED, || {
        for number in [400, 463, 464, 465, 466, 468, 469, 470, 5000] {
            match call(number, [0; 5]) {
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {}
                other => return other.map(drop),
            }
        }
        Err(Errno::ENOSYS.into())
    }),
    attempt("make an x32 system call", FORBIDDEN, || {
        call(libc::SYS_getpid | 0x4000_0000, [0; 5]).map(drop)
    }),
    attempt("mount", FORBIDDEN, || {
        call(libc::SYS_mount, [0; 5]).map(drop)
    }),
    attempt("load a BPF program", FORBIDDEN, || {
        // 9999 is no BPF operation.
        try_each(&[5, 9999], |operation| {
            call(libc::SYS_bpf, [operation, 0, 0, 0, 0])
        })
    }),
    attempt("write a sysctl outside of net", DENIED, || {
        write("/proc/sys/kernel/core_pattern")
    }),
    attempt("write to a device", NOT_FOUND, open_devices),
    // Last, so that the signals end nothing that other attempts need.
    attempt("signal a process of others", NOT_FOUND, kill_others),
];

/// Flags that create namespaces.
const NAMESPACES: [c_long; 7] = [
    libc::CLONE_NEWUSER as c_long,
    libc::CLONE_NEWNS as c_long,
    libc::CLONE_NEWPID as c_long,
    libc::CLONE_NEWNET as c_long,
    libc::CLONE_NEWIPC as c_long,
    libc::CLONE_NEWUTS as c_long,
    libc::CLONE_NEWCGROUP as c_long,
];

const fn attempt(
    name: &'static str,
    refusals: &'static [Errno],
    act: fn() -> io::Result<()>,
) -> Attempt {
    Attempt {
        name,
        refusals,
        act,
    }
}

fn not_found() -> io::Error {
    Errno::ENODATA.into()
}

fn call(number: c_long, arguments: [c_long; 5]) -> io::Result<c_long> {
    let [a, two, three, four, five] = arguments;
    // SAFETY: the kernel refuses every call before it reads the target of a pointer argument, or
    // the pointer is null.
    let done = unsafe { libc::syscall(number, a, two, three, four, five) };
    Ok(Errno::result(done)?)
}

/// Tries each value until a result other than `EPERM`.
fn try_each(values: &[c_long], act: impl Fn(c_long) -> io::Result<c_long>) -> io::Result<()> {
    for value in values {
        match act(*value) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
            other => return other.map(drop),
        }
    }
    Err(Errno::EPERM.into())
}

fn on_processes(act: impl Fn(c_long) -> io::Result<c_long>) -> io::Result<()> {
    try_each(&[1, getpid().as_raw().into()], act)
}

fn write(path: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path).map(drop)
}

fn pidfd(process: c_long) -> io::Result<c_long> {
    call(libc::SYS_pidfd_open, [process, 0, 0, 0, 0])
}

/// Returns the visible processes except this one.
fn other_processes() -> io::Result<Vec<PathBuf>> {
    let own_pid = std::process::id();
    let entries = fs::read_dir("/proc")?.flatten().filter(|entry| {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.parse::<u32>().ok());
        number.is_some_and(|number| number != own_pid)
    });
    Ok(entries.map(|entry| entry.path()).collect())
}

/// Fails if no visible process can be the agent. The agent has threads; the first process here and
/// this program in another lab have none.
fn find_agent() -> io::Result<()> {
    let is_agent = |process: &PathBuf| {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        let threads = status
            .lines()
            .find_map(|line| line.strip_prefix("Threads:\t"));
        threads.is_none_or(|threads| threads != "1")
    };
    if other_processes()?.iter().any(is_agent) {
        return Ok(());
    }
    Err(not_found())
}

/// Starts a process that calls `PTRACE_TRACEME`. A traced process stops instead of exiting.
fn trace_child() -> io::Result<()> {
    let process = match call(libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0, 0])? {
        0 => {
            let asked = call(libc::SYS_ptrace, [0; 5]);
            let errno = asked.map_or_else(|error| error.raw_os_error().unwrap_or(0), |_| 0);
            // SAFETY: the call ends only the started child process.
            unsafe { libc::_exit(errno) }
        }
        process => process,
    };
    let process = Pid::from_raw(i32::try_from(process).unwrap_or(0));
    match waitpid(process, None)? {
        WaitStatus::Exited(_, 0) => Ok(()),
        WaitStatus::Exited(_, errno) => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(not_found()),
    }
}

fn find_descriptors() -> io::Result<()> {
    // The three standard streams, and the descriptor of the directory.
    let is_alone = fs::read_dir("/proc/self/fd")?.count() <= 4;
    let lists = other_processes()?
        .into_iter()
        .filter_map(|process| fs::read_dir(process.join("fd")).ok());
    if is_alone && lists.map(Iterator::count).sum::<usize>() == 0 {
        return Err(not_found());
    }
    Ok(())
}

/// Checks for exactly the three capabilities that programs get.
fn check_capabilities() -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status")?;
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|line| line.trim_start_matches(':').trim().to_owned())
    };
    let expected = Some("0000000000003400".to_owned());
    let is_due = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
        .iter()
        .all(|set| value(set) == expected)
        && value("NoNewPrivs").as_deref() == Some("1")
        && value("Seccomp").as_deref() == Some("2")
        && value("Groups").as_deref() == Some("");
    if is_due { Err(not_found()) } else { Ok(()) }
}

/// Writes the agent's `Removed` event to each open descriptor.
fn forge_frame(descriptors: impl Iterator<Item = c_int>) -> io::Result<()> {
    let text = br#"{"say":"removed","lab":0}"#;
    let mut frame = u32::try_from(text.len())
        .unwrap_or(0)
        .to_be_bytes()
        .to_vec();
    frame.extend_from_slice(text);
    let mut written = 0;
    for descriptor in descriptors {
        // SAFETY: the bytes outlive the call.
        let done = unsafe { libc::write(descriptor, frame.as_ptr().cast(), frame.len()) };
        written += usize::from(done > 0);
    }
    if written > 0 {
        Ok(())
    } else {
        Err(not_found())
    }
}

/// Copies each descriptor of each process by PID and writes a forged frame to the first copy.
fn forge_on_copied_descriptors() -> io::Result<()> {
    let own_pid = c_long::from(getpid().as_raw());
    for process in (1..=1000).filter(|process| *process != own_pid) {
        let Ok(process) = pidfd(process) else {
            continue;
        };
        for descriptor in 0..64 {
            match call(libc::SYS_pidfd_getfd, [process, descriptor, 0, 0, 0]) {
                Ok(taken) => return forge_frame(c_int::try_from(taken).into_iter()),
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Err(Errno::EPERM.into())
}

/// Kills all processes that it can. The caller checks that the agent and programs of other labs
/// survive. The kernel protects the first process of the PID namespace from signals.
fn kill_others() -> io::Result<()> {
    let kill = c_long::from(libc::SIGKILL);
    let own_pid = c_long::from(getpid().as_raw());
    let mut ended = 0;
    for process in (2..=1000).filter(|process| *process != own_pid) {
        ended += usize::from(call(libc::SYS_kill, [process, kill, 0, 0, 0]).is_ok());
        ended += usize::from(call(libc::SYS_tgkill, [process, process, kill, 0, 0]).is_ok());
    }
    if let Ok(first) = pidfd(1) {
        let _ = call(libc::SYS_pidfd_send_signal, [first, kill, 0, 0, 0]);
    }
    for processes in [1, -1] {
        let _ = call(libc::SYS_kill, [processes, kill, 0, 0, 0]);
    }
    if ended > 0 { Ok(()) } else { Err(not_found()) }
}

/// Opens devices for writing: the serial port of a guest's agent, memory, the kernel log, disks.
fn open_devices() -> io::Result<()> {
    let known = ["vport", "mem", "kmsg", "vd", "sd", "nvme", "hvc", "ttyS"];
    let mut devices = fs::read_dir("/dev")?.flatten().filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        known.iter().any(|start| name.starts_with(start))
    });
    let is_open = |entry: fs::DirEntry| OpenOptions::new().write(true).open(entry.path()).is_ok();
    if devices.any(is_open) {
        return Ok(());
    }
    Err(not_found())
}

/// User, group and PID namespace of a program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramIdentity {
    pub user: u32,
    pub group: u32,
    pub pid_namespace: String,
}

/// Prefix of the line that reports user, group and PID namespace.
const IDENTITY_PREFIX: &str = "runs as ";

/// Runs all attempts. Prints each attempt that was not refused to standard error.
pub fn run_attempts() -> ExitCode {
    let mut complaints = String::new();
    for attempt in ATTEMPTS {
        let errno = match (attempt.act)() {
            Ok(()) => None,
            Err(error) => Some(Errno::from_raw(error.raw_os_error().unwrap_or(0))),
        };
        if errno.is_none_or(|errno| !attempt.refusals.contains(&errno)) {
            let _ = writeln!(complaints, "{}: {errno:?}", attempt.name);
        }
    }
    let room = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let (user, group) = (getuid(), getgid());
    let report = format!(
        "{IDENTITY_PREFIX}{user} {group} {}\n{} tried\n",
        room.display(),
        ATTEMPTS.len()
    );
    let _ = io::stdout().write_all(report.as_bytes());
    let _ = io::stderr().write_all(complaints.as_bytes());
    if complaints.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Parses the output of [`inside`] and returns the identity of the program.
///
/// # Errors
///
/// Returns the output if any attempt is missing or was not refused.
pub fn parse_report(output: &str) -> Result<ProgramIdentity, String> {
    let lines: BTreeSet<&str> = output.lines().map(str::trim).collect();
    let whose = lines
        .iter()
        .find_map(|line| line.strip_prefix(IDENTITY_PREFIX));
    let words: Vec<&str> = whose.unwrap_or_default().split(' ').collect();
    let summary = format!("{} tried", ATTEMPTS.len());
    match (&words[..], lines.len()) {
        (&[user, group, room], 2) if lines.contains(&*summary) => Ok(ProgramIdentity {
            user: user.parse().map_err(|_| output.to_owned())?,
            group: group.parse().map_err(|_| output.to_owned())?,
            pid_namespace: room.to_owned(),
        }),
        _ => Err(output.to_owned()),
    }
}
