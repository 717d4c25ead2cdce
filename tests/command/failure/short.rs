//! Tests runs on a machine that lacks a resource. The run names the resource and a remedy, and
//! ends; nothing hangs, and no verdict is invented.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use nix::unistd::geteuid;
use serde_json::Value;
use svclab_test_support::programs::copy_programs;
use svclab_test_support::running::waiting;

use super::cgroup::Cgroup;
use crate::support::{LAB, project, stderr, stdout, svclab, write_lab};

/// Renders the output of a failed run without parts that differ between machines and runs.
fn render_output(output: &Output, path: &std::path::Path) -> String {
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
fn run_through(wrapper: &[&str], path: &std::path::Path) -> Output {
    let mut command = Command::new(wrapper[0]);
    command
        .args(&wrapper[1..])
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
fn run_without_descriptors_names_limit() {
    let (_directory, path) = write_lab(LAB);
    // With each limit, down to the first descriptor that a process opens, the run fails at another
    // point.
    let mut ends = Vec::new();
    for limit in 3..=48 {
        let output = run_through(&["prlimit", &format!("--nofile={limit}")], &path);
        let text = render_output(&output, &path);
        match output.status.code() {
            Some(0) => assert!(text.starts_with("PASS"), "{limit}: {text}"),
            Some(3) => {
                assert!(
                    text.contains("help: raise the limit on open files: `ulimit -n 65536`"),
                    "{limit}: {text}"
                );
                ends.push(limit);
            }
            // The loader cannot open the shared libraries.
            Some(127) => assert!(
                text.contains("error while loading shared libraries"),
                "{text}"
            ),
            other => panic!("{limit}: {other:?}: {text}"),
        }
    }
    assert!(ends.len() > 10, "{ends:?}");
    assert!(ends.last().is_some_and(|last| *last < 48), "{ends:?}");
}

/// Remedy that a run without further processes prints.
const PROCESSES: &str = "help: raise the limit on processes: `ulimit -u`, or `pids.max` of the \
                         cgroup";

/// Remedy that a run without further memory prints.
const MEMORY: &str = "help: give this machine or its cgroup (`memory.max`) more memory";

/// Asserts that the run passes, or fails with this remedy. Returns whether the run fails.
fn fails_with_remedy(output: &Output, path: &std::path::Path, remedy: &str, limit: u64) -> bool {
    let text = render_output(output, path);
    match output.status.code() {
        Some(0) => assert!(text.starts_with("PASS"), "{limit}: {text}"),
        Some(3) => assert!(text.contains(remedy), "{limit}: {text}"),
        other => panic!("{limit}: {other:?}: {text}"),
    }
    output.status.code() == Some(3)
}

#[test]
fn run_without_processes_names_limit() {
    let (directory, path) = write_lab(LAB);
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory.path(), open).expect("permissions");
    let program = copy_programs(directory.path());
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
    for (limit, watched) in (1..=12).flat_map(|most| [(most, None), (most, Some(&watched))]) {
        let output = Command::new(user[0])
            .args(&user[1..])
            .arg("prlimit")
            .arg(format!("--nproc={limit}"))
            .arg(&program)
            .arg("run")
            .arg(&path)
            .args(watched)
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .expect("a stage");
        let is_short = fails_with_remedy(&output, &path, PROCESSES, limit);
        assert!(is_short || limit > 1, "{output:?}");
    }
}

/// Runs the lab in a cgroup.
fn run_in_cgroup(cgroup: &Cgroup, path: &std::path::Path) -> Output {
    let enter = "echo $$ > \"$0\"; exec \"$@\"";
    let processes = cgroup.processes();
    run_through(&["sh", "-euc", enter, &processes.to_string_lossy()], path)
}

#[test]
fn run_in_cgroup_without_processes_names_limit() {
    // Where no cgroup can be created, the limit of a user's processes replaces the cgroup: the
    // kernel returns the same error.
    if Cgroup::new("pids", "processes").is_none() {
        eprintln!("cannot create a cgroup");
        return run_without_processes_names_limit();
    }
    let (_directory, path) = write_lab(LAB);
    // The programs that load a lab's rules start in parallel.
    let mut short = 0;
    let mut enough = 0;
    let mut used = Vec::new();
    for limit in 1..=96 {
        // Each run has its own cgroup: the kernel counts ended processes for some more seconds.
        let cgroup = Cgroup::new("pids", &format!("processes-{limit}")).expect("a cgroup");
        cgroup.set_limit("pids", limit).expect("a limit");
        if fails_with_remedy(&run_in_cgroup(&cgroup, &path), &path, PROCESSES, limit) {
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
        "{short} limits were too low, {enough} sufficient"
    );
}

#[test]
fn run_in_cgroup_without_memory_names_limit() {
    let Some(cgroup) = Cgroup::new("memory", "memory") else {
        eprintln!("cannot create a cgroup");
        return check_limited_address_space();
    };
    cgroup.set_limit("memory", 256 << 20).expect("a limit");
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
    let mut greedy = enter("exec tail /dev/zero")
        .spawn()
        .expect("the program starts");
    let output = run.wait_with_output().expect("the command ends");
    greedy.wait().expect("the command ends");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("results");
    let error = &results["cases"][0]["error"];
    assert_eq!(error["kind"], "machine");
    insta::assert_snapshot!(format!(
        "{}\nhelp: {}",
        error["message"].as_str().expect("a message"),
        error["remedy"].as_str().expect("a remedy"),
    ));
    assert_eq!(fs::read_to_string(&processes).expect("a list"), "");
}

/// Limits the address space of a process, where no cgroup can be created.
fn check_limited_address_space() {
    let (_directory, path) = write_lab(LAB);
    let mut ends = Vec::new();
    for limit in [8, 16, 32, 64, 128, 256, 512] {
        let output = run_through(&["prlimit", &format!("--as={}", limit << 20)], &path);
        // The kernel ends a program that does not fit at all.
        if output.status.code().is_some_and(|code| code <= 5) {
            fails_with_remedy(&output, &path, MEMORY, limit);
        }
        ends.push(output.status.code());
    }
    assert_ne!(ends.first(), Some(&Some(0)), "{ends:?}");
    assert_eq!(ends.last(), Some(&Some(0)), "{ends:?}");
}

#[test]
fn run_without_address_space_names_remedy() {
    check_limited_address_space();
}

/// Runs the lab after a script in a mount namespace, in which the script is root.
fn run_with_mounts(script: &str, path: &std::path::Path) -> Output {
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
    run_through(&stage, path)
}

#[test]
fn run_full_tmp_and_read_only_home_passes() {
    let (directory, path) = write_lab(LAB);
    // The files of the test are not below the mount point.
    let stage = "mount -t tmpfs -o size=4k full /mnt
                 cat /dev/zero > /mnt/fill 2> /dev/null || true
                 export TMPDIR=/mnt HOME=/mnt/home SVCLAB_CACHE=/mnt/cache
                 mount -o remount,ro /mnt";
    let output = run_with_mounts(stage, &path);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    drop(directory);
}

#[test]
fn run_restore_program_killed_is_machine_error() {
    let (directory, path) = write_lab(LAB);
    let killed = directory.path().join("killed");
    fs::write(&killed, "#!/bin/sh\n[ \"$1\" = --version ] || kill -9 $$\n").expect("a script");
    fs::set_permissions(&killed, fs::Permissions::from_mode(0o755)).expect("permissions");
    let stage = format!(
        "mount --bind {} \"$(readlink -f \"$(command -v iptables-nft-restore)\")\"",
        killed.display()
    );
    // One case only: with several, the order in which they end is random.
    let output = run_with_mounts(&stage, &path.join("policy=Local"));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    insta::assert_snapshot!(render_output(&output, &path));
}

#[test]
fn run_two_in_parallel_both_pass() {
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
        let output = run.wait_with_output().expect("the command ends");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let printed = stdout(&output);
        assert!(
            printed.contains("6 passed, 0 failed, 0 errors"),
            "{printed}"
        );
    }
}
