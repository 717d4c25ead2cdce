//! Tests the files in `ci/kubernetes/`: the Job agrees with the API and the restricted Pod Security
//! Standard, and `collect` merges the results of its pods.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};
use svclab_test_support::programs::agent;

use crate::SVCLAB;
use crate::support::{LAB, project, stderr};

fn job() -> Value {
    let text = fs::read_to_string(project().join("ci/kubernetes/job.yaml")).expect("the Job");
    serde_saphyr::from_str(&text).expect("YAML")
}

#[test]
fn kubernetes_job_agrees_with_the_api() {
    let job = job();
    // Unknown fields and values of another type would not return.
    let typed: Job = serde_json::from_value(job.clone()).expect("a Job");
    assert_eq!(serde_json::to_value(&typed).expect("JSON"), job);
    let spec = &job["spec"];
    let pod = &spec["template"]["spec"];
    let container = &pod["containers"][0];
    let shards = container["env"][0]["value"].as_str().expect("a number");
    assert_eq!(spec["completions"].to_string(), shards);
    assert_eq!(spec["maxFailedIndexes"].to_string(), shards);
    // https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    assert_eq!(
        container["securityContext"],
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
    );
    for field in ["hostNetwork", "hostPID", "hostIPC", "volumes"] {
        assert_eq!(pod[field], Value::Null, "{field}");
    }
}

/// Runs the command of each pod as the Job states it, and then `collect` with a kubectl that knows
/// these pods.
#[test]
fn kubernetes_collect_merges_the_shards() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    fs::create_dir(root.join("labs")).expect("a directory");
    fs::write(root.join("labs/lab.yaml"), LAB).expect("a lab");
    let programs = root.join("programs");
    fs::create_dir(&programs).expect("a directory");
    std::os::unix::fs::symlink(SVCLAB, programs.join("svclab")).expect("a link");
    let path = format!(
        "{}:{}",
        programs.display(),
        std::env::var("PATH").expect("a path")
    );
    let svclab = |program: &str| {
        let mut command = Command::new(program);
        command
            .current_dir(root)
            .env("PATH", &path)
            .env("SVCLAB_AGENT", agent())
            .env("SVCLAB_TOPOLOGIES", root.join("labs"))
            .env("SVCLAB_KERNEL", "host");
        command
    };
    let container = &job()["spec"]["template"]["spec"]["containers"][0];
    let script = container["args"][0].as_str().expect("a script");
    let script = script.replace("/dev/termination-log", "messages");
    let shards: usize = 4;
    for index in 0..shards {
        let output = svclab("sh")
            .args(["-c", &script])
            .env("SHARDS", shards.to_string())
            .env("JOB_COMPLETION_INDEX", index.to_string())
            .output()
            .expect("a shell");
        let messages = fs::read_to_string(root.join("messages")).expect("messages");
        assert!(!output.stdout.is_empty(), "{index}: {messages}");
        fs::write(root.join(format!("log-{index}")), output.stdout).expect("a log");
    }
    let kubectl = programs.join("kubectl");
    fs::write(
        &kubectl,
        "#!/bin/sh
        case \"$*\" in
        *conditions*) echo 'FailureTarget Failed' ;;
        *.spec.completions*) echo 4 ;;
        *job-completion-index=*) n=${3#*job-completion-index=}; echo \"pod-$n\" ;;
        logs*) cat \"log-${2#pod-}\" ;;
        *) echo \"unexpected: $*\" >&2; exit 1 ;;
        esac\n",
    )
    .expect("a program");
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).expect("permissions");
    let collect = project().join("ci/kubernetes/collect");
    let output = svclab(&collect.display().to_string())
        .arg("results")
        .output()
        .expect("a script");
    assert!(output.status.success(), "{}", stderr(&output));
    let merged = fs::read_to_string(root.join("results/results.json")).expect("results");
    let whole = svclab(SVCLAB)
        .args(["run", "--format", "json"])
        .output()
        .expect("the command starts");
    let names = |text: &str| -> Vec<(Value, Value)> {
        let results: Value = serde_json::from_str(text).expect("JSON");
        let cases = results["cases"].as_array().expect("cases").iter();
        cases
            .map(|case| (case["case"].clone(), case["result"].clone()))
            .collect()
    };
    let whole = String::from_utf8(whole.stdout).expect("UTF-8");
    assert!(!names(&whole).is_empty());
    assert_eq!(names(&merged), names(&whole));

    // A pod without results is named.
    fs::write(root.join("log-2"), "").expect("a log");
    let output = svclab(&collect.display().to_string())
        .arg("results")
        .output()
        .expect("a script");
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stderr(&output).contains("shard 3 of 4 has no results"),
        "{}",
        stderr(&output)
    );
}
