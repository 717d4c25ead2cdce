//! The trials.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use libtest_mimic::Trial;
use svclab_runner::kernel::GuestError;
use svclab_runner::kernel::KernelError;
use svclab_runner::kernel::doctor::CheckStatus;
use svclab_runner::kernel::guest::{Deadlines, Guest, KernelRequest};
use svclab_runner::results::CaseStatus;
use svclab_test_support::guests::shared_cache;
use svclab_test_support::{block_on, ordinary_or_full};

use super::attempt::{Attempts, RUN_ATTEMPTS, SYSCTL};
use super::machine::GuestReport;

pub fn trials() -> Vec<Trial> {
    let mut trials: Vec<(&str, fn())> = vec![
        (
            "contained_agent_escape_attempts_are_refused",
            contained_agent_escape_attempts_are_refused,
        ),
        (
            "agent_for_ipvs_escape_attempts_are_refused",
            agent_for_ipvs_escape_attempts_are_refused,
        ),
    ];
    // This test boots a guest, which only the full test run does.
    if ordinary_or_full(false, true) {
        trials.push((
            "host_with_ipvs_runs_labs_with_ipvs",
            host_with_ipvs_runs_labs_with_ipvs,
        ));
    }
    let trials = trials.into_iter().map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    trials.collect()
}

/// Attempts that must fail with every agent.
const ALWAYS_REFUSED: [&str; 9] = [
    "create a file in /usr",
    "write a file of root",
    "write a sysctl",
    "write a sysctl of the kernel",
    "load a module",
    "mount",
    "mount all devices",
    "remount as writable",
    "unmount the cover of /proc/sys",
];

/// Attempts that the system call filter refuses with the same error.
const FILTERED: [&str; 12] = [
    "mount",
    "mount all devices",
    "remount as writable",
    "unmount the cover of /proc/sys",
    "mount with the newer calls",
    "mount with an x32 call",
    "create a user and a mount namespace",
    "enter a namespace of any kind",
    "open a file by its handle",
    "load a BPF program",
    "change the root directory",
    "load a module",
];

fn run_attempts(privilege: &str) -> String {
    let before = fs::read_to_string(SYSCTL).expect("a setting");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args([RUN_ATTEMPTS, privilege, &std::process::id().to_string()])
        .output()
        .expect("this program starts");
    assert_eq!(fs::read_to_string(SYSCTL).expect("a setting"), before);
    assert!(!Path::new("/usr/svclab-was-here").exists());
    String::from_utf8(output.stdout).expect("text")
}

/// Whether root of the initial user namespace runs this test.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let namespace = fs::metadata("/proc/self/ns/user").expect("a namespace");
    nix::unistd::geteuid().is_root() && namespace.ino() == 0xEFFF_FFFD
}

fn contained_agent_escape_attempts_are_refused() {
    let output = run_attempts("contained");
    let attempts: Attempts = serde_json::from_str(&output).expect(&output);
    assert_refused(&attempts);
    assert_eq!(attempts.status["NoNewPrivs"], "1");
}

fn agent_for_ipvs_escape_attempts_are_refused() {
    let output = run_attempts("machine");
    if !is_root() {
        assert!(output.contains("requires root of the host"), "{output}");
        return;
    }
    let attempts: Attempts = serde_json::from_str(&output).expect(&output);
    assert_refused(&attempts);
    assert_minimal_privileges(&attempts);
}

fn assert_refused(attempts: &Attempts) {
    for attempt in ALWAYS_REFUSED {
        let came_to = attempts.results[attempt].as_str();
        // A kernel without module support returns ENOSYS.
        let refusals = ["EPERM", "EACCES", "EROFS", "ENOSYS"];
        assert!(refusals.contains(&came_to), "{attempt}: {came_to}");
    }
    assert_eq!(attempts.results["end a process of the host"], "ESRCH");
    // Actions that labs need.
    assert_eq!(attempts.results["create a network namespace"], "done");
    assert_eq!(
        attempts.results["write a sysctl of the new namespace"],
        "done"
    );
}

/// Asserts that the agent keeps only the documented capabilities of root, and its programs only the
/// three for networks.
fn assert_minimal_privileges(attempts: &Attempts) {
    for attempt in FILTERED {
        assert_eq!(attempts.results[attempt], "EPERM", "{attempt}");
    }
    assert_eq!(attempts.results["become root"], "EPERM");
    let bits = |numbers: &[u32]| {
        let mask: u64 = numbers.iter().map(|number| 1 << number).sum();
        format!("{mask:016x}")
    };
    // CAP_KILL, _SETGID, _SETUID, _NET_BIND_SERVICE, _NET_ADMIN, _NET_RAW, _SYS_CHROOT, _SYS_ADMIN.
    let kept = bits(&[5, 6, 7, 10, 12, 13, 18, 21]);
    assert_eq!(attempts.status["CapEff"], kept);
    assert_eq!(attempts.status["CapPrm"], kept);
    let programs = bits(&[10, 12, 13]);
    for set in ["CapEff", "CapPrm", "CapBnd", "CapAmb"] {
        assert_eq!(attempts.child_status[set], programs, "{set}");
    }
    for status in [&attempts.status, &attempts.child_status] {
        assert_eq!(status["NoNewPrivs"], "1");
        // SECCOMP_MODE_FILTER.
        assert_eq!(status["Seccomp"], "2");
    }
}

fn host_with_ipvs_runs_labs_with_ipvs() {
    let report = run_in_guest();
    let (code, results) = report.run;
    assert_eq!(results.len(), 2);
    for (result, kernel, error) in &results {
        assert_eq!(*result, CaseStatus::Pass, "{error}");
        assert!(kernel.starts_with("6.12."), "{kernel}");
    }
    assert_eq!(code, Some(0));
    // The drops are traced by an agent without its own user namespace.
    assert_eq!(report.drops, ["seen", "seen"]);
    let (code, words) = report.refused;
    assert_eq!(code, Some(3), "{words}");
    assert!(
        words.contains("needs root of the machine itself, but svclab runs without root"),
        "{words}"
    );
    let ipvs = report.doctor.expect("a diagnosis");
    assert_eq!(ipvs.status, CheckStatus::Works, "{ipvs:?}");
    let attempts = report.attempts.expect("attempts");
    assert_refused(&attempts);
    assert_minimal_privileges(&attempts);
    assert_eq!(report.escapes, [""; 0]);
    let (code, words) = report.unloaded;
    assert_eq!(code, Some(3), "{words}");
    assert!(words.contains("modprobe"), "{words}");
    assert_eq!(report.requested_modules, ["", "fs-svclab-none\n"]);
    assert_eq!(report.sysctl[0], report.sysctl[1]);
}

/// Boots a guest with this program as its first process, and returns its report.
fn run_in_guest() -> GuestReport {
    let wanted = KernelRequest::Series("6.12".to_owned());
    let deadlines = Deadlines {
        boot: Duration::from_mins(3),
        ..Deadlines::default()
    };
    let program = std::env::current_exe().expect("this program");
    let error = block_on(async {
        let guest = Guest::with_agent(shared_cache(), &wanted, program).await;
        let guest = guest.expect("a kernel").with_deadlines(deadlines);
        guest.start().await.expect_err("the program is no agent")
    });
    let KernelError::NoGuest(error) = &error else {
        panic!("{error}")
    };
    let GuestError::Ended {
        output: console, ..
    } = &**error
    else {
        panic!("{error}")
    };
    let line = console.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.expect(console)).expect(console)
}
