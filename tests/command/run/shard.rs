//! Tests `run --shard` and `merge`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::output::failing_lab;
use crate::support::{LAB, assert_matches_schema, run, stderr, stdout, write_lab};

/// Cases with a flow table, and cases of different durations.
const LABS: [&str; 2] = ["conformance/node-port/mode=nftables", "canal-stale-rule"];

/// Runs labs with further arguments and returns the results.
fn run_labs(labs: &[&str], arguments: &[&str], file: &Path) -> Value {
    let write = format!("json={}", file.display());
    let output = run(&[
        &["run", "-q", "--kernel=host", "--write", &write],
        arguments,
        labs,
    ]
    .concat());
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        stderr(&output)
    );
    read(file)
}

fn read(file: &Path) -> Value {
    let text = std::fs::read_to_string(file).expect("results");
    serde_json::from_str(&text).expect("JSON")
}

/// Removes what differs between two runs: times, the command, and the choices of kube-proxy's rules
/// between endpoints.
fn normalize(value: &mut Value) {
    match value {
        Value::Object(object) => {
            for key in [
                "run",
                "durationMs",
                "repeatedPorts",
                "steps",
                "observed",
                "seen",
            ] {
                object.remove(key);
            }
            object.values_mut().for_each(normalize);
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        _ => {}
    }
}

#[test]
fn shards_merged_equal_unsharded_run() {
    let (directory, path) = write_lab(failing_lab());
    let labs = [&LABS[..], &[path.to_str().expect("UTF-8")]].concat();
    let file = |name: &str| directory.path().join(name);
    let mut whole = run_labs(&labs, &[], &file("whole.json"));
    let durations = file("whole.json").display().to_string();
    let mut shards: Vec<PathBuf> = Vec::new();
    for number in 1..=4 {
        let name = file(&format!("{number}.json"));
        let shard = format!("{number}/4");
        let results = run_labs(
            &labs,
            &["--shard", &shard, "--durations", &durations],
            &name,
        );
        assert!(
            results["cases"]
                .as_array()
                .is_some_and(|cases| !cases.is_empty())
        );
        shards.push(name);
    }
    let merged = file("merged.json");
    let names: Vec<&str> = shards
        .iter()
        .rev()
        .map(|shard| shard.to_str().expect("UTF-8"))
        .collect();
    let output = merged.to_str().expect("UTF-8");
    let output = run(&[&["merge", "--output", output], &names[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let mut merged = read(&merged);
    assert_matches_schema(&merged, &stdout(&run(&["schema", "results"])));
    normalize(&mut whole);
    normalize(&mut merged);
    let names = |results: &Value| -> Vec<String> {
        let cases = results["cases"].as_array().expect("cases");
        cases.iter().map(|case| case["case"].to_string()).collect()
    };
    assert_eq!(names(&merged), names(&whole));
    assert_eq!(merged["flows"], whole["flows"]);
    assert_eq!(merged, whole);

    let xml = run(&[&["merge", "--format", "junit"], &shards_of(&shards)[..]].concat());
    let report = quick_junit::Report::deserialize_from_str(&stdout(&xml)).expect("JUnit");
    assert_eq!(report.tests, whole["cases"].as_array().map_or(0, Vec::len));
    let text = run(&[&["merge", "--format", "human"], &shards_of(&shards)[..]].concat());
    assert!(
        stdout(&text).contains("\nFailures:\n  FAIL lab/policy=Local\n"),
        "{}",
        stdout(&text)
    );
}

fn shards_of(files: &[PathBuf]) -> Vec<&str> {
    files
        .iter()
        .map(|file| file.to_str().expect("UTF-8"))
        .collect()
}

/// A CI cache may contain results of another version of svclab.
#[test]
fn durations_of_other_version_are_not_used() {
    let (directory, path) = write_lab(LAB);
    let durations = directory.path().join("earlier.json");
    let run_shard = |text: &str| {
        std::fs::write(&durations, text).expect("a file");
        let durations = durations.display().to_string();
        let lab = path.display().to_string();
        let shard = ["run", "-q", "--kernel=host", "--shard=3/4", "--durations"];
        let output = run(&[&shard[..], &[&durations, &lab]].concat());
        let text = stderr(&output).replace(&directory.path().display().to_string(), "DIR");
        (output.status.code(), text)
    };
    let (code, other_version) = run_shard(r#"{"schema": "svclab/results/v0", "cases": []}"#);
    assert_eq!(code, Some(0), "{other_version}");
    let (code, no_results) = run_shard("{}");
    assert_eq!(code, Some(2), "{no_results}");
    insta::assert_snapshot!([other_version, no_results].join("\n"));
}

#[test]
fn merge_missing_shard_is_refused() {
    let (directory, path) = write_lab(LAB);
    let lab = path.to_str().expect("UTF-8");
    let file = directory.path().join("1.json");
    // The shards 3 and 4 have no case.
    let results = run_labs(&[lab], &["--shard", "3/4"], &file);
    assert_eq!(results["cases"].as_array().map(Vec::len), Some(0));
    let output = run(&["merge", file.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(stderr(&output));
}
