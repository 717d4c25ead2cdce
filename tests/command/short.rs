//! Tests runs on a machine that lacks a resource. The run names the resource and a remedy, and
//! ends; nothing hangs, and no verdict is invented.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use nix::unistd::geteuid;
use serde_json::Value;

use super::cgroup::Cgroup;
use super::copied::copied;
use super::support::{LAB, lab, project, stderr, stdout, svclab};
use super::waiting;

/// Renders the output of a failed run without parts that differ between machines and runs.
fn told(output: &Output, path: &std::path::Path) -> String {
    let text = format!("{}{}", stdout(output), stderr(output));
    let lines = text.lines().map(|line| {
        let line = line.replace(&path.display().to_string(), "LAB");
        // Removes times, kernel release and tool versions.
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

/// Runs the lab through other programs, which set up its environment.
fn run_by(stage: &[&str], path: &std::path::Path) -> Output {
    let mut command = Command::new(stage[0]);
    command
        .args(&stage[1..])
        .arg(crate::SVCLAB)
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
    // With each limit, down to the first descriptor that a process opens, the run fails at another
    // point.
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
            // The loader cannot open the shared libraries.
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

/// Remedy that a run without further processes prints.
const PROCESSES: &str = "what to do: raise the limit on processes: `ulimit -u`, or `pids.max` of \
                         the cgroup that this runs in";

/// Remedy that a run without further memory prints.
const MEMORY: &str = "what to do: give this machine, or the cgroup that this runs in \
                      (`memory.max`), more memory";

/// Asserts that the run passes, or fails with this remedy. Returns whether the run fails.
fn is_told(output: &Output, path: &std::path::Path, remedy: &str, most: u64) -> bool {
    let told = told(output, path);
    match output.status.code() {
        Some(0) => assert!(told.starts_with("PASS"), "{most}: {told}"),
        Some(3) => assert!(told.contains(remedy), "{most}: {told}"),
        other => panic!("{most}: {other:?}: {told}"),
    }
    output.status.code() == Some(3)
}

#[test]
fn no_processes() {
    let (directory, path) = lab(LAB);
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory.path(), open).expect("permissions");
    let program = copied(directory.path());
    // The limit counts the processes of a user and does not apply to root. The test uses a user
    // without other processes; without root, in a user namespace.
    let user: &[&str] = if geteuid().is_root() {
        &[
            "setpriv",
            "--reuid=64242",
            "--regid=64242",
            "--clear-groups",
        ]
    } else {
        &["unshare", "--user", "--map-root-user"]
    };
    // With full evidence, slow work runs in separate threads, which count as processes.
    let report = directory.path().join("report");
    fs::create_dir(&report).expect("a directory");
    fs::set_permissions(&report, fs::Permissions::from_mode(0o777)).expect("permissions");
    let watched = format!("--report={}", report.display());
    for (most, watched) in (1..=12).flat_map(|most| [(most, None), (most, Some(&watched))]) {
        let output = Command::new(user[0])
            .args(&user[1..])
            .arg("prlimit")
            .arg(format!("--nproc={most}"))
            .arg(&program)
            .arg("run")
            .arg(&path)
            .args(watched)
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .expect("a stage");
        let is_short = is_told(&output, &path, PROCESSES, most);
        assert!(is_short || most > 1, "{output:?}");
    }
}

/// Runs the lab in a cgroup.
fn run_in(cgroup: &Cgroup, path: &std::path::Path) -> Output {
    let enter = "echo $$ > \"$0\"; exec \"$@\"";
    let processes = cgroup.processes();
    run_by(&["sh", "-euc", enter, &processes.to_string_lossy()], path)
}

#[test]
fn a_cgroup_without_processes() {
    // Where no cgroup can be created, the limit of a user's processes replaces the cgroup: the
    // kernel returns the same error.
    if Cgroup::with("pids", "processes").is_none() {
        eprintln!("no cgroup can be made here");
        return no_processes();
    }
    let (_directory, path) = lab(LAB);
    // The programs that load a lab's rules start in parallel.
    let mut short = 0;
    let mut enough = 0;
    let mut used = Vec::new();
    for most in 1..=96 {
        // Each run has its own cgroup: the kernel counts ended processes for some more seconds.
        let cgroup = Cgroup::with("pids", &format!("processes-{most}")).expect("one more");
        cgroup.limit("pids", most).expect("a limit");
        if is_told(&run_in(&cgroup, &path), &path, PROCESSES, most) {
            short += 1;
        } else {
            enough += 1;
        }
        used.push(cgroup);
        // Higher limits are sufficient, too.
        if enough == 8 {
            break;
        }
    }
    assert!(
        short > 0 && enough == 8,
        "{short} were short, {enough} enough"
    );
}

#[test]
fn a_cgroup_without_memory() {
    let Some(cgroup) = Cgroup::with("memory", "memory") else {
        eprintln!("no cgroup can be made here");
        return no_memory_to_map();
    };
    cgroup.limit("memory", 256 << 20).expect("a limit");
    let processes = cgroup.processes();
    let enter = |words: &str| {
        let mut command = Command::new("sh");
        command
            .args(["-euc", &format!("echo $$ > \"$0\"; {words}")])
            .arg(&processes)
            .current_dir(project())
            .env("NO_COLOR", "1")
            .env_remove("SVCLAB_KERNEL")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command
    };
    let mut run = enter("exec \"$@\"");
    run.arg(crate::SVCLAB);
    let run = waiting::start(run, &["--format=json"]);
    // Another process uses up the memory. The kernel kills the lab first, because a lab is
    // expendable.
    let mut greedy = enter("exec tail /dev/zero").spawn().expect("it starts");
    let output = run.wait_with_output().expect("an end");
    greedy.wait().expect("an end");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("results");
    let error = &results["cases"][0]["error"];
    assert_eq!(error["trouble"], "machine");
    insta::assert_snapshot!(format!(
        "{}\nwhat to do: {}",
        error["message"].as_str().expect("a message"),
        error["remedy"].as_str().expect("a remedy"),
    ));
    assert_eq!(fs::read_to_string(&processes).expect("a list"), "");
}

/// Limits the address space of a process, where no cgroup can be created.
fn no_memory_to_map() {
    let (_directory, path) = lab(LAB);
    let mut ends = Vec::new();
    for most in [8, 16, 32, 64, 128, 256, 512] {
        let output = run_by(&["prlimit", &format!("--as={}", most << 20)], &path);
        // The kernel ends a program that does not fit at all.
        if output.status.code().is_some_and(|code| code <= 5) {
            is_told(&output, &path, MEMORY, most);
        }
        ends.push(output.status.code());
    }
    assert_ne!(ends.first(), Some(&Some(0)), "{ends:?}");
    assert_eq!(ends.last(), Some(&Some(0)), "{ends:?}");
}

#[test]
fn memory_to_map_runs_out() {
    no_memory_to_map();
}

/// Runs the lab after a script in a mount namespace, in which the script is root.
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
    // The files of the test are not below the mount point.
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
    // One case only: with several, the order in which they end is random.
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
