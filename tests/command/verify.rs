//! `svclab verify` of what cannot be compared: it is named, and what is wrong with it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use super::fake;
use super::support::{LAB, assert_fits, lab, run, stderr, stdout};

/// What is said of comparing a script of these lines, with these further arguments.
fn said(script: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let (directory, path) = lab(LAB);
    let program = directory.path().join("kube-proxy");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a file");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("permissions");
    told(&program, &path, arguments, directory.path())
}

fn told(program: &Path, lab: &Path, more: &[&str], home: &Path) -> (Option<i32>, String) {
    let (program, lab) = (program.display().to_string(), lab.display().to_string());
    let mut arguments = vec!["verify", "--kernel=host", "--kube-proxy", &program, &lab];
    arguments.extend(more);
    let output = run(&arguments);
    let text = stdout(&output) + &stderr(&output);
    (
        output.status.code(),
        text.replace(&home.display().to_string(), "LABS"),
    )
}

#[test]
fn one_that_is_not_there() {
    let (directory, path) = lab(LAB);
    let program = directory.path().join("none");
    let (code, text) = told(&program, &path, &[], directory.path());
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn one_that_says_something_else() {
    let (code, text) = said("echo 'kubectl 1'", &[]);
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn one_that_ends() {
    let script = "case $1 in --version) echo Kubernetes v1.30.5;; *) echo no; exit 3;; esac";
    let (code, text) = said(script, &[]);
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn against_something_else() {
    let (code, text) = said("echo Kubernetes v1.30.5", &["--against", "kube-proxy"]);
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_mode_that_no_case_has() {
    let (code, text) = said("echo Kubernetes v1.30.5", &["--proxy-mode", "ipvs"]);
    assert_eq!(code, Some(4), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_mode_that_its_version_lacks() {
    let text = LAB.replacen("{version: v1.30,", "{version: v1.30, mode: nftables,", 1);
    assert_ne!(text, LAB);
    let (directory, path) = lab(text);
    let program = directory.path().join("kube-proxy");
    fs::write(&program, "#!/bin/sh\necho Kubernetes v1.20.2\n").expect("a file");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("permissions");
    let (code, text) = told(&program, &path, &[], directory.path());
    assert_eq!(code, Some(4), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn what_one_was_refused_is_told_with_its_side() {
    let (directory, path) = lab(fake::lab());
    let program = fake::kube_proxy(directory.path(), fake::WRITES);
    let (code, text) = told(&program, &path, &[], directory.path());
    // What it calls is nobody's rules' to decide.
    assert_eq!(code, Some(0), "{text}");
    insta::with_settings!({filters => vec![(r"\d+\.\d\d s", "N s"), (r"in \d+ places", "in N places")]}, {
        insta::assert_snapshot!(text);
    });
    let (_, text) = told(&program, &path, &["--format=json"], directory.path());
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert_fits(&document, include_str!("../schema/verification.v1.json"));
    let refused = document["new"]["refused"].as_array().map(Vec::len);
    assert_eq!(refused, Some(2), "{text}");
    assert_eq!(document["against"].get("refused"), None, "{text}");
}
