//! Tests `svclab doctor` on this machine, and in environments without features that svclab needs.

use std::process::{Command, Output, Stdio};

use svclab_report::doctor::DoctorDocument;
use svclab_runner::kernel::doctor::CheckStatus;
use svclab_test_support::can_trace_drops;
use svclab_test_support::programs::svclab;

fn parse_report(output: &Output) -> DoctorDocument {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
    })
}

/// Creates an empty cache, so that kernels fetched on this machine do not affect the tests.
fn empty_cache() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn doctor_this_machine_exit_code_matches_report() {
    let cache = empty_cache();
    let output = Command::new(svclab())
        .args(["doctor", "--format", "json"])
        .env("SVCLAB_CACHE", cache.path())
        .stdin(Stdio::null())
        .output()
        .expect("svclab runs");
    let document = parse_report(&output);
    assert_eq!(output.status.code(), Some(if document.ok { 0 } else { 3 }));
    assert_eq!(document.diagnosis.root, nix::unistd::geteuid().is_root());
    let found = document.diagnosis.environment.expect("an agent");
    assert!(!found.kernel.is_empty());
    // Every machine that runs these tests has these features.
    for feature in [
        "network namespaces",
        "veth pairs and captures",
        "iptables-nft",
    ] {
        let mut findings = document.diagnosis.findings.iter();
        let finding = findings.find(|finding| finding.feature == feature);
        let state = finding.map(|finding| finding.host.status);
        assert_eq!(state, Some(CheckStatus::Works), "{finding:?}");
    }
    let mut findings = document.diagnosis.findings.iter();
    let drops = findings.find(|finding| !finding.needed).expect("drops");
    if can_trace_drops() {
        assert_eq!(drops.host.status, CheckStatus::Works, "{drops:?}");
    } else {
        assert_eq!(drops.host.status, CheckStatus::Lacking, "{drops:?}");
        assert!(drops.host.remedy.is_some(), "{drops:?}");
    }
    // The command downloads nothing.
    let guest = document.diagnosis.guest;
    assert!(guest.qemu.is_some(), "{guest:?}");
    assert_eq!(guest.kernel, None);
    assert!(
        !guest.reason.is_empty() && guest.remedy.is_some(),
        "{guest:?}"
    );
    let mut findings = document.diagnosis.findings.iter();
    assert!(findings.all(|finding| finding.guest.status == CheckStatus::Untried));
}

#[test]
fn doctor_no_user_namespaces_suggests_remedy() {
    // The limit allows one more user namespace below the first, which `unshare` uses. None remains
    // for the agent.
    let shell = "echo 1 >/proc/sys/user/max_user_namespaces
        exec unshare --user --map-user=1000 --map-group=1000 \"$0\" doctor --format json";
    let cache = empty_cache();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-euc", shell])
        .arg(svclab())
        .env("SVCLAB_CACHE", cache.path())
        .stdin(Stdio::null())
        .output()
        .expect("unshare(1) runs");
    assert_eq!(output.status.code(), Some(3));
    let document = parse_report(&output);
    assert!(!document.ok);
    assert_eq!(document.diagnosis.environment, None);
    let (first, others) = document.diagnosis.findings.split_first().expect("findings");
    assert_eq!(first.host.status, CheckStatus::Fails);
    assert!(
        first.host.reason.contains("cannot create a user namespace"),
        "{first:?}"
    );
    assert!(first.host.remedy.is_some(), "{first:?}");
    assert!(!others.is_empty());
    let mut remaining = others.iter();
    assert!(remaining.all(|finding| finding.host.status == CheckStatus::Untried));
}

/// Ubuntu 24.04 refuses the capabilities of a user namespace. Here, the kernel refuses the namespace
/// itself with the same error, because the root directory is not that of the mount namespace, and
/// the sysctl of Ubuntu has its value.
#[test]
fn doctor_with_apparmor_restriction_suggests_sudo_or_guest() {
    let shell = "mount -t tmpfs tmpfs /proc/sys/kernel
        echo 1 >/proc/sys/kernel/apparmor_restrict_unprivileged_userns
        mount --rbind / \"$1\"
        directory=$1
        shift
        exec chroot \"$directory\" setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    let (cache, directory) = (empty_cache(), empty_cache());
    let run = |arguments: &[&str]| {
        Command::new("unshare")
            .args([
                "--user",
                "--map-root-user",
                "--mount",
                "sh",
                "-euc",
                shell,
                "sh",
            ])
            .arg(directory.path())
            .arg(svclab())
            .args(arguments)
            .env("SVCLAB_CACHE", cache.path())
            .stdin(Stdio::null())
            .output()
            .expect("unshare(1) runs")
    };
    let document = parse_report(&run(&["doctor", "--format", "json"]));
    let first = document.diagnosis.findings.first().expect("findings");
    let remedy = first.host.remedy.as_ref().expect("a remedy");
    assert!(
        remedy.starts_with("run svclab as root (sudo), or "),
        "{remedy}"
    );
    // The error of a run says the same.
    let case = "canal-stale-rule/stale=removed,rpFilter=1,underlay=passes";
    let output = run(&["run", "--kernel", "host", case]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains(remedy), "{text}");
}

#[test]
fn doctor_no_drop_capabilities_suggests_remedy() {
    let cache = empty_cache();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(svclab())
        .args(["doctor", "--format", "json"])
        .env("SVCLAB_CACHE", cache.path())
        .stdin(Stdio::null())
        .output()
        .expect("unshare(1) runs");
    let document = parse_report(&output);
    let mut findings = document.diagnosis.findings.iter();
    let drops = findings.find(|finding| !finding.needed).expect("drops");
    assert_eq!(drops.host.status, CheckStatus::Lacking, "{drops:?}");
    assert!(
        drops.host.reason.contains("does not let svclab trace"),
        "{drops:?}"
    );
    let remedy = drops.host.remedy.as_ref().expect("a remedy");
    assert!(remedy.contains("run svclab as root"), "{remedy}");
}

#[test]
fn doctor_without_qemu_names_package() {
    let (cache, path) = (empty_cache(), empty_cache());
    let output = Command::new(svclab())
        .args(["doctor", "--format", "json"])
        .env("SVCLAB_CACHE", cache.path())
        .env("PATH", path.path())
        .stdin(Stdio::null())
        .output()
        .expect("svclab runs");
    let guest = parse_report(&output).diagnosis.guest;
    assert_eq!(guest.qemu, None);
    assert!(guest.reason.contains("which is not installed"), "{guest:?}");
    let remedy = guest.remedy.expect("a remedy");
    assert!(remedy.contains("apt-get install"), "{remedy}");
}
