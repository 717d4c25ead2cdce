//! Tests `svclab claims`.

use std::path::Path;

use super::support::{LAB, run, stderr, stdout};

/// Results of a run without cases, with which every claim stays unsettled.
const NOTHING: &str = r#"{
    "schema": "svclab/results/v1",
    "tools": {},
    "cases": [],
    "summary": {"passed": 0, "failed": 0, "errors": 0}
}"#;

/// Writes the good lab with another name and one claim.
fn declaring(directory: &Path, name: &str, says: &str) -> String {
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
fn labs_that_say_different_things_of_one_claim_are_told_of() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let results = directory.path().join("results.json");
    std::fs::write(&results, NOTHING).expect("the results can be written");
    let results = results.display().to_string();
    let said = |second: &str| {
        let first = declaring(directory.path(), "first", "packets fly");
        let second = declaring(directory.path(), "second", second);
        let output = run(&["claims", &first, &second, "--from", &results]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let told = stderr(&output).replace(&format!("{}/", directory.path().display()), "");
        (stdout(&output), told)
    };
    let (claims, told) = said("packets crawl");
    insta::assert_snapshot!(claims);
    insta::assert_snapshot!(told);
    let (_, told) = said("packets fly");
    assert_eq!(told, "");
}

#[test]
fn results_that_are_none_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let refused = |text: &str| {
        let path = directory.path().join("results.json");
        std::fs::write(&path, text).expect("the results can be written");
        let output = run(&["claims", "--from", &path.display().to_string()]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output).replace(&format!("{}/", directory.path().display()), "")
    };
    insta::assert_snapshot!(refused("PASS"));
    insta::assert_snapshot!(refused(&NOTHING.replace("/v1", "/v9")));
}
