//! Tests the templates in `ci/shards/`: runs the steps of each shard and of the last job, and compares
//! the merged results with those of a run without shards.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use svclab_runner::results::CaseStatus;

use super::ci::{Workspace, counts, parse_yaml, texts};
use crate::support::stderr;

/// Shards of both templates.
const SHARDS: usize = 4;

/// Directory of the results in a workspace.
const RESULTS: &str = ".svclab/results";

fn read_results(workspace: &Workspace) -> Value {
    let file = workspace.path().join(RESULTS).join("results.json");
    let text = fs::read_to_string(file).expect("results");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the cases of results with their statuses, in order.
fn cases(results: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let cases = results["cases"].as_array().expect("cases").iter();
    cases
        .map(|case| (text(&case["case"]), text(&case["result"])))
        .collect()
}

/// Checks the outputs of the last job. Returns the results.
fn check_merged(workspace: &Workspace, expected: &BTreeMap<CaseStatus, usize>) -> Value {
    let file = |name: &str| format!("{RESULTS}/{name}");
    let counted = workspace.compare_results(&file("junit.xml"), &file("results.json"));
    assert_eq!(counted, *expected);
    let page = fs::read_to_string(workspace.path().join(file("report.html"))).expect("a page");
    let results = read_results(workspace);
    for (case, _) in cases(&results) {
        assert!(page.contains(&case), "{case}");
    }
    results
}

/// Removes the results of the shards, as in the next run of the jobs.
fn forget_shards(workspace: &Workspace) {
    for entry in fs::read_dir(workspace.path().join(RESULTS)).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            fs::remove_dir_all(path).expect("a directory");
        }
    }
}

/// Runs the labs without shards.
fn run_whole(workspace: &Workspace) -> Vec<(String, String)> {
    let step = "svclab/ci/svclab run --topologies labs --write json=whole.json";
    workspace.run(step);
    let text = fs::read_to_string(workspace.path().join("whole.json")).expect("results");
    cases(&serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn github_shards_are_merged() {
    let template = parse_yaml("shards/github.yaml");
    let jobs = &template["jobs"];
    let mut workspace = Workspace::new(&template["env"], false);
    let shards = jobs["shard"]["strategy"]["matrix"]["shard"].as_array();
    let shards: Vec<String> = shards
        .expect("shards")
        .iter()
        .map(Value::to_string)
        .collect();
    assert_eq!(shards.len(), SHARDS);
    let total = jobs["shard"]["env"]["SHARDS"].to_string();
    assert_eq!(total, SHARDS.to_string());
    workspace.variables.insert("SHARDS".to_owned(), total);
    let steps = |job: &str| -> Vec<(String, String)> {
        let steps = jobs[job]["steps"].as_array().expect("steps").iter();
        let steps = steps.filter_map(|step| Some((step["name"].as_str()?, step["run"].as_str()?)));
        steps
            .map(|(name, run)| (name.to_owned(), run.to_owned()))
            .collect()
    };
    let mut merged = Vec::new();
    // The second round has the durations of the first.
    for _ in 0..2 {
        let mut codes = Vec::new();
        for shard in &shards {
            workspace
                .variables
                .insert("SHARD".to_owned(), shard.clone());
            for (name, step) in steps("shard") {
                if name == "Run the shard" {
                    let output = workspace.run(&step);
                    codes.push(output.status.code());
                } else {
                    workspace.run_successfully(&step);
                }
            }
            // The artifact has its own directory in the last job.
            let results = workspace.path().join(RESULTS);
            let from = results.join(format!("shard-{shard}"));
            fs::rename(from, results.join(format!("svclab-shard-{shard}"))).expect("a report");
        }
        codes.sort_unstable();
        assert_eq!(codes, [Some(0), Some(0), Some(0), Some(1)]);
        for (name, step) in steps("merge") {
            let output = workspace.run(&step);
            let is_merge = name == "Merge the shards";
            assert_eq!(
                output.status.code(),
                Some(i32::from(is_merge)),
                "{}",
                stderr(&output)
            );
            let printed = String::from_utf8_lossy(&output.stdout);
            assert!(!is_merge || printed.contains("\nFailures:\n"), "{printed}");
        }
        merged.push(cases(&check_merged(&workspace, &counts(3, 1))));
        forget_shards(&workspace);
    }
    assert_eq!(merged, vec![run_whole(&workspace); 2]);
}

#[test]
fn gitlab_shards_are_merged() {
    let jobs = parse_yaml("shards/gitlab.yaml");
    let mut workspace = Workspace::new(&jobs[".svclab"]["variables"], true);
    let parallel = jobs["svclab shards"]["parallel"].to_string();
    assert_eq!(parallel, SHARDS.to_string());
    workspace
        .variables
        .insert("CI_NODE_TOTAL".to_owned(), parallel);
    workspace.run_successfully("svclab/ci/install");
    for step in texts(&jobs["svclab split"]["script"]) {
        workspace.run_successfully(&step);
    }
    for shard in 1..=SHARDS {
        workspace
            .variables
            .insert("CI_NODE_INDEX".to_owned(), shard.to_string());
        for step in texts(&jobs["svclab shards"]["script"]) {
            workspace.run_successfully(&step);
        }
    }
    for step in texts(&jobs["svclab results"]["script"]) {
        workspace.run_successfully(&step);
    }
    let merged = check_merged(&workspace, &counts(4, 0));
    assert_eq!(cases(&merged), run_whole(&workspace));
    // A missing shard is an error, and earlier results do not remain.
    fs::remove_dir_all(workspace.path().join(RESULTS).join("shard-2")).expect("a report");
    for step in texts(&jobs["svclab results"]["script"]) {
        let output = workspace.run(&step);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    }
    for name in ["results.json", "junit.xml", "report.html"] {
        assert!(
            !workspace.path().join(RESULTS).join(name).exists(),
            "{name}"
        );
    }
}
