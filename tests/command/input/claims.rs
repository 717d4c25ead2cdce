//! Tests `svclab claims`.

use std::path::Path;

use crate::support::{LAB, run, stderr, stdout};

/// Results of a run without cases, with which every claim stays unsettled.
const EMPTY_RESULTS: &str = r#"{
    "schema": "svclab/results/v1",
    "tools": {},
    "cases": [],
    "summary": {"passed": 0, "failed": 0, "errors": 0}
}"#;

/// Writes the good lab with another name and one claim.
fn write_lab_with_claim(directory: &Path, name: &str, says: &str) -> String {
    let text = LAB
        .replacen("{name: lab}", &format!("{{name: {name}}}"), 1)
        .replacen(
            "  axes:",
            &format!("  claims: {{S1-1: {{says: {says}}}}}\n  axes:"),
            1,
        );
    let path = directory.join(format!("{name}.yaml"));
    std::fs::write(&path, text).expect("the lab can be written");
    path.display().to_string()
}

#[test]
fn claims_labs_with_different_texts_are_reported() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let results = directory.path().join("results.json");
    std::fs::write(&results, EMPTY_RESULTS).expect("the results can be written");
    let results = results.display().to_string();
    let run_claims = |second: &str| {
        let first = write_lab_with_claim(directory.path(), "first", "packets fly");
        let second = write_lab_with_claim(directory.path(), "second", second);
        let output = run(&["claims", &first, &second, "--from", &results]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let errors = stderr(&output).replace(&format!("{}/", directory.path().display()), "");
        (stdout(&output), errors)
    };
    let (claims, told) = run_claims("packets crawl");
    insta::assert_snapshot!(claims);
    insta::assert_snapshot!(told);
    let (_, told) = run_claims("packets fly");
    assert_eq!(told, "");
}

/// A failed case without a claim does not count as success.
#[test]
fn claims_failed_case_without_claim_exits_1() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let results = directory.path().join("results.json");
    let case = |name: &str, result: &str, claims: &str| {
        format!(
            r#"{{"lab": "first", "case": "first/{name}", "result": "{result}", "kernel": "",
            "durationMs": 1, "probes": [], "claims": {claims}}}"#
        )
    };
    let cases = [
        case("a=x", "pass", r#"[{"id": "S1-1", "verdict": "confirmed"}]"#),
        case("a=y", "fail", "[]"),
    ];
    let text = EMPTY_RESULTS
        .replace("[]", &format!("[{}]", cases.join(",")))
        .replace(r#""passed": 0, "failed": 0"#, r#""passed": 1, "failed": 1"#);
    std::fs::write(&results, text).expect("the results can be written");
    let lab = write_lab_with_claim(directory.path(), "first", "packets fly");
    let output = run(&["claims", &lab, "--from", &results.display().to_string()]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    insta::assert_snapshot!(format!("{}{}", stdout(&output), stderr(&output)));
}

#[test]
fn claims_without_claims_exits_4() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let results = directory.path().join("results.json");
    std::fs::write(&results, EMPTY_RESULTS).expect("the results can be written");
    let lab = directory.path().join("lab.yaml");
    std::fs::write(&lab, LAB).expect("the lab can be written");
    let arguments = [&lab, &results].map(|path| path.display().to_string());
    let output = run(&["claims", &arguments[0], "--from", &arguments[1]]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    insta::assert_snapshot!(stderr(&output));
}

#[test]
fn claims_invalid_results_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let refused = |text: &str| {
        let path = directory.path().join("results.json");
        std::fs::write(&path, text).expect("the results can be written");
        let output = run(&["claims", "--from", &path.display().to_string()]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output).replace(&format!("{}/", directory.path().display()), "")
    };
    insta::assert_snapshot!(refused("PASS"));
    insta::assert_snapshot!(refused(&EMPTY_RESULTS.replace("/v1", "/v9")));
    insta::assert_snapshot!(refused(
        &EMPTY_RESULTS.replace(r#""passed": 0"#, r#""passed": 7"#)
    ));
}
