//! Tests `run --last-failed`.

use std::path::Path;
use std::process::Output;

use super::output::failing_lab;
use crate::support::{LAB, stderr, stdout, svclab, write_lab};

/// Runs the command with its own directory for state.
fn run_with_state(state: &Path, arguments: &[&str]) -> Output {
    let mut command = svclab();
    command.env("XDG_STATE_HOME", state).args(arguments);
    command.output().expect("the command starts")
}

/// Returns the names of the cases that a run names.
fn case_names(output: &Output) -> Vec<String> {
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).expect("results");
    let cases = results["cases"].as_array().expect("cases");
    let names = cases.iter().map(|case| case["case"].as_str());
    names.map(|name| name.expect("a name").to_owned()).collect()
}

#[test]
fn last_failed_runs_failed_cases_only() {
    let (directory, path) = write_lab(failing_lab());
    let file = path.to_str().expect("UTF-8");
    let state = directory.path().join("state");
    let output = run_with_state(&state, &["run", "--last-failed", file]);
    assert_eq!(output.status.code(), Some(2));
    let project = crate::support::project().display().to_string();
    insta::assert_snapshot!(stderr(&output).replace(&project, "DIRECTORY"));

    let output = run_with_state(&state, &["run", "-q", file]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let again = ["run", "--last-failed", "--format", "json"];
    let output = run_with_state(&state, &again);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(case_names(&output), ["lab/policy=Local"]);
    let other = format!("{file}/policy=Cluster");
    let output = run_with_state(&state, &["run", "--last-failed", &other]);
    assert_eq!(output.status.code(), Some(4), "{}", stdout(&output));
    insta::assert_snapshot!(stderr(&output).replace(file, "lab.yaml"));

    // The lab is corrected.
    std::fs::write(&path, LAB).expect("the lab can be written");
    let output = run_with_state(&state, &again);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(case_names(&output), ["lab/policy=Local"]);
    let output = run_with_state(&state, &again);
    assert_eq!(output.status.code(), Some(4));
    insta::assert_snapshot!(stderr(&output), @"error: no case failed in the last run");
}

#[test]
fn last_failed_untrusted_file_is_refused() {
    let (directory, path) = write_lab(failing_lab());
    let file = path.to_str().expect("UTF-8");
    let state = directory.path().join("state");
    let output = run_with_state(&state, &["run", "-q", file]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let stored = std::fs::read_dir(state.join("svclab")).expect("a directory");
    let stored = stored.last().expect("a file").expect("an entry").path();
    std::fs::write(&stored, r#"{"failed":["lab\u001b[2J"]}"#).expect("the file can be written");
    let output = run_with_state(&state, &["run", "--last-failed"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output).replace(&stored.display().to_string(), "FILE");
    insta::assert_snapshot!(text);
}
