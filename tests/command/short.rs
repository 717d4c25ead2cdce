//! A machine that is short of something: the run says of what and what to do, and
//! ends; nothing hangs, and no verdict is made up.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use nix::unistd::geteuid;

use super::support::{LAB, lab, project, stderr, stdout, svclab};

/// What a person sees of a run that came to nothing, without what differs from
/// one machine or moment to another.
fn told(output: &Output, path: &std::path::Path) -> String {
    let text = format!("{}{}", stdout(output), stderr(output));
    let lines = text.lines().map(|line| {
        let line = line.replace(&path.display().to_string(), "LAB");
        // How long it took, the kernel, the tools.
        match line.find(" in ").filter(|_| line.contains("passed, ")) {
            Some(at) => line[..at].to_owned(),
            None => match line.rfind("  (").filter(|_| line.starts_with("ERROR")) {
                Some(at) => line[..at].to_owned(),
                None => line,
            },
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The lab, run by way of other programs that set the stage.
fn run_by(stage: &[&str], path: &std::path::Path) -> Output {
    let mut command = Command::new(stage[0]);
    command
        .args(&stage[1..])
        .arg(env!("CARGO_BIN_EXE_svclab"))
        .arg("run")
        .arg(path)
        .current_dir(project())
        .env("NO_COLOR", "1")
        .env_remove("SVCLAB_KERNEL")
        .stdin(Stdio::null());
    command.output().expect("a stage")
}

#[test]
fn no_descriptors() {
    let (_directory, path) = lab(LAB);
    // Down to the first that a process opens, a run ends at another place each.
    let mut ends = Vec::new();
    for most in 3..=48 {
        let output = run_by(&["prlimit", &format!("--nofile={most}")], &path);
        let told = told(&output, &path);
        match output.status.code() {
            Some(0) => assert!(told.starts_with("PASS"), "{most}: {told}"),
            Some(3) => {
                assert!(
                    told.contains("what to do: raise the limit on open files: `ulimit -n 65536`"),
                    "{most}: {told}"
                );
                ends.push(most);
            }
            // The program's own libraries cannot be opened.
            Some(127) => assert!(
                told.contains("error while loading shared libraries"),
                "{told}"
            ),
            other => panic!("{most}: {other:?}: {told}"),
        }
    }
    assert!(ends.len() > 10, "{ends:?}");
    assert!(ends.last().is_some_and(|last| *last < 48), "{ends:?}");
}

#[test]
fn no_processes() {
    // The limit is of a user's processes: of one that has no others. Root has
    // none, and who is no root cannot become another.
    if !geteuid().is_root() {
        return;
    }
    let (directory, path) = lab(LAB);
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory.path(), open).expect("permissions");
    let program = directory.path().join("svclab");
    fs::copy(env!("CARGO_BIN_EXE_svclab"), &program).expect("a copy");
    for most in 1..=12 {
        let output = Command::new("setpriv")
            .args([
                "--reuid=64242",
                "--regid=64242",
                "--clear-groups",
                "prlimit",
            ])
            .arg(format!("--nproc={most}"))
            .arg(&program)
            .arg("run")
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .expect("a stage");
        let told = told(&output, &path);
        match output.status.code() {
            Some(0) => assert!(told.starts_with("PASS"), "{most}: {told}"),
            Some(3) => assert!(
                told.contains("what to do: raise the limit on processes: `ulimit -u`"),
                "{most}: {told}"
            ),
            other => panic!("{most}: {other:?}: {told}"),
        }
        if most == 1 {
            assert_eq!(output.status.code(), Some(3), "{told}");
        }
    }
}

/// A mount namespace in which root may set a stage.
fn with_mounts(script: &str, path: &std::path::Path) -> Output {
    let script = format!("{script}\nexec \"$@\"");
    let user: &[&str] = if geteuid().is_root() {
        &[]
    } else {
        &["--user", "--map-root-user"]
    };
    let stage = [
        &["unshare", "--mount"],
        user,
        &["sh", "-euc", &script, "sh"],
    ]
    .concat();
    run_by(&stage, path)
}

#[test]
fn no_room_for_temporary_files_and_a_home_that_cannot_be_written() {
    let (directory, path) = lab(LAB);
    // What is written for the test lies where it is not mounted over.
    let stage = "mount -t tmpfs -o size=4k full /mnt
                 cat /dev/zero > /mnt/fill 2> /dev/null || true
                 export TMPDIR=/mnt HOME=/mnt/home SVCLAB_CACHE=/mnt/cache
                 mount -o remount,ro /mnt";
    let output = with_mounts(stage, &path);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    drop(directory);
}

#[test]
fn a_program_that_is_killed_is_no_refusal() {
    let (directory, path) = lab(LAB);
    let killed = directory.path().join("killed");
    fs::write(&killed, "#!/bin/sh\n[ \"$1\" = --version ] || kill -9 $$\n").expect("a script");
    fs::set_permissions(&killed, fs::Permissions::from_mode(0o755)).expect("permissions");
    let stage = format!(
        "mount --bind {} \"$(readlink -f \"$(command -v iptables-nft-restore)\")\"",
        killed.display()
    );
    // One case: of several it is left to chance which ends first.
    let output = with_mounts(&stage, &path.join("policy=Local"));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    insta::assert_snapshot!(told(&output, &path));
}

#[test]
fn two_at_once_do_not_meet() {
    let arguments = ["run", "canal-stale-rule/stale=removed", "--certify"];
    let runs: Vec<_> = (0..2)
        .map(|_| {
            svclab()
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the command starts")
        })
        .collect();
    for run in runs {
        let output = run.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let told = stdout(&output);
        assert!(told.contains("6 passed, 0 failed, 0 errors"), "{told}");
    }
}
