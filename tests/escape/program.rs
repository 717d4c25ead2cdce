//! What a program of a lab must not be able to do: this program is run by an agent in a
//! namespace of a lab, as a command of `byHand` is, and tries.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::libc::{self, c_long};
use nix::unistd::geteuid;
use svclab::kernel::{Agent, Host, KernelError};
use svclab::plan::{Namespace, Plan};

use super::copied::copied;
use super::outside::User;

/// Has this program start the agent and run itself in a lab.
pub const OUTSIDE: &str = "program-outside";

/// Has this program try.
pub const INSIDE: &str = "program-inside";

/// The namespace of the lab.
const NODE: &str = "node-1";

/// Something to try, and what it has to meet; `ENODATA` where nothing is found.
struct Attempt {
    name: &'static str,
    refusals: &'static [Errno],
    act: fn() -> io::Result<()>,
}

const DENIED: &[Errno] = &[Errno::EACCES, Errno::EPERM];
const FORBIDDEN: &[Errno] = &[Errno::EPERM];
const UNKNOWN: &[Errno] = &[Errno::ENOSYS];
const NOT_FOUND: &[Errno] = &[Errno::ENODATA];

const ALL: &[Attempt] = &[
    attempt("see a process of others", NOT_FOUND, strangers),
    attempt("find a descriptor of others", NOT_FOUND, descriptors),
    attempt("have other rights", NOT_FOUND, rights),
    attempt("forge a frame on a descriptor of others", FORBIDDEN, forge),
    attempt("take a descriptor", FORBIDDEN, || {
        call(libc::SYS_pidfd_getfd, [pidfd()?, 0, 0, 0, 0])
    }),
    attempt("trace a process", FORBIDDEN, || {
        // PTRACE_SEIZE.
        call(libc::SYS_ptrace, [0x4206, 1, 0, 0, 0])
    }),
    attempt("write a process's memory", FORBIDDEN, || {
        call(libc::SYS_process_vm_writev, [1, 0, 0, 0, 0])
    }),
    attempt("read a process's memory", FORBIDDEN, || {
        call(libc::SYS_process_vm_readv, [1, 0, 0, 0, 0])
    }),
    attempt("compare processes", FORBIDDEN, || {
        call(libc::SYS_kcmp, [1, 1, 0, 0, 0])
    }),
    attempt("open a process's memory", DENIED, || write("/proc/1/mem")),
    attempt("read a process's environment", DENIED, || {
        fs::read("/proc/1/environ").map(drop)
    }),
    // Whose user is the same may look, and sees none.
    attempt(
        "list a process's descriptors",
        &[Errno::EACCES, Errno::ENODATA],
        || match fs::read_dir("/proc/1/fd")?.count() {
            0 => Err(nothing()),
            _ => Ok(()),
        },
    ),
    attempt("limit a process", FORBIDDEN, || {
        call(libc::SYS_prlimit64, [1, 7, 0, 0, 0])
    }),
    attempt("make a namespace", FORBIDDEN, || {
        for bit in [
            libc::CLONE_NEWNS,
            libc::CLONE_NEWUSER,
            libc::CLONE_NEWPID,
            libc::CLONE_NEWNET,
            libc::CLONE_NEWIPC,
        ] {
            match call(libc::SYS_unshare, [bit.into(), 0, 0, 0, 0]) {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
                other => return other,
            }
        }
        Err(Errno::EPERM.into())
    }),
    attempt("start a process in a new namespace", FORBIDDEN, || {
        let flags = c_long::from(libc::CLONE_NEWUSER | libc::SIGCHLD);
        call(libc::SYS_clone, [flags, 0, 0, 0, 0])
    }),
    attempt("start a process by clone3", UNKNOWN, || {
        call(libc::SYS_clone3, [0, 0, 0, 0, 0])
    }),
    attempt("enter a namespace", FORBIDDEN, || {
        use std::os::fd::AsRawFd as _;
        let own = File::open("/proc/self/ns/net")?;
        call(libc::SYS_setns, [own.as_raw_fd().into(), 0, 0, 0, 0])
    }),
    attempt("have io_uring", UNKNOWN, || {
        call(libc::SYS_io_uring_setup, [1, 0, 0, 0, 0])
    }),
    attempt("open a tree with attributes", UNKNOWN, || call(467, [0; 5])),
    attempt("make a call that is not known", UNKNOWN, || {
        call(5000, [0; 5])
    }),
    attempt("mount", FORBIDDEN, || call(libc::SYS_mount, [0; 5])),
    attempt("load a program of the kernel's", FORBIDDEN, || {
        call(libc::SYS_bpf, [5, 0, 0, 0, 0])
    }),
    attempt("write a setting that is no network's", DENIED, || {
        write("/proc/sys/kernel/core_pattern")
    }),
    attempt("write to a guest's port", NOT_FOUND, || {
        let ports = fs::read_dir("/dev")?.flatten().filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            ["vport", "mem", "kmsg", "vd"]
                .iter()
                .any(|start| name.starts_with(start))
        });
        for port in ports {
            let opened = OpenOptions::new().write(true).open(port.path());
            if opened.is_ok() {
                return Ok(());
            }
        }
        Err(nothing())
    }),
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

fn nothing() -> io::Error {
    Errno::ENODATA.into()
}

fn call(number: c_long, arguments: [c_long; 5]) -> io::Result<()> {
    let [one, two, three, four, five] = arguments;
    // SAFETY: every call is refused before it reads what an argument points to, or reads
    // what is not there.
    let done = unsafe { libc::syscall(number, one, two, three, four, five) };
    Errno::result(done)?;
    Ok(())
}

fn write(path: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path).map(drop)
}

fn pidfd() -> io::Result<c_long> {
    // SAFETY: the call takes numbers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, 1, 0) };
    Ok(Errno::result(descriptor)?)
}

/// Numbers of processes besides the first one here and this one.
fn others() -> io::Result<Vec<PathBuf>> {
    let own = std::process::id();
    let all = fs::read_dir("/proc")?.flatten().filter(|entry| {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        number.is_some_and(|number: u32| number != 1 && number != own)
    });
    Ok(all.map(|entry| entry.path()).collect())
}

/// The agent would have this program's file, or a thread, or descriptors.
fn strangers() -> io::Result<()> {
    let is_agent = |process: &PathBuf| {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("Name:\tsvclab"))
    };
    let seen = others()?.iter().any(is_agent);
    if seen { Ok(()) } else { Err(nothing()) }
}

fn descriptors() -> io::Result<()> {
    let own = fs::read_dir("/proc/self/fd")?.count();
    // Three streams, and the one that reads the list.
    if own > 4 {
        return Ok(());
    }
    let of_others = others()?;
    let readable = of_others
        .iter()
        .filter_map(|process| fs::read_dir(process.join("fd")).ok());
    if readable.map(Iterator::count).sum::<usize>() > 0 {
        return Ok(());
    }
    Err(nothing())
}

/// The three capabilities of programs, and no more.
fn rights() -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status")?;
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|line| line.trim_start_matches(':').trim().to_owned())
    };
    let due = Some("0000000000003400".to_owned());
    let is_due = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
        .iter()
        .all(|set| value(set) == due)
        && value("NoNewPrivs").as_deref() == Some("1")
        && value("Seccomp").as_deref() == Some("2");
    if is_due { Err(nothing()) } else { Ok(()) }
}

/// Takes each descriptor of each process that has a number here, and writes to it what an
/// agent says of a lab that is gone.
fn forge() -> io::Result<()> {
    let frame = br#"{"say":"gone","lab":0}"#;
    for process in 1..=1000 {
        // SAFETY: the call takes numbers.
        let of = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
        if of < 0 || process == i64::from(std::process::id()) {
            continue;
        }
        for descriptor in 0..64 {
            // SAFETY: the calls take numbers and bytes that live on.
            let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, of, descriptor, 0) };
            if taken >= 0 {
                // SAFETY: as above.
                unsafe { libc::syscall(libc::SYS_write, taken, frame.as_ptr(), frame.len()) };
                return Ok(());
            }
        }
    }
    Err(Errno::EPERM.into())
}

/// Tries everything, a line each.
pub fn inside() -> ExitCode {
    let mut said = String::new();
    for attempt in ALL {
        let errno = match (attempt.act)() {
            Ok(()) => None,
            Err(error) => Some(Errno::from_raw(error.raw_os_error().unwrap_or(0))),
        };
        if errno.is_none_or(|errno| !attempt.refusals.contains(&errno)) {
            let _ = writeln!(said, "{}: {errno:?}", attempt.name);
        }
    }
    let _ = writeln!(said, "{} tried", ALL.len());
    let _ = io::stdout().write_all(said.as_bytes());
    ExitCode::SUCCESS
}

/// Starts an agent, builds a lab of one namespace, and has the program tried in it.
/// Prints what was not refused.
pub fn outside(svclab: &str) -> ExitCode {
    let own = std::env::current_exe().expect("this program");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let said = runtime.block_on(async {
        let host = Host::with_agent(PathBuf::from(svclab)).with_programs([own.clone()]);
        tried(&host.start().await.expect("an agent"), &own).await
    });
    println!("{}", said.expect("it runs"));
    ExitCode::SUCCESS
}

/// What the program came to in a lab of that agent.
async fn tried(agent: &Agent, program: &Path) -> Result<String, KernelError> {
    let plan = Plan {
        namespaces: vec![Namespace {
            name: NODE.to_owned(),
            ..Namespace::default()
        }],
        ..Plan::default()
    };
    let mut session = agent.build(plan).await?;
    let program = program.display().to_string();
    let finished = session.run(NODE, &program, &[INSIDE], "").await?;
    Ok(finished.stdout + &finished.stderr)
}

/// Has it tried by that user's agent; what was not refused.
pub fn reaches(user: User) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(directory.path(), open).expect("permissions");
    let svclab = copied(directory.path());
    let own = directory.path().join("escape");
    let copy = Command::new("cp")
        .arg(std::env::current_exe().expect("this program"))
        .arg(&own)
        .status();
    assert!(copy.expect("cp is everywhere").success());
    let mut command = if user == User::Ordinary && geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1000", "--regid=1000", "--clear-groups"]);
        command.arg(&own);
        command
    } else {
        Command::new(&own)
    };
    let said = command
        .arg(OUTSIDE)
        .arg(&svclab)
        .output()
        .expect("this program starts");
    let text = String::from_utf8_lossy(&said.stdout);
    let errors = String::from_utf8_lossy(&said.stderr);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let all = format!("{} tried", ALL.len());
    match lines.iter().position(|line| *line == all) {
        Some(at) => drop(lines.remove(at)),
        None => lines.push(format!("not all was tried: {text}{errors}")),
    }
    lines.retain(|line| !line.is_empty());
    lines
}
