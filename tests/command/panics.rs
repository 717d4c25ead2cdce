//! A panic of any command ends with the exit code of a bug and asks for a report.
//!
//! No input of a user makes svclab panic, so the kernel does: a system call filter has
//! `getrandom` fail with `EIO`, of which the standard library knows no way out.
//! (Rust 1.95, `library/std/src/sys/random/linux.rs`, `getrandom`: "failed to generate
//! random data", for the keys of the first hash map.)

use std::path::Path;
use std::process::{Command, Output};

use nix::libc;
use svclab_diagnostic::exit_code;

use super::fake;
use super::support::{LAB, lab, stderr, stdout, svclab};

/// Sets `no_new_privs` and the filter, and becomes the command. In Perl, which every
/// Debian has. The filter: load the number of the call, compare, return.
const WITHOUT_RANDOM: &str = r#"
my ($prctl, $seccomp, $getrandom, $errno, @command) = @ARGV;
my $filter = join "", map { pack "SCCL", @$_ } (
    [0x20, 0, 0, 0],
    [0x15, 0, 1, $getrandom],
    [0x06, 0, 0, 0x00050000 | $errno],
    [0x06, 0, 0, 0x7fff0000],
);
my $program = pack "S x![P] P", 4, $filter;
syscall($prctl + 0, 38, 1, 0, 0, 0) == 0 or die "prctl: $!\n";
syscall($seccomp + 0, 1, 0, $program) == 0 or die "seccomp: $!\n";
exec @command or die "exec: $!\n";
"#;

fn panicking(directory: &Path, arguments: &[&str]) -> Output {
    let own = svclab();
    Command::new("perl")
        .args(["-e", WITHOUT_RANDOM])
        .args([libc::SYS_prctl, libc::SYS_seccomp, libc::SYS_getrandom].map(|it| it.to_string()))
        .arg(libc::EIO.to_string())
        .arg(own.get_program())
        .args(arguments)
        .current_dir(directory)
        .env_remove("SVCLAB_TOPOLOGIES")
        .env("NO_COLOR", "1")
        .output()
        .expect("perl")
}

#[test]
fn command_that_panics_asks_for_a_report() {
    let (directory, _) = lab(LAB);
    let proxy = fake::kube_proxy(directory.path(), fake::WRITES);
    let proxy = proxy.display().to_string();
    let (good, bad) = ("lab.yaml/policy=Cluster", "lab.yaml/policy=Local");
    std::fs::write(
        directory.path().join("iptables-save"),
        "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n",
    )
    .expect("a dump");
    for arguments in [
        &["run", good][..],
        &["explain", good],
        &["why", good],
        &["bisect", "--good", good, "--bad", bad],
        &["verify", "--kube-proxy", &proxy, good],
        &["replay", "iptables-save", "--objects", good],
        &["claims", good],
        &["plan", good],
        &["up", good],
    ] {
        let output = panicking(directory.path(), arguments);
        let said = stdout(&output) + &stderr(&output);
        let code = output.status.code();
        assert_eq!(code, Some(exit_code::BUG.into()), "{arguments:?}: {said}");
        for words in [
            "svclab panicked at",
            "random",
            "report it with this message",
        ] {
            assert!(stderr(&output).contains(words), "{arguments:?}: {said}");
        }
        assert!(!said.contains("PASS"), "{arguments:?}: {said}");
    }
}
