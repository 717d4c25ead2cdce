//! Tests that a panic of any command exits with the code of a bug and asks for a report.
//!
//! No user input makes svclab panic, so a system call filter does: `getrandom` fails with `EIO`, on
//! which the standard library panics. (Rust 1.95, `library/std/src/sys/random/linux.rs`,
//! `getrandom`: "failed to generate random data", for the keys of the first hash map.)

use std::path::Path;
use std::process::{Command, Output};

use nix::libc;
use svclab_diagnostic::exit_code;

use crate::fake;
use crate::support::{LAB, stderr, stdout, svclab, write_lab};

/// Perl script that sets `no_new_privs` and the filter, and executes the command; every Debian has
/// Perl. The filter loads the number of the system call, compares it, and returns.
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

fn run_with_panic(directory: &Path, arguments: &[&str]) -> Output {
    let svclab_command = svclab();
    Command::new("perl")
        .args(["-e", WITHOUT_RANDOM])
        .args(
            [libc::SYS_prctl, libc::SYS_seccomp, libc::SYS_getrandom]
                .map(|number| number.to_string()),
        )
        .arg(libc::EIO.to_string())
        .arg(svclab_command.get_program())
        .args(arguments)
        .current_dir(directory)
        .env_remove("SVCLAB_TOPOLOGIES")
        .env("NO_COLOR", "1")
        .output()
        .expect("perl")
}

#[test]
fn command_that_panics_asks_for_a_report() {
    let (directory, _) = write_lab(LAB);
    let proxy = fake::write_fake_kube_proxy(directory.path(), fake::SYNCS);
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
        let output = run_with_panic(directory.path(), arguments);
        let output_text = stdout(&output) + &stderr(&output);
        let code = output.status.code();
        assert_eq!(
            code,
            Some(exit_code::BUG.into()),
            "{arguments:?}: {output_text}"
        );
        for words in [
            "svclab panicked at",
            "random",
            "report it with this message",
        ] {
            assert!(
                stderr(&output).contains(words),
                "{arguments:?}: {output_text}"
            );
        }
        assert!(
            !output_text.contains("PASS"),
            "{arguments:?}: {output_text}"
        );
    }
}
