//! Tests the confinement of QEMU on the host, as the kernel reports it for a running guest. Covers
//! root and an ordinary user, with and without permission to create namespaces.

mod container;
mod qemu_state;

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::geteuid;
use svclab_runner::kernel::guest::Cache;
use svclab_test_support::guests::new_cache;
use svclab_test_support::processes::children;

use crate::SVCLAB;
use crate::command::{QEMU, installed, program_directory};
use crate::support::QUICK;

use container::restrict;
use qemu_state::QemuState;

/// User ID without an account, for an ordinary user and the owner of files.
const ORDINARY: u32 = 54_321;

/// Gives a directory tree to a user and hides it from others.
fn give_to(user: u32, path: &Path) {
    let found = fs::symlink_metadata(path).expect("the file exists");
    let mode = if found.is_dir() { 0o700 } else { 0o600 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
    chown(path, Some(user), Some(user)).expect("an owner");
    if found.is_dir() {
        for entry in fs::read_dir(path).expect("a directory") {
            give_to(user, &entry.expect("a directory").path());
        }
    }
}

/// User and environment that svclab runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Root,
    /// Root of a container with Docker's default profile.
    Container,
    Ordinary,
    /// Ordinary user who cannot create user namespaces.
    WithoutNamespaces,
}

impl Caller {
    /// Returns the owner of the caller's files.
    const fn user(self) -> u32 {
        match self {
            Self::Root | Self::Container => 0,
            Self::Ordinary | Self::WithoutNamespaces => ORDINARY,
        }
    }
}

/// Returns the command as that caller starts it. The command inherits a descriptor of a secret
/// file.
fn command_as(caller: Caller, cache: &Path, path: &Path, words: &[&str]) -> Command {
    let secret = fs::File::open("/etc/shadow");
    let mut command = Command::new(SVCLAB);
    command
        .args(words)
        .current_dir(svclab_test_support::root())
        .env("SVCLAB_CACHE", cache)
        .env("PATH", path)
        .env("SECRET", "caller's secret")
        // Cargo sets this variable; QEMU would get its directories as library directories.
        .env_remove("LD_LIBRARY_PATH")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: only system calls are made between fork and exec, on a descriptor that stays open
    // until the command has started.
    unsafe {
        command.pre_exec(move || {
            if let Ok(secret) = &secret {
                fcntl(secret, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            Ok(())
        });
    }
    match caller {
        Caller::Root => {}
        Caller::Container => restrict(&mut command),
        Caller::Ordinary => {
            command.uid(ORDINARY).gid(ORDINARY);
        }
        Caller::WithoutNamespaces => {
            restrict(&mut command);
            // The filter stays; changing the user drops the capabilities.
            // SAFETY: only system calls are made between fork and exec.
            unsafe {
                command.pre_exec(|| {
                    nix::unistd::setgroups(&[])?;
                    nix::unistd::setgid(ORDINARY.into())?;
                    nix::unistd::setuid(ORDINARY.into())?;
                    Ok(())
                });
            }
        }
    }
    command
}

/// Runs the command as that caller. Returns its exit code and standard output.
fn run_as(caller: Caller, cache: &Path, path: &Path, words: &[&str]) -> (Option<i32>, String) {
    let output = command_as(caller, cache, path, words).output();
    let output = output.expect("the command starts");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), stdout)
}

/// Arguments that run a quick case in a guest.
const RUN: [&str; 4] = ["run", QUICK, "--kernel", "6.12"];

/// Records the state of each QEMU once it runs a guest, until the command ends.
fn record_qemu(mut child: Child) -> (Vec<QemuState>, std::process::Output) {
    let top = i32::try_from(child.id()).expect("the PID fits");
    let mut seen = Vec::new();
    while child.try_wait().expect("the command runs").is_none() {
        for process in children(top) {
            let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            let seccomp = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            // QEMU's own filter is the last step of its setup.
            if name.starts_with("qemu") && seccomp.lines().any(|line| line == "Seccomp_filters:\t2")
            {
                seen.extend(QemuState::read(process, child.id()));
            }
        }
        std::thread::yield_now();
    }
    (seen, child.wait_with_output().expect("the command ends"))
}

/// Creates a cache owned by that user, and a directory with the installed QEMU.
fn prepare(owner: u32) -> (tempfile::TempDir, Cache, tempfile::TempDir, PathBuf) {
    let (directory, cache) = new_cache("6.12");
    let path = program_directory(&[QEMU], &[]);
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory.path(), open.clone()).expect("permissions");
    fs::set_permissions(path.path(), open).expect("permissions");
    give_to(owner, cache.directory());
    let bin = path.path().to_owned();
    (directory, cache, path, bin)
}

fn run_passing(
    caller: Caller,
    cache: &Cache,
    bin: &Path,
    words: &[&str],
) -> (Vec<QemuState>, String) {
    let child = command_as(caller, cache.directory(), bin, words).spawn();
    let (seen, output) = record_qemu(child.expect("the command starts"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{caller:?}: {stderr}{stdout}"
    );
    assert!(!seen.is_empty(), "QEMU was not seen");
    (seen, format!("{stderr}{stdout}"))
}

fn is_other_user(seen: &QemuState) -> bool {
    let ids = [seen.ids("Uid"), seen.ids("Gid")].concat();
    seen.field("Groups").is_empty() && ids.iter().all(|id| (61_184..65_519).contains(id))
}

#[test]
fn qemu_started_by_root_is_confined() {
    assert!(geteuid().is_root(), "this test needs root");
    let (_directory, cache, _path, bin) = prepare(0);
    // The first run boots the guest; the second restores the snapshot.
    for _ in 0..2 {
        let (observations, _) = run_passing(Caller::Root, &cache, &bin, &RUN);
        for seen in &observations {
            seen.assert_confined();
            assert!(is_other_user(seen), "{}", seen.status);
        }
        assert!(observations.iter().any(QemuState::shares_memory));
    }
}

#[test]
fn cache_of_other_user_is_refused_before_qemu_starts() {
    assert!(geteuid().is_root(), "this test needs root");
    let (directory, cache, _path, bin) = prepare(0);
    // The script leaves a file if svclab starts it.
    let (qemu, started) = (bin.join(QEMU), directory.path().join("started"));
    fs::remove_file(&qemu).expect("a link");
    fs::write(&qemu, format!("#!/bin/sh\n> {}\n", started.display())).expect("a script");
    fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).expect("permissions");
    let assert_refused = |owner: u32, mode: u32, words: &str| {
        let cache = cache.directory();
        chown(cache, Some(owner), Some(owner)).expect("an owner");
        fs::set_permissions(cache, fs::Permissions::from_mode(mode)).expect("permissions");
        let (code, said) = run_as(Caller::Root, cache, &bin, &RUN);
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains(words), "{said}");
    };
    assert_refused(
        ORDINARY,
        0o700,
        "belongs to the user 54321, not to the user 0",
    );
    assert_refused(0, 0o777, "is writable by other users");
    assert!(!started.exists(), "QEMU was started");
}

#[test]
fn qemu_started_by_ordinary_user_is_confined() {
    assert!(geteuid().is_root(), "this test needs root");
    let (_directory, cache, _path, bin) = prepare(ORDINARY);
    for _ in 0..2 {
        for seen in run_passing(Caller::Ordinary, &cache, &bin, &RUN).0 {
            seen.assert_confined();
            assert_eq!(seen.ids("Uid"), [ORDINARY; 4]);
            // As the owner of the cache it could open the file again to write.
            assert!(!seen.shares_memory());
        }
    }
}

#[test]
fn run_without_namespaces_passes_in_unprivileged_guest() {
    assert!(geteuid().is_root(), "this test needs root");
    for caller in [Caller::Container, Caller::WithoutNamespaces] {
        let (_directory, cache, _path, bin) = prepare(caller.user());
        for _ in 0..2 {
            let (seen, said) = run_passing(caller, &cache, &bin, &["run", QUICK]);
            for seen in seen {
                seen.assert_unprivileged();
                match caller.user() {
                    0 => assert!(is_other_user(&seen), "{}", seen.status),
                    user => assert_eq!(seen.ids("Uid"), [user; 4]),
                }
            }
            let notes = said.matches("note: no agent starts on this host").count();
            assert_eq!(notes, 1, "{said}");
            let note = "so labs run in a guest (Linux 6.12.";
            assert!(said.contains(note), "{said}");
            let reason = "svclab cannot create a user namespace: Operation not permitted";
            assert!(said.contains(reason), "{said}");
            assert!(said.contains(" on Linux 6.12."), "{said}");
        }
        // `--kernel host` rules out a guest.
        let words = ["run", QUICK, "--kernel", "host"];
        let (code, said) = run_as(caller, cache.directory(), &bin, &words);
        assert_eq!(code, Some(3), "{caller:?}: {said}");
        // The report of `doctor` agrees with the run.
        let (code, said) = run_as(caller, cache.directory(), &bin, &["doctor"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("This machine can run every lab."), "{said}");
        let refused = "QEMU runs as an unprivileged user, but this machine does not allow: a PID namespace, a mount namespace, a network namespace, an IPC namespace, a UTS namespace, a cgroup namespace, a separate root directory\n";
        assert!(said.contains(refused), "{said}");
    }
}

#[test]
fn run_without_guest_and_host_agent_names_both_reasons() {
    assert!(geteuid().is_root(), "this test needs root");
    let (_directory, cache) = new_cache("6.12");
    let path = program_directory(&[], &[]);
    let words = ["run", QUICK];
    let (code, said) = run_as(Caller::Container, cache.directory(), path.path(), &words);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("cannot create a user namespace"), "{said}");
    assert!(
        said.contains("qemu-system-x86_64, which is not installed"),
        "{said}"
    );
}

#[test]
fn qemu_root_without_setuid_is_refused() {
    let (_directory, cache, _path, bin) = prepare(0);
    let output = Command::new(installed("setpriv"))
        .arg("--bounding-set=-setuid")
        .arg(SVCLAB)
        .args(RUN)
        .current_dir(svclab_test_support::root())
        .env("SVCLAB_CACHE", cache.directory())
        .env("PATH", bin)
        .output()
        .expect("setpriv(1) runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{stdout}");
    let refused =
        "cannot start QEMU: cannot change to a user without privileges: permission denied";
    assert!(stdout.contains(refused), "{stdout}");
    assert!(
        stdout.contains("CAP_SETUID, CAP_SETGID and CAP_KILL"),
        "{stdout}"
    );
}

/// Compiles the program that tries to reach the targets in the macros.
fn compile_intruder(directory: &Path, macros: &[(&str, String)]) {
    let source = svclab_test_support::root().join("tests/guest/confined/intruder.c");
    let compiled = Command::new("cc")
        .args(
            macros
                .iter()
                .map(|(name, value)| format!("-D{name}={value}")),
        )
        .arg("-o")
        .args([directory.join(QEMU), source])
        .status();
    assert!(compiled.expect("a C compiler is installed").success());
}

/// A sleeping process of a user, killed when dropped.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn program_in_place_of_qemu_reaches_nothing() {
    assert!(geteuid().is_root(), "this test needs root");
    let disk = fs::read_dir("/dev").expect("devices").filter_map(|entry| {
        let path = entry.ok()?.path();
        let found = fs::metadata(&path).ok()?;
        found.file_type().is_block_device().then_some(path)
    });
    let disk = disk.min().unwrap_or_else(|| PathBuf::from("/dev/mem"));
    for caller in [
        Caller::Root,
        Caller::Container,
        Caller::Ordinary,
        Caller::WithoutNamespaces,
    ] {
        let user = caller.user();
        let (directory, cache, path, bin) = prepare(user);
        fs::remove_file(bin.join(QEMU)).expect("a link");
        // Files and a socket that only the caller can reach.
        let place = directory.path().join("place");
        let (secret, socket) = (place.join("secret"), place.join("socket"));
        fs::create_dir(&place).expect("a directory");
        fs::write(&secret, "secret").expect("a file");
        let listener = UnixListener::bind(&socket).expect("a socket");
        give_to(user, &place);
        let victim = Command::new("sleep").arg("1000").uid(user).spawn();
        let victim = Victim(victim.expect("sleep(1) starts"));
        let process = victim.0.id();
        let text = |path: &Path| format!("\"{}\"", path.display());
        compile_intruder(
            &bin,
            &[
                ("SECRET", text(&secret)),
                ("SOCKET", text(&socket)),
                ("DISK", text(&disk)),
                ("ENVIRONMENT", format!("\"/proc/{process}/environ\"")),
                ("VICTIM", process.to_string()),
            ],
        );
        let (code, stdout) = run_as(caller, cache.directory(), &bin, &RUN);
        assert_eq!(code, Some(5), "{caller:?}: {stdout}");
        let tried = stdout.split_once("tried ").map_or("", |(_, rest)| rest);
        let tried = tried.lines().next().unwrap_or_default();
        let tried: Vec<(&str, i32)> = tried
            .split_whitespace()
            .filter_map(|word| {
                let (name, error) = word.split_once('=')?;
                Some((name, error.parse().ok()?))
            })
            .collect();
        assert_eq!(tried.len(), 24, "{caller:?}: {stdout}");
        for (name, error) in tried {
            if name == "descriptors" {
                assert_eq!(error, 0, "{caller:?}: unexpected descriptors");
                continue;
            }
            let refusals = [
                Errno::EPERM,
                Errno::EACCES,
                Errno::ENOENT,
                Errno::EROFS,
                Errno::ENOSYS,
                // A user ID that the user namespace does not map.
                Errno::EINVAL,
            ];
            let is_refused = refusals.iter().any(|errno| *errno as i32 == error);
            assert!(
                is_refused,
                "{caller:?}: {name} ended with {error}: {stdout}"
            );
        }
        drop((listener, path));
    }
}
