//! A program that is to run as kube-proxy and cannot: it is named, and what is wrong
//! with it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use super::support::{LAB, lab, run, stderr, stdout};

/// The beginning of a program for 64 bits, lower byte first, of a processor.
fn program_for(machine: u8) -> Vec<u8> {
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(64, 0);
    head[16] = 2;
    head[18] = machine;
    head
}

/// What is said of a lab whose kube-proxy is `binary`, which has these bytes.
fn said(bytes: &[u8], permissions: u32, more: &str) -> (Option<i32>, String) {
    let text = LAB.replacen(
        "kubeProxy: {version",
        &format!("kubeProxy: {{binary: bin/proxy, {more}version"),
        1,
    );
    assert_ne!(text, LAB);
    let (directory, path) = lab(text);
    let bin = directory.path().join("bin");
    fs::create_dir(&bin).expect("a directory");
    let binary = bin.join("proxy");
    fs::write(&binary, bytes).expect("a file");
    fs::set_permissions(&binary, Permissions::from_mode(permissions)).expect("permissions");
    let case = format!("{}/policy=Local", path.display());
    let output = run(&["run", "--kernel=host", &case]);
    told(&output, directory.path())
}

fn told(output: &Output, directory: &Path) -> (Option<i32>, String) {
    let text = stdout(output) + &stderr(output);
    let text = text.replace(&directory.display().to_string(), "LABS");
    // How long it took, and on which kernel.
    let lines = text.lines().filter(|line| !line.contains(" passed, "));
    let lines: Vec<&str> = lines
        .map(|line| line.split("  (").next().unwrap_or(line))
        .collect();
    (output.status.code(), lines.join("\n"))
}

#[test]
fn a_file_that_nobody_may_run() {
    let (code, text) = said(&program_for(62), 0o644, "");
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn another_processor_s_program() {
    let foreign = if cfg!(target_arch = "aarch64") {
        62
    } else {
        183
    };
    let (code, text) = said(&program_for(foreign), 0o755, "");
    assert_eq!(code, Some(2), "{text}");
    insta::with_settings!({filters => vec![("x86_64|aarch64", "ARCHITECTURE")]}, {
        insta::assert_snapshot!(text);
    });
}

#[test]
fn no_program_at_all() {
    let (code, text) = said(b"kube-proxy\n", 0o755, "");
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn what_no_flag_tells_is_refused() {
    let (code, text) = said(b"#!/bin/sh\n", 0o755, "bindLoadBalancerIPs: false, ");
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_program_that_is_no_kube_proxy() {
    let script = b"#!/bin/sh\necho \"I know nothing of $1\" >&2\nexit 3\n";
    let (code, text) = said(script, 0o755, "");
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn flags_without_a_program() {
    let text = LAB.replacen(
        "kubeProxy: {version",
        "kubeProxy: {args: [--v=4], version",
        1,
    );
    let (directory, path) = lab(text);
    let output = run(&["run", "--kernel=host", &path.display().to_string()]);
    let (code, text) = told(&output, directory.path());
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn the_command_line_names_what_is_not_there() {
    let (directory, path) = lab(LAB);
    let path = path.display().to_string();
    let output = run(&["run", "--kube-proxy", "/nowhere/kube-proxy", &path]);
    let (code, text) = told(&output, directory.path());
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}
