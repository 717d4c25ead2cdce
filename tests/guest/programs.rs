//! Tests the programs of a guest: those of the plans that run in the guest, with scripts. A program
//! that no guest can contain is an error of its own case.

use std::fs;
use std::process::Command;

use svclab_test_support::block_on;
use svclab_test_support::guests::{new_guest, shared_cache};

use super::SVCLAB;

/// Lab that the labs of this test are made from.
const LAB: &str = include_str!("../command/good.yaml");

#[test]
fn guest_command_that_is_a_device_leaves_other_labs() {
    block_on(new_guest("6.12"));
    let directory = tempfile::tempdir().expect("a directory");
    // `ldd` is a script of the shell.
    for (name, command) in [("device", "/dev/zero"), ("script", "ldd --version")] {
        let hand = format!("byHand: {{commands: [{command}]}}");
        let text = LAB.replacen("leftovers: {iptables: []}", &hand, 1);
        let text = text.replacen("{name: lab}", &format!("{{name: {name}}}"), 1);
        assert!(text.contains(command));
        fs::write(directory.path().join(format!("{name}.yaml")), text).expect("a file");
    }
    let output = Command::new(SVCLAB)
        .env("NO_COLOR", "1")
        .env("SVCLAB_CACHE", shared_cache().directory())
        .current_dir(directory.path())
        .args(["run", "--kernel=6.12"])
        .args(["device.yaml/policy=Local", "script.yaml/policy=Local"])
        .output()
        .expect("the command starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| !line.contains(" passed, "));
    let text: Vec<&str> = lines.collect();
    insta::with_settings!({filters => vec![(r"\(\d+\.\d+ s\)", "(TIME)")]}, {
        insta::assert_snapshot!(text.join("\n"));
    });
}

/// Cases with programs of the user do not share guests with others. The pool of the last one must not
/// keep the guests that a case before it waits for.
#[test]
fn guest_case_between_cases_with_commands_gets_guest() {
    block_on(new_guest("6.12"));
    let directory = tempfile::tempdir().expect("a directory");
    let commands =
        "[{patch: Lab, merge: {spec: {nodes: {node-1: {byHand: {commands: [ip rule]}}}}}}]";
    let axis =
        format!("  axes:\n    commands: {{before: {commands}, none: [], after: {commands}}}\n");
    let text = LAB.replacen("  axes:\n", &axis, 1);
    fs::write(directory.path().join("lab.yaml"), text).expect("a file");
    let output = Command::new(SVCLAB)
        .env("SVCLAB_CACHE", shared_cache().directory())
        .current_dir(directory.path())
        .args(["run", "--kernel=6.12", "--run-timeout=5m"])
        .arg("lab.yaml")
        .output()
        .expect("the command starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("6 passed, 0 failed, 0 errors in "), "{text}");
}
