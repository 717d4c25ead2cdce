//! Attempts to escape from the agent's environment.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::process::{Command, exit};

use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::kill;
use nix::unistd::{Pid, Uid, chroot, setuid};
use serde::{Deserialize, Serialize};
use svclab_agent::contain::{AgentPrivilege, contain};

/// Argument that makes this program run the attempts.
pub const RUN_ATTEMPTS: &str = "attempt-to-escape";

/// Argument that makes this program print its own privileges, as a program that an agent has
/// started.
pub const PRINT_PRIVILEGES: &str = "say-what-you-may";

/// A sysctl outside of the network namespace.
pub const SYSCTL: &str = "/proc/sys/vm/swappiness";

/// Results of the attempts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// Result by attempt: `done`, or the name of the errno.
    pub results: BTreeMap<String, String>,
    /// Fields of `/proc/self/status` of the attempting process.
    pub status: BTreeMap<String, String>,
    /// These fields of a program that this process starts.
    pub child_status: BTreeMap<String, String>,
}

/// Enters the environment of an agent, runs the attempts, and prints the results. `outside` is the
/// PID of a process outside.
pub fn main(privilege: &str, outside: &str) -> ! {
    let standing = match privilege {
        "machine" => AgentPrivilege::Host,
        _ => AgentPrivilege::Contained,
    };
    let json = match contain(standing, &[]) {
        Ok(()) => serde_json::to_string(&run_attempts(standing, outside)),
        Err(failure) => serde_json::to_string(&failure.message),
    };
    println!("{}", json.expect("the value can be serialized"));
    exit(0)
}

/// Prints the privileges of this process.
pub fn print_privileges() -> ! {
    let status = serde_json::to_string(&status()).expect("the value can be serialized");
    println!("{status}");
    exit(0)
}

#[expect(clippy::too_many_lines, reason = "a list of short attempts")]
fn run_attempts(privilege: AgentPrivilege, outside: &str) -> Attempts {
    let outside: i32 = outside.parse().expect("a process");
    let own_mounts = File::open("/proc/self/ns/mnt").expect("the mount namespace");
    let module = memfd_create(c"module", MFdFlags::empty()).expect("a file");
    let none: Option<&str> = None;
    let writing = |path: &str| OpenOptions::new().write(true).open(path);
    let mut results = BTreeMap::new();
    let mut record = |attempt_name: &str, done: io::Result<()>| {
        let word = match done {
            Ok(()) => "done".to_owned(),
            Err(error) => format!("{:?}", Errno::from_raw(error.raw_os_error().unwrap_or(0))),
        };
        results.insert(attempt_name.to_owned(), word);
    };
    let nix = |done: nix::Result<()>| done.map_err(io::Error::from);
    record(
        "create a file in /usr",
        fs::write("/usr/svclab-was-here", ""),
    );
    record(
        "write a file of root",
        writing("/etc/ld.so.cache").map(drop),
    );
    record("write a sysctl", fs::write(SYSCTL, "1"));
    record(
        "write a sysctl of the kernel",
        fs::write("/proc/sys/kernel/core_pattern", "|/tmp/x"),
    );
    record(
        "load a module",
        nix(finit_module(&module, c"", ModuleInitFlags::empty())),
    );
    record(
        "end a process of the host",
        nix(kill(Pid::from_raw(outside), None)),
    );
    record(
        "mount",
        nix(mount(
            Some("x"),
            "/tmp",
            Some("tmpfs"),
            MsFlags::empty(),
            none,
        )),
    );
    record(
        "mount all devices",
        nix(mount(
            Some("x"),
            "/tmp",
            Some("devtmpfs"),
            MsFlags::empty(),
            none,
        )),
    );
    record(
        "remount as writable",
        nix(mount(
            none,
            "/usr",
            none,
            MsFlags::MS_REMOUNT | MsFlags::MS_BIND,
            none,
        )),
    );
    record(
        "unmount the cover of /proc/sys",
        nix(umount2("/proc/sys", MntFlags::MNT_DETACH)),
    );
    record("mount with the newer calls", {
        // SAFETY: the call reads a text that ends in a zero byte.
        let made = unsafe { libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), 0) };
        Errno::result(made).map(drop).map_err(io::Error::from)
    });
    record("mount with an x32 call", {
        let number = libc::SYS_mount | 0x4000_0000;
        let null = std::ptr::null::<libc::c_char>();
        let (name, target) = (c"tmpfs".as_ptr(), c"/tmp".as_ptr());
        // SAFETY: the call reads texts that end in a zero byte.
        let made = unsafe { libc::syscall(number, name, target, name, 0, null) };
        Errno::result(made).map(drop).map_err(io::Error::from)
    });
    if privilege == AgentPrivilege::Host {
        // Root of a user namespace already has these capabilities, and every user can create user
        // namespaces.
        record("change the root directory", nix(chroot("/tmp")));
        record("become root", nix(setuid(Uid::from_raw(0))));
        record(
            "create a user and a mount namespace",
            nix(unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)),
        );
    }
    record(
        "enter a mount namespace",
        nix(setns(&own_mounts, CloneFlags::CLONE_NEWNS)),
    );
    record(
        "enter a namespace of any kind",
        nix(setns(&own_mounts, CloneFlags::empty())),
    );
    record("open a file by its handle", {
        let handle = [0_u64; 4];
        let mount_fd = own_mounts.as_raw_fd();
        // SAFETY: the handle states a length of 0 bytes.
        let made =
            unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount_fd, handle.as_ptr(), 0) };
        Errno::result(made).map(drop).map_err(io::Error::from)
    });
    record("load a BPF program", {
        let attributes = [0_u64; 16];
        let size = size_of_val(&attributes);
        // SAFETY: the attributes have the stated size.
        let made = unsafe { libc::syscall(libc::SYS_bpf, 5, attributes.as_ptr(), size) };
        Errno::result(made).map(drop).map_err(io::Error::from)
    });
    record(
        "create a network namespace",
        nix(unshare(CloneFlags::CLONE_NEWNET)),
    );
    record(
        "write a sysctl of the new namespace",
        fs::write("/proc/sys/net/ipv4/ip_forward", "1"),
    );
    let started = Command::new("/proc/self/exe")
        .arg(PRINT_PRIVILEGES)
        .output();
    let started = started.expect("a program starts");
    Attempts {
        results,
        status: status(),
        child_status: serde_json::from_slice(&started.stdout).expect("the privileges"),
    }
}

fn status() -> BTreeMap<String, String> {
    let wanted = [
        "CapEff",
        "CapPrm",
        "CapBnd",
        "CapAmb",
        "NoNewPrivs",
        "Seccomp",
    ];
    fs::read_to_string("/proc/self/status")
        .expect("/proc/self/status can be read")
        .lines()
        .filter_map(|line| line.split_once(":\t"))
        .filter(|(name, _)| wanted.contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
