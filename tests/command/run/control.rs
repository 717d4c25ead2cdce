//! Tests the options that end a run early, repeat cases, or limit their time.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::output::failing_lab;
use crate::support::{LAB, assert_matches_schema, run, stderr, stdout, write_lab};

/// Returns a lab with 20 cases. Each has two endpoints, of which kube-proxy's rules choose one at
/// random, and expects one of them.
fn random_lab() -> String {
    let values: Vec<String> = (0..20).map(|number| format!("v{number}: []")).collect();
    let (head, tail) = LAB.split_once("  axes:\n").expect("axes");
    let (_, objects) = tail.split_once("---\n").expect("objects");
    let pod = "---
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: default, labels: {app: web}}
spec: {nodeName: node-1, containers: [{name: other, ports: [{containerPort: 8080}]}]}
status: {podIP: 10.244.1.11}
";
    format!(
        "{head}  axes:\n    try: {{{}}}\n  expect:\n  - call: {{connected: 1, endpoints: [web]}}\n\
         {pod}---\n{objects}",
        values.join(", ")
    )
}

/// Returns a lab of which the first case waits for an answer that never arrives.
fn waiting_lab() -> String {
    let rule = "-I FORWARD -d 10.244.1.10 -j DROP";
    let changed = format!(
        "      Cluster:\n      - {{patch: Lab, merge: {{spec: {{nodes: {{node-1: {{byHand: \
         {{iptables: ['*filter', '{rule}']}}}}}}}}}}}}\n"
    );
    LAB.replace("      Cluster: []\n", &changed)
}

fn run_json(path: &Path, arguments: &[&str]) -> (Value, Output) {
    let file = path.to_str().expect("UTF-8");
    let output = run(&[&["run", "--format", "json", file], arguments].concat());
    let results: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let schema = stdout(&run(&["schema", "results"]));
    assert_matches_schema(&results, &schema);
    (results, output)
}

#[test]
fn fail_fast_reports_other_cases_as_not_run() {
    // The first case fails.
    let lab = failing_lab().replace(
        "Cluster}\n    call: {connected: 1",
        "Cluster}\n    call: {refused: 1",
    );
    let (_directory, path) = write_lab(lab);
    let (results, output) = run_json(&path, &["--fail-fast", "--jobs", "1"]);
    assert_eq!(output.status.code(), Some(1), "{results:#}");
    assert_eq!(results["stopped"], "failFast", "{results:#}");
    assert_eq!(results["begun"], 2);
    assert_eq!(results["cases"].as_array().map(Vec::len), Some(1));
    assert_eq!(results["notRun"][0]["case"], "lab/policy=Local");
    let file = path.to_str().expect("UTF-8");
    let output = run(&["run", "--fail-fast", "--jobs", "1", file]);
    assert_eq!(output.status.code(), Some(1));
    insta::assert_snapshot!(super::output::normalized(&output, &path));
}

#[test]
fn fail_fast_complete_run_is_not_stopped() {
    let (_directory, path) = write_lab(failing_lab());
    let (results, output) = run_json(&path, &["--fail-fast", "--jobs", "1"]);
    assert_eq!(output.status.code(), Some(1), "{results:#}");
    assert_eq!(results["stopped"], Value::Null, "the last case failed");
    assert_eq!(results["cases"].as_array().map(Vec::len), Some(2));
}

#[test]
fn retries_passing_later_is_flaky() {
    let (_directory, path) = write_lab(random_lab());
    // A case fails 101 times with a probability of 2^-101, and no case is flaky with one of 2^-20.
    let (results, output) = run_json(&path, &["--retries", "100"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let cases = results["cases"].as_array().expect("cases");
    let is_flaky = |case: &&Value| case["result"] == "flaky";
    let flaky = cases.iter().filter(is_flaky).count();
    assert!(flaky > 0, "{results:#}");
    assert_eq!(
        results["summary"],
        json!({"passed": 20 - flaky, "flaky": flaky, "failed": 0, "errors": 0})
    );
    for case in cases {
        let tries = case["failedTries"].as_array().map_or(0, Vec::len);
        assert_eq!(tries > 0, case["result"] == "flaky", "{case:#}");
        assert!(case["probes"][0]["holds"] == true, "{case:#}");
    }
    let file = path.to_str().expect("UTF-8");
    let strict = ["run", "-q", "--retries", "100", "--flaky", "fail", file];
    let output = run(&strict);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(
        stdout(&output).contains(" flaky, 0 failed, 0 errors"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn retries_failing_always_is_failure() {
    let (_directory, path) = write_lab(failing_lab());
    let (results, output) = run_json(&path, &["--retries", "2"]);
    assert_eq!(output.status.code(), Some(1), "{results:#}");
    let failed = &results["cases"][1];
    assert_eq!(failed["result"], "fail");
    assert_eq!(failed["failedTries"].as_array().map(Vec::len), Some(2));
    assert_eq!(results["cases"][0]["failedTries"], Value::Null);
}

#[test]
fn timeout_stops_case_and_others_run() {
    let (_directory, path) = write_lab(waiting_lab());
    let begun = Instant::now();
    let arguments = ["--max-wait", "10m", "--timeout", "5s", "--jobs", "1"];
    let (results, output) = run_json(&path, &arguments);
    assert!(begun.elapsed() < Duration::from_mins(1));
    assert_eq!(output.status.code(), Some(1), "{results:#}");
    let stopped = &results["cases"][0];
    assert_eq!(stopped["result"], "error", "{results:#}");
    assert_eq!(
        stopped["error"],
        json!({
            "kind": "timeout",
            "message": "the case was stopped after 5s, its time limit",
            "remedy": "raise --timeout, or lower --max-wait",
        })
    );
    assert_eq!(results["cases"][1]["result"], "pass", "{results:#}");
}

#[test]
fn run_timeout_reports_other_cases_as_not_run() {
    let (_directory, path) = write_lab(waiting_lab());
    let begun = Instant::now();
    let arguments = ["--max-wait", "10m", "--run-timeout", "5s"];
    let (results, output) = run_json(&path, &arguments);
    assert!(begun.elapsed() < Duration::from_mins(1));
    assert_eq!(output.status.code(), Some(1), "{results:#}");
    assert_eq!(results["stopped"], "runTimeout");
    assert_eq!(
        results["cases"][0]["case"], "lab/policy=Local",
        "{results:#}"
    );
    assert_eq!(results["notRun"][0]["case"], "lab/policy=Cluster");
}

#[test]
fn control_options_invalid_values_are_refused() {
    let mut messages = String::new();
    for arguments in [
        &["--timeout", "0s"][..],
        &["--run-timeout", "25h"],
        &["--timeout", "soon"],
        &["--retries", "101"],
        &["--flaky", "fail"],
        &["--quiet", "--verbose"],
    ] {
        let output = run(&[&["run"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        messages += stderr(&output).lines().next().expect("a message");
        messages += "\n";
    }
    insta::assert_snapshot!(messages);
}
