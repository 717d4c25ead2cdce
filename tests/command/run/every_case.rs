//! Tests that every begun case has a result in every format. Covers a case that panics, a case
//! whose agent panics, and cases of an invalid lab. Other cases still pass.

use std::fs;
use std::future::pending;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use quick_junit::{Report, TestCaseStatus};
use serde_json::Value;
use svclab_diagnostic::exit_code;
use svclab_experiment::why::{WhyRequest, find_fixes};
use svclab_model::plan::health::{HealthCheck, HealthRequest};
use svclab_model::plan::{MaxWait, Plan};
use svclab_report::{Format, Options as Telling};
use svclab_runner::kernel::KernelChoice;
use svclab_runner::results::{CaseStatus, ErrorKind, Results};
use svclab_runner::run::{
    Event, Prepared, RunControl, RunOptions, execute, explain, prepare, select_labs,
};
use svclab_test_support::programs::agent;
use tokio::sync::mpsc;

use crate::support::{LAB, assert_matches_schema, project, run, stderr, stdout, svclab, write_lab};

/// Prepares the two cases of the good lab.
fn prepare_both_cases(path: &Path) -> Vec<Prepared> {
    let labs = select_labs(&[path.display().to_string()], path).expect("a lab");
    let prepared = labs[0].cases.iter().map(|at| {
        let case = &labs[0].scenario.cases()[*at];
        prepare(&labs[0], case, MaxWait::SETTLED).expect("the case can be prepared")
    });
    prepared.collect()
}

fn options() -> RunOptions {
    RunOptions {
        kernels: KernelChoice::Host,
        agent: Some(agent()),
        jobs: 2,
        agents: 2,
        keep: false,
        with_evidence: false,
        command: String::new(),
        shard: None,
        control: RunControl::default(),
        notice: None,
    }
}

/// Runs both cases, with a change to the plan of the second. Returns the results and all events.
async fn run_with_changed_plan(spoil: impl Fn(&mut Plan)) -> (Results, Vec<Event>) {
    let (_directory, path) = write_lab(LAB);
    let mut cases = prepare_both_cases(&path);
    spoil(&mut cases[1].plan);
    let options = options();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let cases = cases.into_iter().map(Ok).collect();
    let (results, _) = execute(cases, &options, &sender, pending()).await;
    drop(sender);
    let mut events = Vec::new();
    while let Some(event) = receiver.recv().await {
        events.push(event);
    }
    (results, events)
}

/// Asserts that the first case passed and the second ended with a bug error.
fn assert_bug_after_pass(results: &Results, events: &[Event], message: &str) {
    let [passed, wrong] = results.cases.as_slice() else {
        panic!("{results:#?}");
    };
    assert_eq!(passed.result, CaseStatus::Pass, "{passed:#?}");
    assert_eq!(wrong.result, CaseStatus::Error);
    assert_eq!(
        (wrong.lab.as_str(), wrong.case.as_str()),
        ("lab", "lab/policy=Local")
    );
    assert!(
        !wrong.kernel.is_empty() && wrong.location.is_some(),
        "{wrong:#?}"
    );
    let error = wrong.error.as_ref().expect("an error");
    assert_eq!(error.kind, ErrorKind::Bug, "{error:?}");
    assert!(error.message.contains(message), "{error:?}");
    let remedy = error.remedy.as_deref().unwrap_or_default();
    assert!(remedy.contains("report it"), "{remedy}");
    assert_eq!(results.begun, Some(2));
    assert_eq!(results.exit_code(), exit_code::BUG);
    for (format, words) in [
        (Format::Human, "ERROR lab/policy=Local"),
        (Format::Json, "\"result\": \"error\""),
        (Format::Junit, "errors=\"1\""),
        (Format::Github, "title=ERROR lab/policy=Local::"),
    ] {
        let mut out = Vec::new();
        {
            let mut writer = format.writer(&mut out, Telling::default());
            for event in events {
                writer.event(event).expect("a buffer accepts all output");
            }
        }
        let rendered = String::from_utf8_lossy(&out);
        assert!(
            rendered.contains(words) && rendered.contains(message),
            "{rendered}"
        );
    }
}

#[tokio::test]
async fn case_panic_is_an_error_other_case_passes() {
    // Invalid value that no lab can contain: doubling it overflows.
    let spoil = |plan: &mut Plan| plan.stages[0].probes[0].max_wait = Duration::MAX;
    let (results, events) = run_with_changed_plan(spoil).await;
    assert_bug_after_pass(&results, &events, "panicked");
}

#[tokio::test]
async fn agent_panic_is_an_error_other_case_passes() {
    // Invalid value that no lab can contain: the check waits a multiple of it, which overflows.
    let spoil = |plan: &mut Plan| {
        plan.health.push(HealthCheck {
            namespace: "node-1".to_owned(),
            backend: (Ipv4Addr::LOCALHOST, 9).into(),
            bind: None,
            request: HealthRequest::Connect,
            interval: Duration::MAX,
            real_servers: Vec::new(),
        });
    };
    let (results, events) = run_with_changed_plan(spoil).await;
    assert_bug_after_pass(&results, &events, "svclab agent: svclab panicked at");
}

/// Runs `explain` and `why` on two cases, of which the second panics.
#[tokio::test]
async fn explain_and_why_case_panic_is_a_bug_for_one_case() {
    let (_directory, path) = write_lab(LAB);
    let labs = select_labs(&[path.display().to_string()], &path).expect("a lab");
    let mut cases = prepare_both_cases(&path);
    cases[1].plan.stages[0].probes[0].max_wait = Duration::MAX;
    let options = options();
    let explained = explain(cases.clone(), &options, pending()).await;
    let explained = explained.expect("the run is not interrupted");
    let asked = cases.into_iter().map(|prepared| WhyRequest {
        lab: &labs[0],
        prepared,
        wishes: MaxWait::SETTLED.into(),
        probe: None,
        wanted: None,
    });
    let found = find_fixes(asked.collect(), &options, Duration::from_mins(5), |_| {}).await;
    let explained = explained.into_iter().map(|result| result.map(drop));
    let found = found.into_iter().map(|result| result.map(drop));
    for both in [explained.collect::<Vec<_>>(), found.collect()] {
        let [Ok(()), Err((case, error))] = both.as_slice() else {
            panic!("{both:?}");
        };
        assert_eq!(case, "lab/policy=Local");
        assert_eq!(error.kind, ErrorKind::Bug, "{error:?}");
        let remedy = error.remedy.as_deref().unwrap_or_default();
        assert!(remedy.contains("report it"), "{remedy}");
    }
}

/// Writes a good lab, a lab with a misspelt field, a file that is no text, and a lab with one
/// invalid case of two.
fn write_labs() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &[u8]| {
        fs::write(directory.path().join(format!("{name}.yaml")), text).expect("a lab");
    };
    let named = |name: &str| LAB.replace("{name: lab}", &format!("{{name: {name}}}"));
    write(
        "a-misspelt",
        named("a-misspelt")
            .replace("  axes:", "  axess:")
            .as_bytes(),
    );
    write("b-binary", b"spec:\n\xff\xfe");
    write("c-good", named("c-good").as_bytes());
    let row = "  - when: {policy: Local}\n    call: {connected: 1, endpoints: [web], seenSource: pod/default/client}\n";
    let half = named("d-half").replace("internalTrafficPolicy: Local", "clusterIP: 10.244.1.9");
    assert!(LAB.contains(row));
    write("d-half", half.as_bytes());
    directory
}

/// Returns the output of `run` on these labs in a format, without varying parts.
fn run_labs(directory: &Path, arguments: &[&str]) -> String {
    let output = svclab()
        .current_dir(directory)
        .args(["run", "--topologies", "."])
        .args(arguments)
        .output()
        .expect("the command starts");
    let code = output.status.code();
    assert_eq!(
        code,
        Some(exit_code::INVALID_INPUT.into()),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    stdout(&output)
}

#[test]
fn run_invalid_lab_still_runs_others() {
    let directory = write_labs();
    let text = run_labs(directory.path(), &[]);
    // Passed cases are printed as they end, in any order.
    let (passed, rest): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("PASS "));
    assert_eq!(passed.len(), 3, "{text}");
    let text = rest.join("\n");
    insta::with_settings!({filters => vec![
        (r"\(\d+\.\d+ s\)", "(TIME)"),
        (r"in \d+\.\d+ s on .*", "in TIME"),
    ]}, {
        insta::assert_snapshot!(text);
    });
}

#[test]
fn run_invalid_lab_is_in_json_results() {
    let directory = write_labs();
    let text = run_labs(directory.path(), &["--format", "json"]);
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert_matches_schema(&document, include_str!("../../schema/results.v1.json"));
    let results: svclab_report::results::Document =
        serde_json::from_value(document).expect("results");
    let brief = results.cases.iter().map(|case| {
        let place = case.location.as_ref().map(ToString::to_string);
        let error = case.error.as_ref();
        let message = error.map(|error| (error.kind, error.message.as_str()));
        (case.case.as_str(), case.result, place, message)
    });
    insta::assert_debug_snapshot!(brief.collect::<Vec<_>>());
    assert_eq!(results.begun, Some(results.cases.len()));
}

#[test]
fn run_invalid_lab_is_in_junit_with_file_and_line() {
    let directory = write_labs();
    let text = run_labs(directory.path(), &["--format", "junit"]);
    let report = Report::deserialize_from_str(&text).expect("JUnit");
    assert_eq!((report.tests, report.errors), (6, 3), "{text}");
    let mut places = Vec::new();
    for suite in &report.test_suites {
        let file = suite.extra.get("file").map(quick_junit::XmlString::as_str);
        places.push(format!(
            "{}: {}",
            suite.name.as_str(),
            file.unwrap_or_default()
        ));
        for case in &suite.test_cases {
            let TestCaseStatus::NonSuccess { description, .. } = &case.status else {
                continue;
            };
            let description = description.as_ref().map(quick_junit::XmlString::as_str);
            let lines = description.into_iter().flat_map(str::lines);
            let place = lines.filter(|line| line.starts_with("see: "));
            places.extend(place.map(|line| format!("  {} {line}", case.name.as_str())));
        }
    }
    insta::assert_snapshot!(places.join("\n"));
}

#[test]
fn run_invalid_lab_has_github_annotation() {
    let directory = write_labs();
    let text = run_labs(directory.path(), &["--format", "github"]);
    let lines = text.lines().filter(|line| line.starts_with("::error"));
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

/// Commands on several labs run on the valid labs, report the others, and exit with an error.
#[test]
fn command_invalid_lab_handles_others_and_exits_2() {
    let directory = write_labs();
    let at = directory.path().display().to_string();
    for (arguments, words) in [
        (&["explain", &at][..], "c-good/policy=Local"),
        (&["why", &at], "c-good/policy=Local"),
        (&["claims", &at], "unknown field `axess`"),
    ] {
        let output = run(arguments);
        let printed = stdout(&output) + &stderr(&output);
        let code = output.status.code();
        assert_eq!(
            code,
            Some(exit_code::INVALID_INPUT.into()),
            "{arguments:?}: {printed}"
        );
        assert!(printed.contains(words), "{arguments:?}: {printed}");
        for words in ["unknown field `axess`", "is not UTF-8"] {
            assert!(stderr(&output).contains(words), "{arguments:?}: {printed}");
        }
    }
}

/// An unknown name is an error of the command line; no case runs.
#[test]
fn run_unknown_name_runs_no_case() {
    let directory = write_labs();
    let good = directory.path().join("c-good.yaml").display().to_string();
    for (name, code) in [
        ("./no/such/file.yaml", exit_code::INVALID_INPUT),
        ("no-such-lab", exit_code::NOTHING_SELECTED),
    ] {
        let output = run(&["run", &good, name]);
        assert_eq!(
            output.status.code(),
            Some(code.into()),
            "{}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn run_labs_of_equal_name_have_separate_flow_tables() {
    let lab = project().join("topologies/conformance/external-ip.yaml");
    let directory = tempfile::tempdir().expect("a directory");
    let copies = [("a", "iptables"), ("b", "nftables")].map(|(name, mode)| {
        let path = directory.path().join(name);
        fs::create_dir(&path).expect("a directory");
        fs::copy(&lab, path.join("external-ip.yaml")).expect("a copy");
        (format!("{}/external-ip.yaml", path.display()), mode)
    });
    let cases = copies
        .clone()
        .map(|(lab, mode)| format!("{lab}/mode={mode},version=v1.36,cidr=set"));
    let output = run(&[
        "run",
        "--kernel=host",
        "--format=json",
        &cases[0],
        &cases[1],
    ]);
    let printed: Value = serde_json::from_slice(&output.stdout).expect("a document");
    let tables = printed["flows"].as_array().expect("flow tables");
    for (table, (lab, mode)) in tables.iter().zip(&copies) {
        assert_eq!(table["lab"], *lab, "{tables:#?}");
        assert_eq!(table["columns"], serde_json::json!([mode]), "{tables:#?}");
    }
    assert_eq!(tables.len(), copies.len());
}
